//! How much of what an exact search finds the index finds.

use crate::query::dense;
use crate::query::search::Target;
use crate::vectors::Search;
use kb_search::plan::Step;
use kb_types::Filter;
use kb_types::candidate::Candidate;
use kb_types::error::Result;
use kb_types::vector_db::{Metric, Scan};
use uuid::Uuid;

/// A vector whose nearest are looked for.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub target: &'a Target,
    pub vector: &'a [f32],
    pub filter: Option<&'a Filter>,
    /// The chunk that the vector is of, which does not count.
    pub own: Option<Uuid>,
    /// How many of the nearest count.
    pub k: usize,
}

/// What an exact search finds.
#[derive(Debug, Clone, Copy)]
pub struct Exact {
    count: usize,
    /// The score of the last one. Others may have it, too: one of those is as good.
    least: f64,
}

/// What a scan by index finds.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// From 0 to 1.
    pub recall: f64,
    /// What it was searched with: more than was asked for where a filter keeps little.
    pub ef_search: usize,
}

impl Probe<'_> {
    fn limit(&self) -> usize {
        self.k + usize::from(self.own.is_some())
    }

    /// The scores of the nearest, best first.
    fn nearest(&self, step: Step) -> Result<Vec<f64>> {
        let store = self.target.vector_db.store();
        let searched = if matches!(step.scan, Scan::Index { .. }) { store.searched()? } else { None };
        let search = Search {
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

    /// None: there is nothing to find. What is no nearer than at a right angle has the least score, 0, by cosine, and cannot be
    /// told apart: it does not count.
    pub fn exact(&self) -> Result<Option<Exact>> {
        let mut scores = self.nearest(Step::exact(self.limit()))?;
        if self.target.vector_db.metric == Metric::Cosine {
            scores.retain(|score| *score > 0.0);
        }
        Ok(scores.last().map(|least| Exact { count: scores.len(), least: *least }))
    }

    /// What a query's first scan finds of it; None: that is not by the index.
    pub fn found(&self, exact: &Exact, ef_search: Option<usize>) -> Result<Option<Found>> {
        let first = dense::first_step(self.target, self.vector, self.filter, self.limit(), ef_search)?;
        let Some(step) = first else { return Ok(None) };
        let Scan::Index { ef_search, .. } = step.scan else { return Ok(None) };
        let found = self.nearest(step)?;
        // Of too few the query makes an exact scan.
        if found.len() < self.k {
            return Ok(Some(Found { recall: 1.0, ef_search }));
        }
        let right = found.into_iter().filter(|score| *score >= exact.least).count();
        Ok(Some(Found { recall: right.min(exact.count) as f64 / exact.count as f64, ef_search }))
    }
}
