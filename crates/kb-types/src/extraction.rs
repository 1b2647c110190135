//! What passes between the worker and the program kb-extract: a file, and the text that was found in it.
//!
//! The program writes [`VERSION`] when it is ready. Then it answers each [`Request`] with an [`Outcome`], in
//! order. Each of these is a frame: the length of its MessagePack form in four bytes, least significant byte
//! first, and that form.

use crate::marks::Marked;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::io::{self, Read, Write};

/// The version of the program, which the server and the program must agree on. It is kept with each document
/// whose text the program found.
pub const VERSION: &str = concat!("kb-extract ", env!("CARGO_PKG_VERSION"));

/// The media types by which the links of an HTML page, or of a sitemap, are asked for instead of the text.
pub const LINKS_OF_PAGE: &str = "application/x-kb-links";
pub const LINKS_OF_SITEMAP: &str = "application/x-kb-sitemap";

/// A file to be read, and the seconds of processor time that it may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub file: File,
    pub seconds: u64,
}

pub type Outcome = Result<Extraction, Fault>;

/// Writes a frame.
pub fn write_frame<T: Serialize>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let bytes = rmp_serde::to_vec_named(value).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads a frame of at most `most` bytes. Memory grows with what has arrived, not with the length that was
/// announced.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read, most: usize) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length as usize > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = Vec::new();
    if from.take(u64::from(length)).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    rmp_serde::from_slice(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// A file whose text is wanted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Its name, with or without a path.
    pub name: Option<String>,
    /// The media type that somebody claims it has, perhaps with a charset.
    pub content_type: Option<String>,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// The most bytes of text that are wanted. 0: only the type of the file is.
    pub max_text: usize,
    #[serde(default)]
    pub reading: Reading,
}

/// How a knowledge base has files read (`crate::Preprocess`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Leaves out what surrounds the article of a page in HTML.
    pub main_content: bool,
    /// Each line of JSON Lines is a file within the file.
    pub lines_apart: bool,
}

/// What was found in a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The media type that the file has.
    pub content_type: String,
    /// The media type of `text`: text/plain, text/markdown, text/html or text/csv.
    pub text_type: String,
    /// Lines end with \n, and there is no byte order mark and no NUL.
    pub text: String,
    pub title: Option<String>,
    /// What is known of the file besides its text, such as its author. Becomes metadata of the document.
    pub metadata: Map<String, Value>,
    /// Pages, slides, sheets, chapters and cues, in the order of their offsets in `text`. Headings are not
    /// among them: they are read from Markdown and HTML.
    pub marks: Vec<Marked>,
    /// Files within the file, such as the attachments of a message. They become documents of their own.
    pub parts: Vec<File>,
}

/// Why a file has no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Nothing here reads this format.
    Unsupported { content_type: String },
    /// It is encrypted, or asks for a password.
    Encrypted,
    /// It has only images of text.
    ImagesOnly,
    /// It breaks the rules of its format. What is wrong, in a few words.
    Broken(String),
    /// It has, or unpacks to, more than is allowed.
    TooLarge(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unsupported { content_type } => {
                write!(f, "files of type \"{content_type}\" cannot be read")
            }
            Fault::Encrypted => f.write_str("the file is encrypted"),
            Fault::ImagesOnly => f.write_str("the file contains images of text, but no text"),
            Fault::Broken(problem) => write!(f, "the file is broken: {problem}"),
            Fault::TooLarge(problem) => write!(f, "the file is too large: {problem}"),
        }
    }
}
