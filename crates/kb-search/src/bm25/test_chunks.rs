//! Random chunks for the tests, and the expected results, computed without an index.

use super::build::Builder;
use super::corrupt::Corrupt;
use super::merge::{Source, merge};
use super::page::{List, find};
use super::page_writer::{PAGE_SIZE, Page, ROW_SIZE};
use super::postings::{Columns, Posting, PostingBlocks};
use super::renumbering::DEAD;
use super::score::{Scorer, Totals};
use super::search::{TermQuery, search};
use super::terms::Terms;
use super::top::{ScoredChunk, Top};
use fastrand::Rng;
use std::collections::BTreeMap;

pub trait Log {
    /// A number from 1 to `most`; small ones are as likely as large ones.
    fn log(&mut self, most: f64) -> f64;
}

impl Log for Rng {
    fn log(&mut self, most: f64) -> f64 {
        most.powf(self.f64())
    }
}

/// The word of a rank. One of 40 words has the greatest length.
pub fn word(rank: usize) -> Vec<u8> {
    let name = format!("{}{rank}", (b'a' + (rank % 7) as u8) as char);
    let length = if rank % 40 == 39 { 2046 } else { name.len() };
    name.bytes().chain(std::iter::repeat_n(b'x', length)).take(length).collect()
}

/// A chunk over a vocabulary in which the frequency of a word falls with its rank. Every chunk has word 0.
pub fn random_terms(random: &mut Rng, vocabulary: usize) -> Terms {
    let count = random.usize(..40);
    let words = (0..count).map(|_| {
        let rank = random.log(vocabulary as f64) as usize - 1;
        let frequency = if random.usize(..50) == 0 { random.log(1e5) as u32 } else { 1 };
        (word(rank), frequency)
    });
    let words: Vec<_> = words.chain([(word(0), 1)]).collect();
    let long = (random.usize(..300) == 0).then(|| (b"long".to_vec(), random.log(1e7) as u32));
    Terms::new(words.into_iter().chain(long))
}

/// A segment: its pages, its totals, and the test's own number of each of its chunks.
#[derive(Clone, Default)]
pub struct TestSegment {
    pub pages: Vec<Page>,
    pub totals: Totals,
    pub chunks: Vec<usize>,
}

pub fn check_pages(pages: &[Page]) {
    for page in pages {
        assert!(page.bytes.len() <= PAGE_SIZE && page.bytes.len() + page.first_term.len() <= ROW_SIZE);
    }
    assert!(pages.is_sorted_by(|a, b| a.first_term <= b.first_term));
}

pub fn build<'a>(
    chunks: impl IntoIterator<Item = (usize, &'a Terms)>,
    tombstones: impl IntoIterator<Item = &'a Terms>,
) -> TestSegment {
    let (mut builder, mut segment) = (Builder::new(), TestSegment::default());
    for (id, terms) in chunks {
        assert_eq!(builder.add_chunk(&terms.encode()).unwrap() as usize, segment.chunks.len());
        segment.chunks.push(id);
    }
    for terms in tombstones {
        builder.add_tombstone(&terms.encode()).unwrap();
    }
    let keep = |page| {
        segment.pages.push(page);
        Ok::<_, Corrupt>(())
    };
    segment.totals = builder.finish(keep).unwrap();
    check_pages(&segment.pages);
    segment
}

/// Merges segments. Chunks for which `is_dead` is true get no new number.
pub fn merge_segments(segments: &[TestSegment], is_dead: impl Fn(usize) -> bool) -> TestSegment {
    let mut merged = TestSegment::default();
    let mut numbers = Vec::new();
    for segment in segments {
        merged.totals += segment.totals;
        let mut renumber = |id: &usize| {
            if is_dead(*id) {
                return DEAD;
            }
            merged.chunks.push(*id);
            merged.chunks.len() as u32 - 1
        };
        numbers.push(segment.chunks.iter().map(&mut renumber).collect::<Vec<_>>());
    }
    let sources = segments.iter().zip(&numbers).map(|(segment, numbers)| {
        let mut pages = segment.pages.iter();
        Source { pages: move || Ok(pages.next().map(|page| page.bytes.clone())), numbers }
    });
    let keep = |page| {
        merged.pages.push(page);
        Ok::<_, Corrupt>(())
    };
    merge(sources.collect(), keep).unwrap();
    check_pages(&merged.pages);
    merged
}

