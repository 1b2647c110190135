//! Turns a file of a foreign format into text. Each format has a file in `formats`, and a line in the table
//! of `formats/mod.rs`.
//!
//! This runs in the program kb-extract only, never in a process of PostgreSQL, because libraries that read
//! foreign formats crash, hang, and use up memory when a file is hostile.

#![forbid(unsafe_code)]

mod charset;
mod detect;
mod formats;
mod sections;

use kb_types::extraction::{Extraction, Fault, File};
use serde_json::Value;

/// Finds the text of a file. Its type is what its bytes show, else what is claimed, else what its name says.
/// If the bytes contradict the claim, the metadata has both (`content_type_claimed`).
pub fn extract(file: &File) -> Result<Extraction, Fault> {
    let found = detect::detect(file)?;
    let mut extraction = (found.format.read)(file)?;
    extraction.content_type = found.content_type;
    if extraction.text.contains(['\r', '\0', '\u{feff}']) {
        return Err(Fault::Broken("its text contains characters that cannot be stored".into()));
    }
    if extraction.text.len() > file.max_text {
        return Err(Fault::TooLarge(format!("it has more than {} bytes of text", file.max_text)));
    }
    if let Some(claimed) = found.claimed {
        extraction.metadata.insert("content_type_claimed".into(), Value::String(claimed));
    }
    Ok(extraction)
}
