//! Extracts plain text, which is kept as it is.

use super::Extracted;

pub fn extract(text: String) -> Extracted {
    Extracted { text, title: None, marks: Vec::new() }
}
