//! A position in the postings of one term, which only moves forward and unpacks blocks as late as possible.

use super::corrupt::Corrupt;
use super::page::List;
use super::postings::{BLOCK, Columns, PostingBlock, PostingBlocks};
use super::score::Scorer;

/// How many chunk numbers a search considers at a time. It must be a power of two.
pub const WINDOW: usize = 1024;

/// The scores of a window's chunks.
pub type Window = [f64; WINDOW];

#[derive(Debug, Clone, Copy)]
pub struct PartialScore {
    pub chunk: u32,
    pub score: f64,
}

struct Bounded<'a> {
    block: PostingBlock<'a>,
    /// An upper bound of what the term adds to the score of any chunk of the block.
    bound: f64,
}

/// How much of the current block is unpacked.
#[derive(PartialEq, PartialOrd)]
enum Unpacked {
    Nothing,
    Chunks,
    Weights,
    Scores,
}

pub struct Cursor<'a> {
    scorer: &'a Scorer,
    weight: f64,
    blocks: Vec<Bounded<'a>>,
    /// The current block and, once its chunks are unpacked, the current posting in it.
    at: usize,
    next: usize,
    unpacked: Unpacked,
    columns: Columns,
    scores: [f64; BLOCK],
}

impl<'a> Cursor<'a> {
    pub fn new(list: &List<'a>, scorer: &'a Scorer, weight: f64) -> Result<Self, Corrupt> {
        let mut blocks: Vec<Bounded> = Vec::new();
        for &part in &list.parts {
            let mut read = PostingBlocks::new(part)?;
            while let Some(block) = read.next_block()? {
                if blocks.last().is_some_and(|before| before.block.last >= block.lowest) {
                    return Err(Corrupt("blocks are out of order"));
                }
                let bound = scorer.upper_bound(weight, block.max_frequency, block.min_length);
                blocks.push(Bounded { block, bound });
            }
        }
        Ok(Cursor {
            scorer,
            weight,
            blocks,
            at: 0,
            next: 0,
            unpacked: Unpacked::Nothing,
            columns: Columns::default(),
            scores: [0.0; BLOCK],
        })
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Moves to the block that contains `chunk` or, if none does, to the next one.
    #[inline]
    fn move_to(&mut self, chunk: u32) {
        if self.blocks.get(self.at).is_some_and(|b| b.block.last < chunk) {
            let mut at = self.at + 1;
            // It is usually one of the next blocks.
            let near = (at + 4).min(self.blocks.len());
            while at < near && self.blocks[at].block.last < chunk {
                at += 1;
            }
            if at == near {
                at += self.blocks[at..].partition_point(|b| b.block.last < chunk);
            }
            self.enter(at);
        }
    }

    fn enter(&mut self, at: usize) {
        self.at = at;
        self.next = 0;
        self.unpacked = Unpacked::Nothing;
    }

    /// In a block that is unpacked, moves to the first posting at or after `chunk`. The block must contain
    /// one.
    #[inline]
    fn move_within(&mut self, chunk: u32) {
        let chunks = &self.columns.chunks[self.next..self.columns.count];
        if chunks.first().is_some_and(|first| *first < chunk) {
            self.next += chunks.partition_point(|c| *c < chunk);
        }
    }

    /// Moves to `chunk` and returns a lower bound of the chunks of all further postings, or None if there are
    /// none.
    pub fn floor(&mut self, chunk: u32) -> Option<u32> {
        self.move_to(chunk);
        let lowest = self.blocks.get(self.at)?.block.lowest;
        if self.unpacked == Unpacked::Nothing {
            return Some(lowest.max(chunk));
        }
        self.move_within(chunk);
        Some(self.columns.chunks[self.next])
    }

    /// After `floor`: an upper bound of what the term adds to any chunk from there to `last`, and the first
    /// chunk after `last` for which the bound may not hold.
    pub fn bound(&self, floor: u32, last: u32) -> (f64, u32) {
        let mut blocks = self.blocks[self.at..].iter();
        if floor > last {
            return (0.0, floor);
        }
        let Some(first) = blocks.next() else { return (0.0, u32::MAX) };
        let others = blocks.take_while(|b| b.block.lowest <= last);
        (others.fold(first.bound, |most, b| most.max(b.bound)), first.block.last + 1)
    }

    /// An upper bound of what the term adds to this chunk.
    #[inline]
    pub fn bound_at(&mut self, chunk: u32) -> f64 {
        self.move_to(chunk);
        self.blocks.get(self.at).filter(|b| b.block.lowest <= chunk).map_or(0.0, |b| b.bound)
    }

    /// Adds the scores of all chunks of `window`, whose first chunk is `base`, from the current posting on.
    pub fn add_to(&mut self, base: u32, window: &mut Window) -> Result<(), Corrupt> {
        let last = base.saturating_add(WINDOW as u32 - 1);
        self.take_until(base, last, |chunk, score| {
            // The remainder equals the number itself and avoids a bounds check.
            window[(chunk - base) as usize % WINDOW] += score;
        })
    }

    /// Calls back with all postings from `base` to `last` and their scores.
    pub fn take_until(
        &mut self,
        base: u32,
        last: u32,
        mut visit: impl FnMut(u32, f64),
    ) -> Result<(), Corrupt> {
        self.move_to(base);
        while let Some(Bounded { block, .. }) = self.blocks.get(self.at) {
            let (lowest, ends_inside) = (block.lowest, block.last <= last);
            if lowest > last {
                break;
            }
            self.unpack(Unpacked::Scores)?;
            self.move_within(base);
            let chunks = &self.columns.chunks[self.next..self.columns.count];
            let count = if ends_inside { chunks.len() } else { chunks.partition_point(|c| *c <= last) };
            for (chunk, score) in chunks[..count].iter().zip(&self.scores[self.next..]) {
                visit(*chunk, *score);
            }
            if ends_inside {
                self.enter(self.at + 1);
            } else {
                self.next += count;
                break;
            }
        }
        Ok(())
    }

    /// Whether the list contains the chunk.
    #[inline]
    pub fn has(&mut self, chunk: u32) -> Result<bool, Corrupt> {
        self.move_to(chunk);
        if self.blocks.get(self.at).is_none_or(|b| b.block.lowest > chunk) {
            return Ok(false);
        }
        self.unpack(Unpacked::Chunks)?;
        self.move_within(chunk);
        Ok(self.columns.chunks[self.next] == chunk)
    }

    /// What the term adds to the score of the chunk, or 0 if the list does not contain it.
    #[inline]
    pub fn score(&mut self, chunk: u32) -> Result<f64, Corrupt> {
        if !self.has(chunk)? {
            return Ok(0.0);
        }
        self.unpack(Unpacked::Weights)?;
        let found = self.columns.get(self.next);
        Ok(self.scorer.part(self.weight, found.frequency, found.length))
    }

    fn unpack(&mut self, wanted: Unpacked) -> Result<(), Corrupt> {
        if self.unpacked >= wanted {
            return Ok(());
        }
        let Some(Bounded { block, .. }) = self.blocks.get(self.at) else { return Ok(()) };
        if self.unpacked < Unpacked::Chunks {
            block.unpack_chunks(&mut self.columns)?;
        }
        if self.unpacked < Unpacked::Weights && wanted >= Unpacked::Weights {
            block.unpack_weights(&mut self.columns)?;
        }
        if wanted == Unpacked::Scores {
            let weights = self.columns.frequencies.iter().zip(&self.columns.lengths);
            for (score, (frequency, length)) in self.scores.iter_mut().zip(weights).take(block.count()) {
                *score = self.scorer.part(self.weight, *frequency, *length);
            }
        }
        self.unpacked = wanted;
        Ok(())
    }
}
