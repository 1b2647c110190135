//! Plain text and HTML: their text is decoded and kept as it is, because kb reads these formats itself.

use super::Format;
use crate::charset;
use kb_types::extraction::{Extraction, Fault, File};

pub const PLAIN: Format = Format {
    content_types: &["text/plain"],
    extensions: &["txt", "text", "log"],
    is_text: true,
    read: |file| read(file, "text/plain"),
};

pub const HTML: Format = Format {
    content_types: &["text/html", "application/xhtml+xml"],
    extensions: &["html", "htm", "xhtml"],
    is_text: true,
    read: |file| read(file, "text/html"),
};

fn read(file: &File, text_type: &str) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    Ok(Extraction {
        text_type: text_type.into(),
        metadata: decoded.metadata(),
        text: decoded.text,
        ..Extraction::default()
    })
}
