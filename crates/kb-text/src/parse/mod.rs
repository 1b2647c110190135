//! Extracts the text of a document: content types and decoding. Each format has a file.

mod html;
mod markdown;
mod pages;
mod plain;

pub use pages::join;

use kb_types::error::{Error, Result};
use kb_types::extraction::Extraction;
use kb_types::{Bounds, Marked, Preprocess, sizes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    Plain,
    Markdown,
    Html,
    /// A table: a row for each record, and first the names of the columns.
    Csv,
}

impl ContentType {
    /// The media type's name.
    pub fn name(self) -> &'static str {
        match self {
            ContentType::Plain => "text/plain",
            ContentType::Markdown => "text/markdown",
            ContentType::Html => "text/html",
            ContentType::Csv => "text/csv",
        }
    }

    /// Reads a media type. Case and parameters ("; charset=utf-8") are ignored.
    pub fn parse(name: &str) -> Option<ContentType> {
        let essence = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/plain" => Some(ContentType::Plain),
            "text/markdown" | "text/x-markdown" => Some(ContentType::Markdown),
            "text/html" | "application/xhtml+xml" => Some(ContentType::Html),
            "text/csv" => Some(ContentType::Csv),
            _ => None,
        }
    }

    /// The type by the extension of a file name, path or URI. Query and fragment are ignored.
    pub fn from_extension(name: &str) -> Option<ContentType> {
        let path = name.split(['?', '#']).next().unwrap_or_default();
        let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
        let (_, extension) = file.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "txt" => Some(ContentType::Plain),
            "md" | "markdown" => Some(ContentType::Markdown),
            "html" | "htm" | "xhtml" => Some(ContentType::Html),
            "csv" => Some(ContentType::Csv),
            _ => None,
        }
    }

    /// The type by the beginning of the text. Only whole HTML documents are recognised.
    pub fn sniff(text: &str) -> ContentType {
        let mut start = text.trim_start_matches('\u{feff}').trim_start();
        // Where something that may precede the first tag of a document ends.
        let end = |start: &str| match start {
            comment if comment.starts_with("<!--") => comment.find("-->").map(|at| at + 3),
            instruction if instruction.starts_with("<?") => instruction.find('>').map(|at| at + 1),
            _ => None,
        };
        while let Some(end) = end(start) {
            start = start[end..].trim_start();
        }
        let begins = |tag: &str| start.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag));
        if begins("<!doctype html") || begins("<html") { ContentType::Html } else { ContentType::Plain }
    }

    /// The type of a document: the given one, or else by the extension of its URI or external id, or else by
    /// its text.
    pub fn detect(
        content_type: Option<&str>,
        external_id: &str,
        uri: Option<&str>,
        text: &str,
    ) -> Result<ContentType> {
        if let Some(given) = content_type.filter(|given| !given.trim().is_empty()) {
            return ContentType::parse(given).ok_or_else(|| Error::ContentType {
                external_id: external_id.to_string(),
                content_type: given.to_string(),
            });
        }
        let by_name =
            ContentType::from_extension(external_id).or_else(|| uri.and_then(ContentType::from_extension));
        if let Some(found) = by_name {
            return Ok(found);
        }
        // A binary file format that is put as if it were text would be indexed as noise.
        let foreign = [Some(external_id), uri].into_iter().flatten().find_map(foreign_extension);
        match foreign.or_else(|| text.trim_start().starts_with("%PDF-").then(|| "pdf".to_string())) {
            Some(extension) => {
                Err(Error::ContentType { external_id: external_id.to_string(), content_type: extension })
            }
            None => Ok(ContentType::sniff(text)),
        }
    }
}

/// The extension of a name, if it belongs to a format that is not text.
fn foreign_extension(name: &str) -> Option<String> {
    const FOREIGN: [&str; 20] = [
        "pdf", "doc", "docx", "odt", "rtf", "xls", "xlsx", "ods", "ppt", "pptx", "odp", "epub", "zip", "gz",
        "png", "jpg", "jpeg", "gif", "mp3", "mp4",
    ];
    let (_, extension) = name.split(['?', '#']).next()?.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    FOREIGN.contains(&extension.as_str()).then_some(extension)
}

/// The extracted text of a document, ready to be split into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// Lines end with \n.
    pub text: String,
    pub title: Option<String>,
    /// The marks in `text`, such as the headings of Markdown.
    pub marks: Vec<Marked>,
}

