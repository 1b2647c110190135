//! Candidates by similarity: the nearest vectors, of chunks that the caller may read.

use super::removed_rows::without_removed;
use crate::builds::builds;
use crate::pg::{latch, report, txn, wake};
use crate::query::sql::filtered_chunks::{self, FilteredChunks};
use crate::query::sql::search;
use crate::query::sql::search::SearchTarget;
use crate::settings;
use crate::vectors::{Scan, Searched, VectorDb, VectorSearch};
use kb_search::ef_search;
use kb_search::journal::Journal;
use kb_search::recall;
use kb_search::recall::VectorStore;
use kb_search::request::AnswerBounds;
use kb_search::scan_plan;
use kb_search::scan_plan::{MOST_LISTED, Step};
use kb_types::error::{Error, Result};
use kb_types::vector_db::{Forced, Kept, Scan as Way};
use kb_types::{Candidate, Filter};
use serde_json::json;
use std::cell::OnceCell;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A question by meaning, which can be asked for more candidates.
pub struct ByMeaning<'a> {
    target: &'a SearchTarget,
    nearest: recall::Nearest<'a, VectorQuestion<'a>>,
}

impl<'a> ByMeaning<'a> {
    /// The vector must have the dimension of the knowledge base.
    pub fn new(
        target: &'a SearchTarget,
        vector: &'a [f32],
        filtered: Option<&'a FilteredChunks<'a>>,
        journal: &'a Journal,
    ) -> Result<ByMeaning<'a>> {
        if !target.is_readable && !report::in_recovery() {
            await_rights(&target.vector_db)?;
        }
        let question = VectorQuestion::new(target, vector, filtered);
        if target.index_misses {
            journal.note("dense", "index_misses", || json!(true));
        }
        Ok(ByMeaning { target, nearest: recall::Nearest::new(question, target.ef_search(), journal) })
    }

    /// The nearest chunks, the best first. See [`recall::Nearest::find`].
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let found = self.nearest.find(bounds)?;
        // The removal of a build empties its table, which no snapshot shows.
        if found.is_empty()
            && !txn::is_parallel()
            && !txn::with_latest_snapshot(|| builds::is_there(self.target.build_no))?
        {
            let kb_id = &self.target.kb_id;
            return Err(Error::State {
                problem: format!("the vectors of knowledge base \"{kb_id}\" have been removed meanwhile"),
                hint: "It was dropped, or it was replaced while this transaction used an older snapshot."
                    .into(),
            });
        }
        Ok(found)
    }
}

/// The `limit` nearest chunks that pass the filter, the best first, all compared exactly, and without those
/// that the caller may not read.
pub fn nearest(
    target: &SearchTarget,
    vector: &[f32],
    filter: Option<&Filter>,
    limit: usize,
) -> Result<Vec<Candidate>> {
    let filtered = filter.map(|filter| FilteredChunks::new(target, filter));
    let question = VectorQuestion::new(target, vector, filtered.as_ref());
    let found = question.next(&mut question.open(Step::exact(limit))?, limit)?;
    question.read(found)
}

/// The first scan of a query for `top_k` chunks. Returns None if no chunk passes the filter.
pub fn first_step(
    target: &SearchTarget,
    vector: &[f32],
    filter: Option<&Filter>,
    top_k: usize,
    ef_search: Option<usize>,
) -> Result<Option<Step>> {
    let filtered = filter.map(|filter| FilteredChunks::new(target, filter));
    let question = VectorQuestion::new(target, vector, filtered.as_ref());
    Ok(recall::steps(&question, top_k, false, ef_search)?.first().copied())
}

/// Computes the similarity of candidates that are not among the nearest, if they have a vector.
pub fn similarities(target: &SearchTarget, vector: &[f32], candidates: &mut [Candidate]) -> Result<()> {
    let ids: Vec<Uuid> =
        candidates.iter().filter(|c| c.dense.is_none()).map(|candidate| candidate.chunk_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let found = target.vector_db.store().similarities(target.build_no, vector, &ids)?;
    for candidate in candidates.iter_mut().filter(|candidate| candidate.dense.is_none()) {
        candidate.similarity = found.get(&candidate.chunk_id).copied();
    }
    Ok(())
}

/// Waits for the worker to grant the rights on a vector table that a restore has left out.
fn await_rights(vector_db: &VectorDb) -> Result<()> {
    let (begun, limit) = (Instant::now(), settings::gateway_timeout());
    while begun.elapsed() < limit && !txn::with_latest_snapshot(|| vector_db.is_readable())? {
        wake::ensure_worker();
        report::check_interrupts();
        latch::wait(Duration::from_millis(20));
    }
    Ok(())
}

/// A question to the vectors of a knowledge base.
struct VectorQuestion<'a> {
    target: &'a SearchTarget,
    vector: &'a [f32],
    filtered: Option<&'a FilteredChunks<'a>>,
    /// What a scan by index reads, once it is known.
    searched: OnceCell<Option<Searched>>,
}

