//! Strategy recursive: splits at paragraphs, then lines, sentences, words and characters, as large as fits
//! (text-splitter).

use super::sizer::WindowSizer;
use crate::chunk_settings::Chunking;
use kb_types::error::{Error, Result};
use std::ops::Range;
use text_splitter::{ChunkConfig, TextSplitter, TryChunkSizer};

/// The result of splitting a window.
#[derive(Debug, Default)]
pub struct Cut {
    /// Byte ranges within the window.
    pub ranges: Vec<Range<usize>>,
    /// Where the rest begins, if it must be split separately.
    pub rest: Option<usize>,
}

/// Splits one window.
pub fn cut(window: &str, chunking: &Chunking, sizer: &WindowSizer) -> Result<Cut> {
    let splitter = TextSplitter::new(config(chunking.size, chunking.overlap, sizer)?);
    collect(splitter.try_chunk_indices(window), window, sizer)
}

/// Collects chunks from the splitter until it makes no more progress.
pub fn collect<'a>(
    chunks: impl Iterator<Item = Result<(usize, &'a str)>>,
    window: &str,
    sizer: &WindowSizer,
) -> Result<Cut> {
    let mut cut = Cut::default();
    let mut reached = 0;
    for chunk in chunks {
        let (start, part) = match chunk {
            Err(_) if sizer.is_stalled() => {
                cut.rest = Some(reached);
                return Ok(cut);
            }
            chunk => chunk?,
        };
        // The splitter scans the rest of the window for every chunk.
        sizer.bounds.spend((window.len() - start) / 64)?;
        let end = start + part.len();
        if end <= reached {
            continue;
        }
        reached = end;
        sizer.made_chunk();
        cut.ranges.push(start..end);
        sizer.bounds.check_chunks(cut.ranges.len())?;
    }
    Ok(cut)
}

/// The configuration of text-splitter for a size, an overlap and a sizer.
pub fn config<S: TryChunkSizer>(size: usize, overlap: usize, sizer: S) -> Result<ChunkConfig<S>> {
    ChunkConfig::new(size)
        .with_sizer(sizer)
        .with_overlap(overlap)
        .map_err(|e| Error::Argument { argument: "chunking", problem: e.to_string() })
}