/// Extracts the text of a document as it was put. Errors: those of [`extract`], and [`Error::Argument`] for
/// bytes that are not UTF-8.
pub fn extract_bytes(
    original: &[u8],
    content_type: ContentType,
    preprocess: &Preprocess,
    bounds: &Bounds,
) -> Result<Extracted> {
    let text = std::str::from_utf8(original).map_err(|e| Error::Argument {
        argument: "content",
        problem: format!("not valid UTF-8 at byte {}", e.valid_up_to()),
    })?;
    extract(text, content_type, preprocess, bounds)
}

/// Extracts the text of a document. HTML becomes Markdown unless `preprocess.remove_html` is off. Errors:
/// [`Error::Argument`], for HTML that is nested too deep and similar faults, and [`Error::Limit`]. The caller
/// adds the name of the document ([`Error::of_document`]).
pub fn extract(
    text: &str,
    content_type: ContentType,
    preprocess: &Preprocess,
    bounds: &Bounds,
) -> Result<Extracted> {
    bounds.spend(text.len())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.into() };
    let extracted = match content_type {
        ContentType::Plain | ContentType::Csv => plain::extract(text),
        ContentType::Markdown => markdown::extract(text, bounds)?,
        ContentType::Html if preprocess.remove_html => html::extract(&text, bounds)?,
        ContentType::Html => Extracted { title: html::title(&text, bounds)?, text, marks: Vec::new() },
    };
    bounds.check_bytes(extracted.text.len())?;
    let title = extracted.title.map(|title| sizes::cut(&title, sizes::TITLE).to_string());
    Ok(Extracted { title, ..extracted })
}

/// Extracts the text of a document that was put as a file, from what kb-extract has found in the file.
/// Errors: those of [`extract`].
pub fn extract_file(extraction: &Extraction, preprocess: &Preprocess, bounds: &Bounds) -> Result<Extracted> {
    let content_type = ContentType::parse(&extraction.text_type).ok_or_else(|| Error::Extractor {
        problem: format!("has found text of type \"{}\"", extraction.text_type),
    })?;
    let mut extracted = extract(&extraction.text, content_type, preprocess, bounds)?;
    // Marks are places in the text, which only HTML does not keep.
    if content_type != ContentType::Html {
        extracted.marks.extend(extraction.marks.iter().cloned());
        extracted.marks.sort_by_key(|marked| marked.offset);
    }
    if let Some(title) = &extraction.title {
        extracted.title = Some(sizes::cut(title, sizes::TITLE).to_string());
    }
    Ok(extracted)
}

/// Decodes bytes as UTF-8 without a byte order mark, and refuses what PostgreSQL cannot store.
pub fn decode(bytes: &[u8], external_id: &str) -> Result<String> {
    let fault = |problem| Error::Document { external_id: external_id.to_string(), problem };
    let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let text = std::str::from_utf8(&bytes[start..]).map_err(|e| {
        fault(format!("not valid UTF-8 at byte {}; convert it to UTF-8 first", start + e.valid_up_to()))
    })?;
    match text.find('\0') {
        Some(at) => Err(fault(format!("NUL at byte {}: this is not text", start + at))),
        None => Ok(text.to_string()),
    }
}

/// Translates character offsets in the text that [`extract`] makes of plain text or Markdown into offsets in
/// the given text.
pub struct Places {
    /// The characters of a byte order mark.
    characters_before: usize,
    /// The offsets of line ends in the extracted text that were two characters.
    pairs: Vec<usize>,
}

impl Places {
    pub fn of(given: &str) -> Places {
        let characters_before = usize::from(given.starts_with('\u{feff}'));
        let mut pairs = Vec::new();
        let mut characters = given.chars().skip(characters_before).peekable();
        let mut at = 0;
        while let Some(c) = characters.next() {
            match c == '\r' && characters.peek() == Some(&'\n') {
                true => pairs.push(at),
                false => at += 1,
            }
        }
        Places { characters_before, pairs }
    }

    /// The offset of a character of the extracted text in the given text.
    pub fn as_given(&self, at: usize) -> usize {
        self.characters_before + at + self.pairs.partition_point(|pair| *pair < at)
    }
}

