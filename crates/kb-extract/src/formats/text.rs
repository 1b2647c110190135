//! Plain text and HTML: their text is decoded and kept as it is, because kb reads these formats itself. Of a
//! page, only the article is kept where that is wanted.

use super::{Format, main_content};
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
    read: |file| {
        let mut page = read(file, "text/html")?;
        if file.reading.main_content {
            main_content::keep(&mut page);
        }
        Ok(page)
    },
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
