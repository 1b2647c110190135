//! The whole text is one chunk.

use std::ops::Range;

/// The text without the white space around it; nothing when there is nothing else.
pub fn cut(text: &str) -> Vec<Range<usize>> {
    super::trim(text, 0..text.len()).into_iter().collect()
}