/// Refuses what cannot be stored as a document: more than `max_size` bytes, or NUL. A document without text
/// is valid and has no chunks, because whether HTML contains text is only known once it is parsed, and the
/// caller's transaction does not wait for that.
pub fn check(text: &str, external_id: &str, max_size: usize) -> Result<()> {
    let fault = |problem| Err(Error::Document { external_id: external_id.to_string(), problem });
    if text.len() > max_size {
        let external_id = external_id.to_string();
        return Err(Error::DocumentTooLarge { external_id, size: text.len(), limit: max_size });
    }
    match text.find('\0') {
        Some(at) => fault(format!("NUL at byte {at}: this is not text")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_read_whatever_their_case_and_parameters() {
        assert_eq!(ContentType::parse("Text/HTML; charset=UTF-8"), Some(ContentType::Html));
        assert_eq!(ContentType::parse("application/xhtml+xml"), Some(ContentType::Html));
        assert_eq!(ContentType::parse("text/x-markdown"), Some(ContentType::Markdown));
        assert_eq!(ContentType::parse("application/pdf"), None);
        for t in [ContentType::Plain, ContentType::Markdown, ContentType::Html, ContentType::Csv] {
            assert_eq!(ContentType::parse(t.name()), Some(t));
        }
    }

    #[test]
    fn the_type_is_the_given_one_then_by_extension_then_by_text() {
        let detect = |given, id, uri, text| ContentType::detect(given, id, uri, text).unwrap();
        assert_eq!(detect(Some("text/plain"), "a.html", None, "<html>"), ContentType::Plain);
        assert_eq!(detect(None, "a.MD", None, "<html>"), ContentType::Markdown);
        assert_eq!(detect(None, "17", Some("https://x.org/a.htm?b=c.txt#d.md"), "x"), ContentType::Html);
        assert_eq!(
            detect(None, "17", Some("https://example.md"), " <!DOCTYPE HTML><p>"),
            ContentType::Markdown
        );
        assert_eq!(
            detect(None, "17", None, "\n<?xml version='1.0'?><!-- x --><HTML lang=en>"),
            ContentType::Html
        );
        assert_eq!(detect(None, "17", None, "<!-- a > b --><html>"), ContentType::Html);
        assert_eq!(detect(None, "v1.2/notes", None, "<p>a"), ContentType::Plain);
        assert_eq!(detect(None, "prices.CSV", None, "a,b"), ContentType::Csv);
        let refused = ContentType::detect(Some("application/pdf"), "a.txt", None, "x").unwrap_err();
        assert_eq!(refused.sqlstate(), "0A000");
    }

    #[test]
    fn line_ends_and_byte_order_marks_are_normalised() {
        for (t, expected) in [(ContentType::Plain, "a\nb\nc"), (ContentType::Markdown, "a\nb\nc")] {
            assert_eq!(
                extract("\u{feff}a\r\nb\rc", t, &Preprocess::default(), &Bounds::none()).unwrap().text,
                expected
            );
        }
        assert_eq!(decode(b"\xef\xbb\xbfhi", "d").unwrap(), "hi");
    }

    #[test]
    fn offsets_are_translated_to_the_given_text_with_its_line_ends() {
        let given = "\u{feff}é\r\n\r\nb\rc\n\r\nd\r";
        let text = extract(given, ContentType::Plain, &Preprocess::default(), &Bounds::none()).unwrap().text;
        let places = Places::of(given);
        let given: Vec<char> = given.chars().collect();
        for (at, c) in text.chars().enumerate() {
            let found = given[places.as_given(at)];
            assert!(found == c || (c == '\n' && found == '\r'), "{at}: {found:?} for {c:?}");
        }
        assert_eq!(places.as_given(text.chars().count()), given.len());
    }

    #[test]
    fn bytes_that_are_not_text_are_refused_with_their_place() {
        let message = |bytes: &[u8]| decode(bytes, "d").unwrap_err().to_string();
        assert!(message(b"abc\xff").contains("\"d\": not valid UTF-8 at byte 3"), "{}", message(b"abc\xff"));
        assert!(message(b"\xef\xbb\xbfab\0").contains("NUL at byte 5"));
        assert!(matches!(check("12345678901", "d", 10), Err(Error::DocumentTooLarge { size: 11, .. })));
        assert!(check("a\0", "d", 10).is_err());
        assert!(check("1234567890", "d", 10).is_ok());
    }

    #[test]
    fn html_is_kept_as_it_is_on_request() {
        let keep = Preprocess { remove_html: false, ..Preprocess::default() };
        let source = "<title>T &amp; U</title>\n<p>a_b</p>";
        let extracted = extract(source, ContentType::Html, &keep, &Bounds::none()).unwrap();
        assert_eq!((extracted.text.as_str(), extracted.marks), (source, vec![]));
        assert_eq!(extracted.title.as_deref(), Some("T & U"));
    }
}
