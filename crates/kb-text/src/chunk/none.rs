//! Strategy none: the whole text is one chunk.

use std::ops::Range;

/// The text without the white space around it, or nothing where it is blank.
pub fn cut(text: &str) -> Vec<Range<usize>> {
    super::trim(text, 0..text.len()).into_iter().collect()
}
