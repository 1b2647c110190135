//! Strategy markdown: splits at headings and blocks first, and then like recursive (text-splitter).

use super::recursive::{Cut, collect, config};
use super::sizer::WindowSizer;
use crate::chunk_settings::Chunking;
use kb_types::error::Result;
use text_splitter::MarkdownSplitter;

/// Splits one window.
pub fn cut(window: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Cut> {
    let splitter = MarkdownSplitter::new(config(chunking.size, chunking.overlap, sizer)?);
    collect(splitter.try_chunk_indices(window), window, sizer)
}
