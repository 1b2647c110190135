//! Builds a segment from encoded chunks and tombstones.

use super::corrupt::Corrupt;
use super::page_writer::{Page, Writer};
use super::postings::Posting;
use super::score::Totals;
use super::terms::{Decoder, SHORT, key, term_of};
use foldhash::HashMap;

/// Collects chunks in memory, with 12 bytes per term of a chunk besides the distinct terms themselves.
#[derive(Default)]
pub struct Builder {
    /// Short terms, which are their own keys, so that a look-up reads only the memory of the table.
    short_terms: HashMap<u128, u32>,
    long_terms: HashMap<Vec<u8>, u32>,
    /// The number of tombstones that have a term, by the number of the term.
    tombstones: Vec<u32>,
    /// In the order of the chunks.
    postings: Vec<Unsorted>,
    /// By chunk.
    lengths: Vec<u32>,
    totals: Totals,
}

#[derive(Default, Clone, Copy)]
struct Unsorted {
    term: u32,
    chunk: u32,
    frequency: u32,
}

impl Builder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of the chunk, counted from 0. After an error the builder must not be used any more.
    pub fn add_chunk(&mut self, encoded: &[u8]) -> Result<u32, Corrupt> {
        let chunk =
            u32::try_from(self.lengths.len()).map_err(|_| Corrupt("a segment has too many chunks"))?;
        let mut decoder = Decoder::new(encoded)?;
        self.lengths.push(decoder.length());
        self.totals.chunks += 1;
        self.totals.sum_length += i64::from(decoder.length());
        while let Some((term, frequency)) = decoder.next_term()? {
            let term = self.number(term);
            self.postings.push(Unsorted { term, chunk, frequency });
        }
        Ok(chunk)
    }

    /// After an error the builder must not be used any more.
    pub fn add_tombstone(&mut self, encoded: &[u8]) -> Result<(), Corrupt> {
        let mut decoder = Decoder::new(encoded)?;
        self.totals.chunks -= 1;
        self.totals.sum_length -= i64::from(decoder.length());
        while let Some((term, _)) = decoder.next_term()? {
            let term = self.number(term);
            self.tombstones[term as usize] += 1;
        }
        Ok(())
    }

    /// Passes the pages to `sink` in order.
    pub fn finish<E: From<Corrupt>>(self, sink: impl FnMut(Page) -> Result<(), E>) -> Result<Totals, E> {
        // Counting sort by term, which keeps the order of the chunks.
        let mut counts = vec![0; self.tombstones.len()];
        self.postings.iter().for_each(|posting| counts[posting.term as usize] += 1);
        let mut ends: Vec<usize> = Vec::with_capacity(counts.len());
        let mut start = 0;
        for count in &counts {
            ends.push(start);
            start += count;
        }
        let mut sorted = vec![Unsorted::default(); self.postings.len()];
        for posting in &self.postings {
            let end = &mut ends[posting.term as usize];
            sorted[*end] = *posting;
            *end += 1;
        }
        let short = self.short_terms.into_iter().map(|(key, number)| (key, Vec::new(), number as usize));
        let long = self.long_terms.into_iter().map(|(term, number)| (key(&term), term, number as usize));
        let mut terms: Vec<(u128, Vec<u8>, usize)> = short.chain(long).collect();
        terms.sort_unstable();
        let mut writer = Writer::new(sink);
        for (key, long, number) in &terms {
            let bytes = key.to_be_bytes();
            let term = if long.is_empty() { term_of(&bytes) } else { long.as_slice() };
            let (count, end) = (counts[*number], ends[*number]);
            writer.begin(term, count as i64 - i64::from(self.tombstones[*number]))?;
            for &Unsorted { chunk, frequency, .. } in &sorted[end - count..end] {
                writer.push(Posting { chunk, frequency, length: self.lengths[chunk as usize] })?;
            }
            writer.end()?;
        }
        writer.finish()?;
        Ok(self.totals)
    }

    fn number(&mut self, term: &[u8]) -> u32 {
        let next = self.tombstones.len() as u32;
        let number = if term.len() <= SHORT {
            *self.short_terms.entry(key(term)).or_insert(next)
        } else if let Some(number) = self.long_terms.get(term) {
            *number
        } else {
            self.long_terms.insert(term.to_vec(), next);
            next
        };
        if number == next {
            self.tombstones.push(0);
        }
        number
    }
}
