//! Recall: which scans are made, when there is enough, and when to look further. The store is asked through a trait, so
//! that this is tested without one.

use super::dedupe;
use super::plan::{self, Step};
use super::request::AnswerBounds;
use crate::error::Result;
use crate::model::Candidate;
use crate::model::vector_db::Scan;
use std::collections::VecDeque;

/// What recall by vectors needs from the store for one question.
pub trait Vectors {
    /// How many chunks pass the filter, counted up to `most`; None where there is no filter.
    fn matching(&self, most: usize) -> Result<Option<usize>>;

    /// The nearest, best first, including those that the caller may not read.
    fn nearest(&self, step: Step) -> Result<Vec<Candidate>>;

    /// Those that the caller may read, with their rows, in their order.
    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>>;
}

/// Candidates by similarity: step by step until they answer the question, or nothing more can be found.
pub fn dense(
    vectors: &impl Vectors,
    bounds: &AnswerBounds,
    ef_search: Option<usize>,
) -> Result<Vec<Candidate>> {
    let AnswerBounds { top_k, min_score, dedupe, .. } = *bounds;
    let matching = vectors.matching(plan::EXACT_BELOW + 1)?;
    let mut steps = VecDeque::from(plan::steps(top_k, dedupe, matching, ef_search));
    let mut candidates = Vec::new();
    let mut is_hidden = false;
    while let Some(step) = steps.pop_front() {
        let near = vectors.nearest(step)?;
        let (found, last_score) = (near.len(), near.last().and_then(Candidate::score));
        candidates = vectors.read(near)?;
        // Once the last step had hidden rows, further ones need not meet any: copies of one text may come first.
        is_hidden |= steps.is_empty() && candidates.len() < found;
        let kept = if dedupe { dedupe::count(&candidates) } else { candidates.len() };
        // An exact scan that gave fewer rows than it was asked for has seen them all.
        let exhausted = step.scan == Scan::Exact && found < step.limit;
        if exhausted || plan::is_enough(kept, top_k, found, step.limit, last_score, min_score) {
            break;
        }
        // The caller may not read some of them, by a policy of the database's own: look further, twice as far each time.
        if is_hidden {
            steps.push_back(Step::exact(step.limit * 2));
        }
    }
    Ok(candidates)
}

/// Candidates by words, with their rows; `search` takes how many at most, and gives how many it found and those of them that
/// are to be answered. Equal texts count once: where one has more copies than are looked for here, the answer may have too
/// few rows.
pub fn keyword(
    search: impl Fn(usize) -> Result<(usize, Vec<Candidate>)>,
    bounds: &AnswerBounds,
) -> Result<Vec<Candidate>> {
    let AnswerBounds { top_k, dedupe, .. } = *bounds;
    let mut limit = if dedupe { plan::several(top_k) } else { top_k };
    loop {
        let (found, candidates) = search(limit)?;
        let kept = if dedupe { dedupe::count(&candidates) } else { candidates.len() };
        // Where some were left out, others may come after them.
        if kept >= top_k || found < limit || candidates.len() == found {
            return Ok(candidates);
        }
        limit *= 2;
    }
}
