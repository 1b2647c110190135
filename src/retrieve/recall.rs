//! Recall: which scans are made, when there is enough, and when to look further. The store is asked through a trait, so
//! that this is tested without one.

use super::dedupe;
use super::journal::Journal;
use super::plan::{self, Step, Wanted};
use super::request::AnswerBounds;
use crate::error::{Error, Result};
use crate::model::Candidate;
use crate::model::vector_db::{Forced, Kept, Scan};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// What recall by vectors needs from the store for one question.
pub trait Vectors {
    /// How many vectors the index has; None: there is no index.
    fn indexed(&self) -> Result<Option<usize>>;

    /// How many chunks pass the filter, counted where they seem to be `most` at most; None where there is no filter.
    fn kept(&self, most: usize) -> Result<Option<Kept>>;

    /// The way of looking that a test asks for.
    fn forced(&self) -> Option<Forced> {
        None
    }

    /// The parts of the index that a step looks at: about how many vectors each has, and the ef_search for it.
    fn parts(&self, _step: Step) -> Result<Vec<(u64, usize)>> {
        Ok(Vec::new())
    }

    /// The nearest, best first, including those that the caller may not read.
    fn nearest(&self, step: Step) -> Result<Vec<Candidate>>;

    /// Those that the caller may read, with their rows, in their order.
    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>>;
}

/// The steps that a question takes, until one gives enough.
pub fn steps(
    vectors: &impl Vectors,
    top_k: usize,
    dedupe: bool,
    ef_search: Option<usize>,
) -> Result<Vec<Step>> {
    let indexed = vectors.indexed()?;
    let kept = vectors.kept(plan::exact_up_to(top_k, indexed))?;
    let wanted = Wanted { top_k, dedupe, kept, vectors: indexed, ef_search };
    Ok(plan::steps(wanted, vectors.forced()))
}

/// Candidates by similarity: step by step until they answer the question, or nothing more can be found.
pub fn dense(
    vectors: &impl Vectors,
    bounds: &AnswerBounds,
    ef_search: Option<usize>,
    journal: &Journal,
) -> Result<Vec<Candidate>> {
    let AnswerBounds { top_k, min_score, dedupe, .. } = *bounds;
    let (indexed, kept) = journal.time("plan", || {
        let indexed = vectors.indexed()?;
        Ok::<_, Error>((indexed, vectors.kept(plan::exact_up_to(top_k, indexed))?))
    })?;
    journal.note("dense", "has_index", || json!(indexed.is_some()));
    if journal.tells_all() {
        journal.note("dense", "index_vectors", || json!(indexed));
    }
    journal.note("dense", "filter_keeps", || kept_json(kept, journal.tells_all()));
    let is_told = kept.is_none() || journal.tells_all();
    let wanted = Wanted { top_k, dedupe, kept, vectors: indexed, ef_search };
    let mut steps = VecDeque::from(plan::steps(wanted, vectors.forced()));
    if steps.is_empty() && !journal.tells_all() {
        // As where all that passes the filter is hidden.
        journal.add("dense", "scans", || scan_json(Step::exact(top_k), 0, is_told, &[]));
    }
    let mut candidates = Vec::new();
    let (mut is_hidden, mut has_looked_twice) = (false, false);
    while let Some(step) = steps.pop_front() {
        let near = journal.time("scan", || vectors.nearest(step))?;
        let (found, last_score) = (near.len(), near.last().and_then(Candidate::score));
        candidates = journal.time("read", || vectors.read(near))?;
        // Once the last step had hidden rows, further ones need not meet any: copies of one text may come first.
        let was_hidden = is_hidden;
        is_hidden |= steps.is_empty() && candidates.len() < found;
        let kept = if dedupe { dedupe::count(&candidates) } else { candidates.len() };
        let parts = if journal.tells_all() { vectors.parts(step)? } else { Vec::new() };
        // How far is looked because of rows that a policy hides is told to whom it hides none.
        if !was_hidden || journal.tells_all() {
            journal.add("dense", "scans", || scan_json(step, candidates.len(), is_told, &parts));
        }
        // Few rows qualify, by an index that is approximate: it is asked once more before that is believed. An exact scan for
        // every question whose least score few rows have would cost too much.
        if found >= step.limit
            && last_score.is_some_and(|score| score < min_score)
            && qualifying(&candidates, bounds) < top_k
            && !has_looked_twice
            && let Some(further) = plan::second_look(step)
        {
            has_looked_twice = true;
            steps.push_front(further);
            continue;
        }
        // An exact scan that gave fewer rows than it was asked for has seen them all.
        let exhausted = step.scan == Scan::Exact && found < step.limit;
        if exhausted || plan::is_enough(kept, top_k, found, step.limit, last_score, min_score) {
            break;
        }
        // A scan of the index that gave too few gives no more where more are asked for.
        if found < step.limit {
            steps.retain(|next| !matches!(next.scan, Scan::Index { .. }));
        } else if steps.len() > 1 && steps[0] == Step::exact(step.limit) {
            // As many were found: another scan for as many would give the same copies of texts.
            steps.pop_front();
        }
        // The caller may not read some of them, by a policy of the database's own: look further, twice as far each time.
        if is_hidden {
            steps.push_back(Step::exact(step.limit * 2));
        }
    }
    Ok(candidates)
}

