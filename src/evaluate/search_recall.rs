//! How much of what an exact search finds an index finds.

use crate::query::dense;
use crate::query::search::SearchTarget;
use crate::vectors::VectorSearch;
use kb_search::scan_plan::Step;
use kb_types::Filter;
use kb_types::candidate::Candidate;
use kb_types::error::Result;
use kb_types::vector_db::{Metric, Scan};
use uuid::Uuid;

/// A vector whose nearest neighbours are searched for.
#[derive(Clone, Copy)]
pub struct RecallTest<'a> {
    pub target: &'a SearchTarget,
    pub vector: &'a [f32],
    pub filter: Option<&'a Filter>,
    /// The chunk that has this vector, which does not count.
    pub own: Option<Uuid>,
    /// The number of nearest neighbours that count.
    pub k: usize,
}

/// The result of an exact search.
#[derive(Debug, Clone, Copy)]
pub struct ExactResult {
    count: usize,
    /// The score of the last chunk. Another chunk with this score counts as equally good.
    least: f64,
}

/// The result of a scan by index.
#[derive(Debug, Clone, Copy)]
pub struct IndexResult {
    /// From 0 to 1.
    pub recall: f64,
    /// The ef_search of the scan, which is larger than requested if a filter keeps little.
    pub ef_search: usize,
}

impl RecallTest<'_> {
    fn limit(&self) -> usize {
        self.k + usize::from(self.own.is_some())
    }

    /// The scores of the nearest, the best first.
    fn nearest(&self, step: Step) -> Result<Vec<f64>> {
        let store = self.target.vector_db.store();
        let searched = if matches!(step.scan, Scan::Index { .. }) { store.searched()? } else { None };
        let search = VectorSearch {
            kb_no: self.target.kb_no,
            build_no: self.target.build_no,
            vector: self.vector,
            filter: self.filter,
            among: None,
            limit: step.limit,
            scan: step.scan,
        };
        let found = store.search(&search, searched.as_ref())?.next(step.limit)?;
        let others = found.iter().filter(|candidate| Some(candidate.chunk_id) != self.own);
        Ok(others.filter_map(Candidate::score).take(self.k).collect())
    }

    /// The result of an exact search, or None if there is nothing to find. Vectors at a right angle or
    /// farther have the least score, 0, by cosine, and cannot be told apart, so they do not count.
    pub fn exact(&self) -> Result<Option<ExactResult>> {
        let mut scores = self.nearest(Step::exact(self.limit()))?;
        if self.target.vector_db.metric == Metric::Cosine {
            scores.retain(|score| *score > 0.0);
        }
        Ok(scores.last().map(|least| ExactResult { count: scores.len(), least: *least }))
    }

    /// What a query's first scan finds of it. Returns None if that scan does not use the index.
    pub fn found(&self, exact: &ExactResult, ef_search: Option<usize>) -> Result<Option<IndexResult>> {
        let first = dense::first_step(self.target, self.vector, self.filter, self.limit(), ef_search)?;
        let Some(step) = first else { return Ok(None) };
        let Scan::Index { ef_search, .. } = step.scan else { return Ok(None) };
        let found = self.nearest(step)?;
        // If the scan finds too few, the query makes an exact scan.
        if found.len() < self.k {
            return Ok(Some(IndexResult { recall: 1.0, ef_search }));
        }
        let right = found.into_iter().filter(|score| *score >= exact.least).count();
        Ok(Some(IndexResult { recall: right.min(exact.count) as f64 / exact.count as f64, ef_search }))
    }
}
