//! Paragraphs, then lines, sentences, words, characters: the largest that fits (text-splitter).

use super::sizer::WindowSizer;
use crate::error::{Error, Result};
use crate::model::Chunking;
use std::ops::Range;
use text_splitter::{ChunkConfig, TextSplitter, TryChunkSizer};

/// Chunks in a row that reach no further than one before, at most. With overlap the splitter goes back over parts, and
/// if the next part does not fit behind them, or has no size, it goes forward again a part at a time, each time at
/// the cost of a chunk.
const STALLED: usize = 16;

/// What was made of a window.
#[derive(Debug, Default)]
pub struct Cut {
    /// Byte ranges within it.
    pub ranges: Vec<Range<usize>>,
    /// Where the rest begins, that must be cut by itself.
    pub rest: Option<usize>,
}

/// Cuts one window.
pub fn cut(window: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Cut> {
    let splitter = TextSplitter::new(config(chunking.size, chunking.overlap, sizer)?);
    collect(splitter.try_chunk_indices(window), window, sizer)
}

/// Takes chunks as the splitter makes them, until it no longer comes forward.
pub fn collect<'a>(
    chunks: impl Iterator<Item = Result<(usize, &'a str)>>,
    window: &str,
    sizer: &WindowSizer,
) -> Result<Cut> {
    let mut cut = Cut::default();
    let (mut reached, mut stalled) = (0, 0);
    for chunk in chunks {
        let (start, part) = chunk?;
        // The splitter goes through all that is left of the window, for every chunk.
        sizer.bounds.spend((window.len() - start) / 64)?;
        let end = start + part.len();
        if end > reached {
            (reached, stalled) = (end, 0);
        } else {
            stalled += 1;
            if stalled == STALLED && reached > 0 {
                cut.rest = Some(reached);
                return Ok(cut);
            }
            continue;
        }
        cut.ranges.push(start..end);
        sizer.bounds.check_chunks(cut.ranges.len())?;
    }
    Ok(cut)
}

/// text-splitter's setting for a size, an overlap and a sizer.
pub fn config<S: TryChunkSizer>(size: usize, overlap: usize, sizer: S) -> Result<ChunkConfig<S>> {
    ChunkConfig::new(size)
        .with_sizer(sizer)
        .with_overlap(overlap)
        .map_err(|e| Error::Argument { argument: "chunking", problem: e.to_string() })
}
