//! Finds the best chunks of a segment without reading all postings.
//!
//! MaxScore (Turtle and Flood, Query Evaluation: Strategies and Optimizations, 1995) with the bounds of
//! blocks (Ding and Suel, Faster Top-k Document Retrieval Using Block-Max Indexes, 2011), window by window as
//! in Lucene's MaxScoreBulkScorer. In a window, terms whose bounds together are below the score that a chunk
//! needs are not essential. A chunk that is kept contains at least one essential term, so only the postings
//! of essential terms are read, and the other terms are looked up for the chunks that can still be kept. All
//! sums of scores and bounds are exact (see `Scorer`), so comparisons are exact, too.

use super::corrupt::Corrupt;
use super::cursor::{Cursor, PartialScore, WINDOW, Window};
use super::page::List;
use super::score::Scorer;
use super::top::{ScoredChunk, Top};

/// The conditions of a question on its terms, which are indexes of the scorer's weights.
pub struct TermQuery<'a> {
    pub scorer: &'a Scorer,
    /// A chunk must contain all of these terms.
    pub required: &'a [usize],
    /// A chunk must contain none of these terms.
    pub excluded: &'a [usize],
}

/// Offers the best chunks of a segment to `top`. `lists` has a list for each weight of the scorer, in the
/// same order. A chunk without any term that has a weight is not offered. Chunks with a tombstone in another
/// segment are.
pub fn search(
    question: &TermQuery<'_>,
    lists: &[List<'_>],
    segment: u32,
    top: &mut Top,
) -> Result<(), Corrupt> {
    let mut search = Search::new(question, lists)?;
    if search.required.iter().any(Cursor::is_empty) {
        return Ok(());
    }
    let mut next = Some(0);
    while let Some(base) = next.and_then(|chunk| search.next_base(chunk)) {
        next = search.search_window(base, segment, top)?;
    }
    Ok(())
}

struct Search<'a> {
    scorer: &'a Scorer,
    terms: Vec<Cursor<'a>>,
    required: Vec<Cursor<'a>>,
    excluded: Vec<Cursor<'a>>,
    candidates: Vec<PartialScore>,
    /// All values are 0 between windows.
    window: Box<Window>,
}

/// A term in a window.
struct EssentialTerm {
    term: usize,
    bound: f64,
    /// The sum of the bounds of the terms before this one.
    before: f64,
}

