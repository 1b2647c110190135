//! Headings, blocks, then as recursive: Markdown's own structure first (text-splitter).

use super::recursive::config;
use super::sizer::WindowSizer;
use crate::error::Result;
use crate::model::Chunking;
use std::ops::Range;
use text_splitter::MarkdownSplitter;

/// Cuts one window; byte ranges within it.
pub fn cut(window: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Vec<Range<usize>>> {
    let splitter = MarkdownSplitter::new(config(chunking.size, chunking.overlap, sizer)?);
    Ok(splitter.chunk_indices(window).map(|(start, part)| start..start + part.len()).collect())
}
