//! Paragraphs, then lines, sentences, words, characters: the largest that fits (text-splitter).

use super::sizer::WindowSizer;
use crate::error::{Error, Result};
use crate::model::Chunking;
use std::ops::Range;
use text_splitter::{ChunkConfig, ChunkSizer, TextSplitter};

/// Cuts one window; byte ranges within it.
pub fn cut(window: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Vec<Range<usize>>> {
    let splitter = TextSplitter::new(config(chunking.size, chunking.overlap, sizer)?);
    Ok(splitter.chunk_indices(window).map(|(start, part)| start..start + part.len()).collect())
}

/// text-splitter's setting for a size, an overlap and a sizer.
pub fn config<S: ChunkSizer>(size: usize, overlap: usize, sizer: S) -> Result<ChunkConfig<S>> {
    ChunkConfig::new(size)
        .with_sizer(sizer)
        .with_overlap(overlap)
        .map_err(|e| Error::Argument { argument: "chunking", problem: e.to_string() })
}