impl<'a> Search<'a> {
    fn new(question: &TermQuery<'a>, lists: &[List<'a>]) -> Result<Self, Corrupt> {
        let scorer = question.scorer;
        let absent = List::default();
        let open =
            |index: usize, weight: f64| Cursor::new(lists.get(index).unwrap_or(&absent), scorer, weight);
        let named =
            |indexes: &[usize]| -> Result<Vec<_>, _> { indexes.iter().map(|i| open(*i, 0.0)).collect() };
        let weighted = scorer.weights().iter().copied().enumerate().filter(|(_, weight)| *weight > 0.0);
        Ok(Search {
            scorer,
            terms: weighted.map(|(i, weight)| open(i, weight)).collect::<Result<_, _>>()?,
            required: named(question.required)?,
            excluded: named(question.excluded)?,
            candidates: Vec::new(),
            window: Box::new([0.0; WINDOW]),
        })
    }

    /// The next chunk from `chunk` on that can be a result. None if there is none.
    fn next_base(&mut self, chunk: u32) -> Option<u32> {
        let base = self.terms.iter_mut().filter_map(|t| t.floor(chunk)).min()?;
        self.required.iter_mut().try_fold(base, |base, t| Some(t.floor(base)?.max(base)))
    }

    /// Searches a window from `base` on, and returns where to continue.
    fn search_window(&mut self, base: u32, segment: u32, top: &mut Top) -> Result<Option<u32>, Corrupt> {
        let last = base.saturating_add(WINDOW as u32 - 1);
        let needed = top.least(segment, base).max(self.scorer.unit());
        let mut terms = Vec::with_capacity(self.terms.len());
        let (mut sum, mut unchanged_until) = (0.0, u32::MAX);
        for (term, cursor) in self.terms.iter_mut().enumerate() {
            let Some(floor) = cursor.floor(base) else { continue };
            let (bound, until) = cursor.bound(floor, last);
            unchanged_until = until.min(unchanged_until);
            if bound > 0.0 {
                terms.push(EssentialTerm { term, bound, before: 0.0 });
            }
        }
        terms.sort_unstable_by(|a, b| a.bound.total_cmp(&b.bound));
        for term in &mut terms {
            term.before = sum;
            sum += term.bound;
        }
        if sum < needed {
            return Ok(Some(last.saturating_add(1).max(unchanged_until)).filter(|next| *next < u32::MAX));
        }
        self.candidates.clear();
        let optional = if self.required.is_empty() {
            let essential = terms.partition_point(|term| term.before + term.bound < needed);
            self.collect_essential(base, last, &terms[essential..], needed)?;
            &terms[..essential]
        } else {
            self.collect_required(base, last)?;
            &terms[..]
        };
        for term in optional.iter().rev() {
            self.look_up(term, needed)?;
        }
        self.offer(segment, top, needed)?;
        Ok(last.checked_add(1))
    }

    /// Collects the chunks that contain essential terms, with the scores for these.
    fn collect_essential(
        &mut self,
        base: u32,
        last: u32,
        essential: &[EssentialTerm],
        needed: f64,
    ) -> Result<(), Corrupt> {
        let rest = essential.first().map_or(0.0, |term| term.before);
        let candidates = &mut self.candidates;
        if let [term] = essential {
            return self.terms[term.term].take_until(base, last, |chunk, score| {
                if score + rest >= needed {
                    candidates.push(PartialScore { chunk, score });
                }
            });
        }
        for term in essential {
            self.terms[term.term].add_to(base, &mut self.window)?;
        }
        for (i, score) in self.window.iter_mut().enumerate() {
            // Without an essential term the score is 0, and `rest` is less than needed.
            if *score + rest >= needed {
                candidates.push(PartialScore { chunk: base + i as u32, score: *score });
            }
            *score = 0.0;
        }
        Ok(())
    }

    /// Collects the chunks that contain all required terms, with the score 0.
    fn collect_required(&mut self, base: u32, last: u32) -> Result<(), Corrupt> {
        let candidates = &mut self.candidates;
        let Some((first, others)) = self.required.split_first_mut() else { return Ok(()) };
        first.take_until(base, last, |chunk, _| candidates.push(PartialScore { chunk, score: 0.0 }))?;
        for term in others {
            keep(candidates, |candidate| term.has(candidate.chunk))?;
        }
        Ok(())
    }

    /// Adds the scores for a term, and drops the chunks that can no longer be kept.
    fn look_up(&mut self, term: &EssentialTerm, needed: f64) -> Result<(), Corrupt> {
        let cursor = &mut self.terms[term.term];
        keep(&mut self.candidates, |candidate| {
            // The bound of the block may make it unnecessary to unpack it.
            let most = candidate.score + term.before;
            if most + term.bound < needed || most + cursor.bound_at(candidate.chunk) < needed {
                return Ok(false);
            }
            candidate.score += cursor.score(candidate.chunk)?;
            Ok(true)
        })
    }

    fn offer(&mut self, segment: u32, top: &mut Top, mut needed: f64) -> Result<(), Corrupt> {
        'candidates: for &PartialScore { chunk, score } in &self.candidates {
            if score < needed {
                continue;
            }
            for term in &mut self.excluded {
                if term.has(chunk)? {
                    continue 'candidates;
                }
            }
            top.offer(ScoredChunk { score, segment, chunk });
            needed = top.least(segment, chunk).max(needed);
        }
        Ok(())
    }
}

/// Like `retain`, for conditions that can fail.
fn keep(
    candidates: &mut Vec<PartialScore>,
    mut test: impl FnMut(&mut PartialScore) -> Result<bool, Corrupt>,
) -> Result<(), Corrupt> {
    let mut kept = 0;
    for i in 0..candidates.len() {
        if test(&mut candidates[i])? {
            candidates[kept] = candidates[i];
            kept += 1;
        }
    }
    candidates.truncate(kept);
    Ok(())
}
