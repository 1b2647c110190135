//! Turns a file of a foreign format into text. Each format has a file in `formats`, and a line in the table
//! of `formats/mod.rs`.
//!
//! This runs in the program kb-extract only, never in a process of PostgreSQL, because libraries that read
//! foreign formats crash, hang, and use up memory when a file is hostile.

#![forbid(unsafe_code)]

mod charset;
mod detect;
mod formats;
pub mod git;
mod sections;

use kb_types::extraction::{Extraction, Fault, File};
use kb_types::sizes;
use serde_json::Value;

/// The most files within a file.
const PARTS: usize = 10_000;
/// How much of what a file says of itself becomes metadata.
const METADATA_KEYS: usize = 64;
const METADATA_BYTES: usize = 2_000;

/// An entry of metadata, of which texts and lists are cut.
fn short((key, value): (String, Value)) -> (String, Value) {
    let value = match value {
        Value::String(text) => Value::String(sizes::cut(&text, METADATA_BYTES).replace('\0', "")),
        // JSON in the database has no NUL.
        value if value.to_string().len() > METADATA_BYTES || value.to_string().contains("\\u0000") => {
            Value::Null
        }
        value => value,
    };
    (sizes::cut(&key, METADATA_BYTES).replace('\0', ""), value)
}

/// Finds the text of a file. Its type is what its bytes show, else what is claimed, else what its name says.
/// If the bytes contradict the claim, the metadata has both (`content_type_claimed`).
pub fn extract(file: &File) -> Result<Extraction, Fault> {
    extract_owned(file.clone())
}

/// The same for a file that is not needed any more, of which a reader may do without a copy.
pub fn extract_owned(mut file: File) -> Result<Extraction, Fault> {
    let found = detect::detect(&file)?;
    if file.max_text == 0 {
        return Ok(Extraction { content_type: found.content_type, ..Extraction::default() });
    }
    let mut extraction = if found.format.extensions == formats::pdf::PDF.extensions {
        formats::pdf::read_bytes(std::mem::take(&mut file.bytes), file.max_text)?
    } else {
        (found.format.read)(&file)?
    };
    extraction.content_type = found.content_type;
    if extraction.text.contains(['\r', '\0', '\u{feff}']) {
        return Err(Fault::Broken("its text contains characters that cannot be stored".into()));
    }
    if extraction.text.len() > file.max_text {
        return Err(Fault::TooLarge(format!("it has more than {} bytes of text", file.max_text)));
    }
    if extraction.parts.len() > PARTS {
        return Err(Fault::TooLarge(format!("it contains more than {PARTS} files")));
    }
    extraction.metadata = extraction.metadata.into_iter().take(METADATA_KEYS).map(short).collect();
    if let Some(claimed) = found.claimed {
        extraction.metadata.insert("content_type_claimed".into(), Value::String(claimed));
    }
    Ok(extraction)
}