impl<'a> VectorQuestion<'a> {
    fn new(
        target: &'a SearchTarget,
        vector: &'a [f32],
        filtered: Option<&'a FilteredChunks<'a>>,
    ) -> VectorQuestion<'a> {
        VectorQuestion { target, vector, filtered, searched: OnceCell::new() }
    }

    fn searched(&self) -> Result<Option<&Searched>> {
        if self.searched.get().is_none() {
            let searched = self.target.vector_db.store().searched()?;
            // An index that misses too much is not used if all vectors can be compared quickly.
            let is_asked = |searched: &Searched| {
                !self.target.index_misses
                    || !scan_plan::is_quick_exactly(searched.vectors, self.target.vector_db.dimension)
            };
            let _ = self.searched.set(searched.filter(is_asked));
        }
        Ok(self.searched.get().and_then(Option::as_ref))
    }

    /// The approximate number of vectors in the index that pass the filter, by the planner's statistics.
    fn expected(&self, filter: &Filter) -> Result<Option<usize>> {
        let Some(vectors) = self.indexed()? else { return Ok(None) };
        let part = filtered_chunks::expected_part(self.target, filter)?;
        Ok(part.map(|part| (part * vectors as f64) as usize))
    }
}

/// A running scan.
pub enum Look<'a> {
    /// It has found all that it searches for.
    Exact(std::vec::IntoIter<Candidate>),
    Index(Scan<'a>),
}

impl<'a> VectorStore for VectorQuestion<'a> {
    type Scan = Look<'a>;

    fn indexed(&self) -> Result<Option<usize>> {
        Ok(self.searched()?.map(|searched| searched.vectors))
    }

    fn kept(&self, most: usize) -> Result<Option<Kept>> {
        let Some(filtered) = self.filtered else { return Ok(None) };
        // The index is searched as if there were no filter, and goes on until enough has passed.
        if filtered.is_wide() && self.forced().is_none() {
            return Ok(None);
        }
        let most = match self.forced() {
            None => most,
            Some(Forced::List) => MOST_LISTED,
            Some(Forced::Index | Forced::Join) => 0,
        };
        let expected = self.expected(filtered.filter)?;
        // Counting many chunks in vain would cost as much as the scan of the index.
        if let Some(expected) = expected.filter(|expected| *expected > most.saturating_mul(2)) {
            return Ok(Some(Kept::About(expected)));
        }
        Ok(Some(match filtered.at_most(most)? {
            Some(chunks) => Kept::Exactly(chunks.len()),
            None => Kept::About(expected.unwrap_or_default().max(most + 1)),
        }))
    }

    fn forced(&self) -> Option<Forced> {
        settings::forced_scan()
    }

    fn parts(&self, step: Step) -> Result<Vec<(u64, usize)>> {
        let (Way::Index { ef_search, .. }, Some(searched)) = (step.scan, self.searched()?) else {
            return Ok(Vec::new());
        };
        let all = searched.cover.iter().map(|segment| segment.rows).sum();
        let of = |segment| ef_search::of_segment(segment, ef_search, step.limit, all);
        Ok(searched.cover.iter().map(|segment| (segment.rows, of(segment))).collect())
    }

    fn open(&self, step: Step) -> Result<Look<'a>> {
        let store = self.target.vector_db.store();
        let (kb_no, build_no) = (self.target.kb_no, self.target.build_no);
        let search = VectorSearch {
            kb_no,
            build_no,
            vector: self.vector,
            filter: self.filtered.map(|filtered| filtered.filter),
            among: None,
            limit: step.limit,
            scan: step.scan,
        };
        if matches!(step.scan, Way::Index { .. }) {
            return Ok(Look::Index(store.search(&search, self.searched()?)?));
        }
        let among = match self.filtered {
            Some(filtered) if self.forced() != Some(Forced::Join) => filtered.at_most(MOST_LISTED)?,
            _ => None,
        };
        let found = store.search(&VectorSearch { among, ..search }, None)?.next(step.limit)?;
        Ok(Look::Exact(found.into_iter()))
    }

    fn next(&self, scan: &mut Look<'a>, count: usize) -> Result<Vec<Candidate>> {
        match scan {
            Look::Exact(found) => Ok(found.take(count).collect()),
            Look::Index(scan) => scan.next(count),
        }
    }

    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        without_removed(search::heads(self.target, candidates)?)
    }
}
