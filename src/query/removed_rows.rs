//! Rows of attached tables that are gone or changed, although the worker has not processed that yet.

use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::query::sql::search;
use crate::query::sql::search::{SearchTarget, TextPlace};
use crate::tables::changes;
use crate::tables::changes::What;
use kb_types::Candidate;
use kb_types::candidate::SourceRow;
use kb_types::error::Result;
use std::collections::HashSet;
use uuid::Uuid;

/// Removes candidates whose rows in attached tables are gone, although the worker has not processed that yet,
/// and marks those whose rows have changed.
pub fn without_removed(mut candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
    let place = |candidate: &Candidate| {
        candidate.head.as_ref().and_then(|head| Some((head.source.clone()?, head.external_id.clone())))
    };
    let rows = AttachedRows::of(candidates.iter().map(place));
    let (written, enqueued) = (rows.written_down()?, rows.enqueued()?);
    for place in written.stale.into_iter().chain(enqueued) {
        candidates[place].head.iter_mut().for_each(|head| head.is_changed = true);
    }
    retain_places(&mut candidates, |place| !written.gone.contains(&place));
    Ok(candidates)
}

/// The places of those of these texts that several chunks have, without documents whose rows are gone.
pub fn present_places(target: &SearchTarget, hashes: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, Uuid, String)>> {
    let named = |place: TextPlace| (place.content_hash, place.chunk_id, place.external_id);
    let mut places = search::places(target, hashes)?;
    let of = |place: &TextPlace| Some((place.source.clone()?, place.external_id.clone()));
    let gone = AttachedRows::of(places.iter().map(of)).written_down()?.gone;
    retain_places(&mut places, |place| !gone.contains(&place));
    Ok(places.into_iter().map(named).collect())
}

fn retain_places<T>(items: &mut Vec<T>, is_kept: impl Fn(usize) -> bool) {
    let mut places = 0..;
    items.retain(|_| places.next().is_some_and(&is_kept));
}

/// Those of a list of documents that are rows of attached tables, with their places in the list.
#[derive(Default)]
struct AttachedRows {
    source_nos: Vec<i64>,
    kb_nos: Vec<i64>,
    tenants: Vec<String>,
    external_ids: Vec<String>,
    places: Vec<usize>,
}

/// What is recorded about rows, by their places.
#[derive(Default)]
struct WrittenDown {
    gone: HashSet<usize>,
    stale: Vec<usize>,
}

impl AttachedRows {
    /// Documents are given by source, if they have one, and external_id.
    fn of(documents: impl Iterator<Item = Option<(SourceRow, String)>>) -> AttachedRows {
        let mut rows = AttachedRows::default();
        for (place, document) in documents.enumerate() {
            if let Some((source, external_id)) = document {
                rows.source_nos.push(source.source_no);
                rows.kb_nos.push(source.kb_no);
                rows.tenants.push(source.tenant_id);
                rows.external_ids.push(external_id);
                rows.places.push(place);
            }
        }
        rows
    }

    fn written_down(&self) -> Result<WrittenDown> {
        let mut found = WrittenDown::default();
        if !changes::may_wait(&self.source_nos) {
            return Ok(found);
        }
        let of_documents = || changes::of_documents(&self.source_nos, &self.tenants, &self.external_ids);
        for (row, what) in as_owner(of_documents)? {
            match what {
                What::Changed => found.stale.push(self.places[row]),
                _ => drop(found.gone.insert(self.places[row])),
            }
        }
        Ok(found)
    }

    fn enqueued(&self) -> Result<Vec<usize>> {
        let documents = self.kb_nos.iter().zip(&self.tenants).zip(&self.external_ids);
        if !documents.into_iter().any(|((kb_no, tenant), id)| queue::may_wait(*kb_no, tenant, id)) {
            return Ok(Vec::new());
        }
        let found = as_owner(|| changes::enqueued(&self.source_nos, &self.tenants, &self.external_ids))?;
        Ok(found.into_iter().map(|row| self.places[row]).collect())
    }
}