/// How many of the candidates, which come best first, have the least score asked for.
fn qualifying(candidates: &[Candidate], bounds: &AnswerBounds) -> usize {
    let has_score = |candidate: &Candidate| candidate.score().is_some_and(|score| score >= bounds.min_score);
    let qualifying = &candidates[..candidates.partition_point(has_score)];
    if bounds.dedupe { dedupe::count(qualifying) } else { qualifying.len() }
}

/// Estimates are of everybody's rows, and what is counted may have some that a policy of the database's own hides.
fn kept_json(kept: Option<Kept>, tells_all: bool) -> Value {
    let (chunks, is_counted) = match kept {
        None => return Value::Null,
        Some(Kept::Exactly(chunks)) => (chunks, true),
        Some(Kept::About(chunks)) => (chunks, false),
    };
    json!({"chunks": tells_all.then_some(chunks), "counted": is_counted})
}

/// `found`: rows that the caller may read. How far the index is looked through depends, with a filter, on everybody's rows.
fn scan_json(step: Step, found: usize, is_told: bool, parts: &[(u64, usize)]) -> Value {
    let mut scan = match step.scan {
        Scan::Index { ef_search, visits } if is_told => {
            json!({"scan": "index", "ef_search": ef_search, "max_scan_tuples": (visits > 0).then_some(visits)})
        }
        Scan::Index { .. } => json!({"scan": "index"}),
        Scan::Exact => json!({"scan": "exact"}),
        Scan::ExactDistinct => json!({"scan": "exact, each text once"}),
    };
    if !parts.is_empty() {
        let part = |(vectors, ef_search): &(u64, usize)| json!({"vectors": vectors, "ef_search": ef_search});
        scan["segments"] = parts.iter().map(part).collect();
    }
    scan["limit"] = json!(step.limit);
    scan["found"] = json!(found);
    scan
}

/// Candidates by words, with their rows. `further` takes how many of the best to look at, and gives, best first, those that it
/// did not give before and that are to be answered; and whether there are no others.
pub fn keyword(
    mut further: impl FnMut(usize) -> Result<(Vec<Candidate>, bool)>,
    bounds: &AnswerBounds,
    journal: &Journal,
) -> Result<Vec<Candidate>> {
    let AnswerBounds { top_k, dedupe, .. } = *bounds;
    // Most texts are there once.
    let mut limit = top_k;
    let mut candidates = Vec::new();
    loop {
        let (found, is_all) = further(limit)?;
        candidates.extend(found);
        if journal.tells_all() {
            journal.add("keyword", "looks", || json!({"limit": limit, "found": candidates.len()}));
        }
        let kept = if dedupe { dedupe::count(&candidates) } else { candidates.len() };
        if kept >= top_k || is_all {
            if !journal.tells_all() {
                // How often was looked depends on rows that a policy hides.
                journal.add(
                    "keyword",
                    "looks",
                    || json!({"limit": top_k, "found": candidates.len().min(top_k)}),
                );
            }
            return Ok(candidates);
        }
        limit = if dedupe && limit == top_k { plan::several(top_k) } else { limit * 2 };
    }
}