/// The pages that a caller selects for a term; see `find`.
pub fn pages_of<'a>(pages: &'a [Page], term: &[u8]) -> Vec<&'a [u8]> {
    let own: Vec<&[u8]> = pages.iter().filter(|p| p.first_term == term).map(|p| p.bytes.as_slice()).collect();
    let before = pages.iter().rfind(|p| p.first_term.as_slice() < term).map(|p| p.bytes.as_slice());
    if own.is_empty() { before.into_iter().collect() } else { own }
}

pub fn list_of<'a>(pages: &'a [Page], term: &[u8]) -> List<'a> {
    find(term, &pages_of(pages, term)).unwrap().unwrap_or_default()
}

pub fn postings_of(list: &List) -> Result<Vec<Posting>, Corrupt> {
    let (mut columns, mut postings) = (Columns::default(), Vec::new());
    for part in &list.parts {
        let mut blocks = PostingBlocks::new(*part)?;
        while let Some(block) = blocks.next_block()? {
            block.unpack_chunks(&mut columns)?;
            block.unpack_weights(&mut columns)?;
            postings.extend((0..columns.count).map(|at| columns.get(at)));
        }
    }
    Ok(postings)
}

/// Computes the scores of all chunks from every posting. `search` must find the same without reading all of
/// them.
pub fn search_all(question: &TermQuery, lists: &[List], segment: u32, top: &mut Top) {
    let mut chunks: BTreeMap<u32, (u32, Vec<u32>)> = BTreeMap::new();
    for (i, list) in lists.iter().enumerate() {
        for posting in postings_of(list).unwrap() {
            let empty = || (posting.length, vec![0; lists.len()]);
            chunks.entry(posting.chunk).or_insert_with(empty).1[i] = posting.frequency;
        }
    }
    for (chunk, (length, frequencies)) in chunks {
        let has = |i: &usize| frequencies[*i] > 0;
        if question.required.iter().all(has) && !question.excluded.iter().any(has) {
            top.offer(ScoredChunk { score: question.scorer.score(length, &frequencies), segment, chunk });
        }
    }
}

/// Searches segments in the given order in both ways, and compares the results.
pub fn search_and_compare(question: &TermQuery, segments: &[(u32, Vec<List>)], k: usize) -> Vec<ScoredChunk> {
    let (mut top, mut all) = (Top::new(k), Top::new(k));
    for (number, lists) in segments {
        search(question, lists, *number, &mut top).unwrap();
        search_all(question, lists, *number, &mut all);
    }
    let hits = top.into_hits();
    assert_eq!(hits, all.into_hits(), "k {k}, {:?}", question.scorer);
    hits
}

/// The formula as it is printed.
pub fn naive_score(k1: f64, b: f64, average: f64, length: f64, terms: &[(f64, f64)]) -> f64 {
    let part =
        |(weight, f): &(f64, f64)| weight * f * (k1 + 1.0) / (f + k1 * (1.0 - b + b * length / average));
    terms.iter().filter(|(_, f)| *f > 0.0).map(part).sum()
}

pub fn naive_idf(df: i64, chunks: i64) -> f64 {
    (1.0 + (chunks as f64 - df as f64 + 0.5) / (df as f64 + 0.5)).ln()
}

/// Ascending postings with random gaps, most of them small and some huge.
pub fn random_postings(random: &mut Rng, count: usize, gap: f64) -> Vec<Posting> {
    let mut chunk = random.usize(..5) as u64;
    let mut postings = Vec::new();
    while postings.len() < count && chunk < u64::from(u32::MAX) {
        let frequency =
            if random.usize(..20) == 0 { random.log(1e5) as u32 } else { 1 + random.usize(..3) as u32 };
        let length = frequency + random.log(1e7) as u32;
        postings.push(Posting { chunk: chunk as u32, frequency, length });
        chunk += random.log(gap) as u64;
    }
    postings
}

/// The pages of the given lists. The df is the number of postings.
pub fn write(lists: &BTreeMap<Vec<u8>, Vec<Posting>>) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut writer = super::page_writer::Writer::new(|page| {
        pages.push(page);
        Ok::<_, Corrupt>(())
    });
    for (term, postings) in lists {
        writer.begin(term, postings.len() as i64).unwrap();
        postings.iter().for_each(|p| writer.push(*p).unwrap());
        writer.end().unwrap();
    }
    writer.finish().unwrap();
    check_pages(&pages);
    pages
}

/// A scorer for tests that are not about statistics.
pub fn scorer(k1: f64, b: f64, weights: &[f64]) -> Scorer {
    let parameters = super::score::Parameters::new(k1, b).unwrap();
    Scorer::new(parameters, Totals { chunks: 1000, sum_length: 150_000 }, weights)
}
