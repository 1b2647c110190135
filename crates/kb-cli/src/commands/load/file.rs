//! Reads a file of this machine, and computes the hash that the server has of it if it is unchanged.

use super::selection::Found;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// From this size on, a file is read piece by piece, so that memory does not depend on its size.
pub const LARGE: u64 = 4 << 20;

/// How the URIs of documents begin that `kb load` has put. It deletes no others.
pub const SCHEME: &str = "file:";

/// What a URI cannot contain as it is, in addition to what is not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A document that can be put.
#[derive(Debug)]
pub struct Document {
    /// What it is called in messages.
    pub path: String,
    pub external_id: String,
    pub uri: String,
    pub content: Content,
    /// kb.documents.content_hash of this document.
    pub hash: [u8; 32],
    /// The size when it was listed.
    pub listed_size: u64,
    pub size: u64,
}

#[derive(Debug)]
pub enum Content {
    /// For kb.put_documents.
    Text { content_type: &'static str, title: Option<String>, text: String },
    /// For kb.put_file.
    File { name: String, bytes: Vec<u8> },
    /// For kb.put_file, in pieces.
    Large { name: String, place: PathBuf },
}

/// What became of reading a file.
#[derive(Debug)]
pub enum Reading {
    Ready(Document),
    /// It is of a format that kb does not read, and nothing names it.
    LeftOut,
    /// It was removed after it had been listed.
    Gone,
    Failed(String),
}

/// Where files are read from, and what their external_ids begin with.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub prefix: &'a str,
    /// The server's limit.
    pub most: Option<u64>,
    /// Whether files of unknown formats are sent, too: an extraction service may read them.
    pub takes_all: bool,
}

impl Reader<'_> {
    pub fn read(&self, found: &Found, place: &Path) -> Reading {
        let too_large = |size: u64, most: u64| {
            format!("it has {size} bytes; kb.max_document_size of the server allows {most}")
        };
        if let Some(most) = self.most.filter(|most| found.stamp.size > *most) {
            return Reading::Failed(too_large(found.stamp.size, most));
        }
        match self.read_open(found, place) {
            Ok(Some(document)) => match self.most.filter(|most| document.size > *most) {
                Some(most) => Reading::Failed(too_large(document.size, most)),
                None => Reading::Ready(document),
            },
            Ok(None) => Reading::LeftOut,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Reading::Gone
            }
            Err(error) => Reading::Failed(error.to_string()),
        }
    }

    fn read_open(&self, found: &Found, place: &Path) -> std::io::Result<Option<Document>> {
        let mut file = File::open(place)?;
        let name = found.path.rsplit('/').next().unwrap_or_default().to_string();
        let mut bytes = Vec::with_capacity(found.stamp.size.min(LARGE) as usize + 1);
        Read::by_ref(&mut file).take(LARGE).read_to_end(&mut bytes)?;
        if !found.is_named && !self.takes_all && is_foreign(&name, &bytes) {
            return Ok(None);
        }
        let (content, hash, size) = if (bytes.len() as u64) < LARGE {
            let size = bytes.len() as u64;
            let content = content(name, bytes);
            let hash = content_hash(&content);
            (content, hash, size)
        } else {
            let mut hasher = file_hasher(&name);
            hasher.update(&bytes);
            let mut size = bytes.len() as u64;
            // The buffer serves again.
            loop {
                let count = match file.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                hasher.update(&bytes[..count]);
                size += count as u64;
            }
            (Content::Large { name, place: place.to_path_buf() }, *hasher.finalize().as_bytes(), size)
        };
        Ok(Some(Document {
            path: found.path.clone(),
            external_id: format!("{}{}", self.prefix, found.path),
            uri: uri(&found.path),
            content,
            hash,
            listed_size: found.stamp.size,
            size,
        }))
    }
}

/// The URI of a file.
pub fn uri(path: &str) -> String {
    format!("{SCHEME}{}", utf8_percent_encode(path, ESCAPED))
}

/// Text and Markdown are put as they are. Everything else needs the program kb-extract: other formats, other
/// encodings, and Markdown with front matter.
fn content(name: String, bytes: Vec<u8>) -> Content {
    let is_markdown = match extension(&name).as_str() {
        "txt" | "text" | "log" => false,
        "md" | "markdown" | "mdx" | "qmd" => true,
        _ => return Content::File { name, bytes },
    };
    let head = &bytes[..bytes.len().min(1029)];
    let seems_other = bytes.starts_with(b"\xef\xbb\xbf")
        || bytes.starts_with(b"{\\rtf")
        || bytes.starts_with(b"%!PS")
        || head.windows(5).any(|at| at == b"%PDF-")
        || is_markdown && (bytes.starts_with(b"---") || bytes.starts_with(b"+++"))
        || bytes.contains(&0);
    match if seems_other { Err(bytes) } else { String::from_utf8(bytes).map_err(|error| error.into_bytes()) }
    {
        Ok(text) => {
            let content_type = if is_markdown { "text/markdown" } else { "text/plain" };
            Content::Text { content_type, title: None, text }
        }
        Err(bytes) => Content::File { name, bytes },
    }
}

/// The endings of formats that kb reads, and whose files are not text.
const BINARY: &str = "pdf docx docm dotx dotm xlsx xlsm xltx xltm xls xlt pptx ppsx potx pptm odt ott odm ods ots odp otp epub \
                      eml mbox mbx";
/// The endings of those whose files are text, which may be in an encoding with NUL bytes.
const TEXT: &str = "txt text log md markdown mdx qmd html htm xhtml rtf csv tsv tab json jsonld geojson jsonl ndjson yaml yml xml \
                    rss atom vtt srt rst rest adoc asciidoc";

/// Whether a file is of a format that kb does not read: its name ends like none of those, and it is not text.
fn is_foreign(name: &str, bytes: &[u8]) -> bool {
    let extension = extension(name);
    let is_known = BINARY.split(' ').chain(TEXT.split(' ')).any(|known| known == extension);
    let is_utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    !is_known && !is_utf16 && !bytes.starts_with(b"%PDF-") && bytes[..bytes.len().min(8192)].contains(&0)
}

/// The ending of a name, in lower case.
fn extension(name: &str) -> String {
    name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default()
}

/// The hash that kb.documents has of a document (`NewDocument::hash` in src/documents). If a server has
/// another one, everything is sent, and the server says what is unchanged.
pub fn content_hash(content: &Content) -> [u8; 32] {
    match content {
        Content::Text { content_type, text, .. } => {
            let mut hasher = blake3::Hasher::new();
            hasher.update(content_type.as_bytes()).update(&[0]).update(text.as_bytes());
            *hasher.finalize().as_bytes()
        }
        Content::File { name, bytes } => *file_hasher(name).update(bytes).finalize().as_bytes(),
        // What was read of it is not kept: the caller computes it.
        Content::Large { .. } => [0; 32],
    }
}

/// The hash of a file whose bytes follow.
fn file_hasher(name: &str) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"application/octet-stream").update(&[0]).update(name.as_bytes()).update(&[0]);
    hasher
}
