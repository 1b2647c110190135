//! kb.query and kb.query_vector: embed the question, recall, fuse, rerank, shape.

use crate::catalog::embedder_access::access;
use crate::error::{Error, Result};
use crate::gateway::client;
use crate::model::knowledge_base::OnError;
use crate::model::vector_db::question_problem;
use crate::model::{Candidate, Filter, Hit, Kind};
use crate::pg::role::as_owner;
use crate::pg::{latch, report, txn, wake};
use crate::retrieve::plan::Step;
use crate::retrieve::recall::{self, Vectors};
use crate::retrieve::request::{AnswerBounds, Request};
use crate::retrieve::{fuse, rerank, shape};
use crate::settings;
use crate::store::changes::{self, What};
use crate::store::jobs;
use crate::store::search::{self, Target, TextPlace};
use crate::store::tenants;
use crate::store::vector_store::{Search, VectorDb};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Answers a question in words.
pub fn query(request: &Request, query: &str) -> Result<Vec<Hit>> {
    if query.trim().is_empty() {
        return Err(Error::Argument { argument: "query", problem: "it is empty".into() });
    }
    // Without preload, the first question after a restart starts the worker if jobs wait.
    if !report::in_recovery()
        && !wake::worker_runs()
        && (jobs::any_visible()? || as_owner(changes::any_waiting)?)
    {
        wake::ensure_worker();
    }
    let target = target(request)?;
    let timeout = settings::gateway_timeout();
    let tenant = tenants::current()?;
    let vectors = access(&target.embedder, &tenant).and_then(|access| {
        let (texts, whose) = (vec![query.to_string()], client::this_client(&tenant, target.kb_no));
        client::embed(&target.embedder, &access, Kind::Query, texts, whose, timeout)
    });
    match vectors {
        Ok(vectors) => dense(&target, request, &vectors.numbers()),
        Err(error) if request.on_error.unwrap_or(target.retrieval.on_error) == OnError::Keyword => {
            let mut hits = keyword(&target, request, query)?;
            shape::mark_keyword(&mut hits, &error.to_string());
            Ok(hits)
        }
        Err(error) => Err(error),
    }
}

/// The knowledge base that is asked; an error where the filter names a key that it does not allow.
fn target(request: &Request) -> Result<Target> {
    let target = search::target(&request.kb_id)?;
    let keys = request.filter.as_ref().map(Filter::metadata_keys).unwrap_or_default();
    match target.retrieval.key_problem(keys) {
        None => Ok(target),
        Some(problem) => Err(Error::Argument { argument: "filter", problem }),
    }
}

/// Answers a question that is a vector already.
pub fn query_vector(request: &Request, vector: &[f32]) -> Result<Vec<Hit>> {
    let target = target(request)?;
    if vector.len() != target.vector_db.dimension {
        return Err(Error::Argument {
            argument: "vector",
            problem: format!(
                "it has {} dimensions, the vectors of knowledge base \"{}\" have {}",
                vector.len(),
                request.kb_id,
                target.vector_db.dimension
            ),
        });
    }
    let VectorDb { metric, element, .. } = target.vector_db;
    if let Some(problem) = question_problem(metric, element, vector) {
        return Err(Error::Argument { argument: "vector", problem });
    }
    dense(&target, request, vector)
}

fn dense(target: &Target, request: &Request, vector: &[f32]) -> Result<Vec<Hit>> {
    if !target.is_readable && !report::in_recovery() {
        await_rights(&target.vector_db)?;
    }
    let bounds = request.bounds(&target.retrieval, &target.preprocess);
    let question = Question { target, vector, filter: request.filter.as_ref() };
    finish(target, &bounds, recall::dense(&question, &bounds, target.retrieval.ef_search)?)
}

/// Waits for the worker to give the rights on a vector table that a restore has left out.
fn await_rights(vector_db: &VectorDb) -> Result<()> {
    let (begun, limit) = (Instant::now(), settings::gateway_timeout());
    while begun.elapsed() < limit && !txn::with_latest_snapshot(|| vector_db.is_readable())? {
        wake::ensure_worker();
        report::check_interrupts();
        latch::wait(Duration::from_millis(20));
    }
    Ok(())
}

/// Answers by keyword, without a vector.
fn keyword(target: &Target, request: &Request, query: &str) -> Result<Vec<Hit>> {
    let bounds = request.bounds(&target.retrieval, &target.preprocess);
    let search = |limit| {
        let found = search::by_keyword(target, query, request.filter.as_ref(), limit)?;
        Ok((found.len(), without_gone(found)?))
    };
    finish(target, &bounds, recall::keyword(search, &bounds)?)
}

/// The stages after recall, which both kinds of search share.
fn finish(target: &Target, bounds: &AnswerBounds, candidates: Vec<Candidate>) -> Result<Vec<Hit>> {
    let ranked = rerank::rerank(fuse::fuse(candidates));
    let mut hits = shape::shape(ranked, &target.kb_id, bounds);
    if bounds.dedupe && !hits.is_empty() {
        let hashes: Vec<Vec<u8>> = hits.iter().map(|hit| hit.row.content_hash.clone()).collect();
        shape::add_places(&mut hits, present_places(target, &hashes)?);
    }
    Ok(hits)
}

/// A question to the vectors of a knowledge base.
struct Question<'a> {
    target: &'a Target,
    vector: &'a [f32],
    filter: Option<&'a Filter>,
}

impl Vectors for Question<'_> {
    fn matching(&self, most: usize) -> Result<Option<usize>> {
        self.filter.map(|filter| search::count_matching(self.target, filter, most)).transpose()
    }

    fn nearest(&self, step: Step) -> Result<Vec<Candidate>> {
        self.target.vector_db.store().search(&Search {
            kb_no: self.target.kb_no,
            build_no: self.target.build_no,
            vector: self.vector,
            filter: self.filter,
            limit: step.limit,
            scan: step.scan,
        })
    }

    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        without_gone(search::read(self.target, candidates)?)
    }
}

/// Leaves out the rows of attached tables that are gone, though the worker has not taken that up yet, and marks those that
/// were changed since.
fn without_gone(mut candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
    let place = |candidate: &Candidate| {
        candidate.row.as_ref().and_then(|row| Some((row.source.clone()?, row.external_id.clone())))
    };
    let rows = Rows::of(candidates.iter().map(place));
    let (written, enqueued) = (rows.written_down()?, rows.enqueued()?);
    for place in written.stale.into_iter().chain(enqueued) {
        candidates[place].row.iter_mut().for_each(|row| row.stale = true);
    }
    retain_places(&mut candidates, |place| !written.gone.contains(&place));
    Ok(candidates)
}

/// Where texts appear, but for documents whose rows are gone.
fn present_places(target: &Target, hashes: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, Uuid, String)>> {
    let mut places = search::places(target, hashes)?;
    let of = |place: &TextPlace| Some((place.source.clone()?, place.external_id.clone()));
    let gone = Rows::of(places.iter().map(of)).written_down()?.gone;
    retain_places(&mut places, |place| !gone.contains(&place));
    Ok(places.into_iter().map(|place| (place.content_hash, place.chunk_id, place.external_id)).collect())
}

fn retain_places<T>(items: &mut Vec<T>, is_kept: impl Fn(usize) -> bool) {
    let mut places = 0..;
    items.retain(|_| places.next().is_some_and(&is_kept));
}

/// Those of some documents that are rows of attached tables, with their places.
#[derive(Default)]
struct Rows {
    source_nos: Vec<i64>,
    tenants: Vec<String>,
    external_ids: Vec<String>,
    places: Vec<usize>,
}

/// What is written down of rows, by their places.
#[derive(Default)]
struct WrittenDown {
    gone: HashSet<usize>,
    stale: Vec<usize>,
}

impl Rows {
    /// Of documents given by source with tenant, where they have one, and external_id.
    fn of(documents: impl Iterator<Item = Option<((i64, String), String)>>) -> Rows {
        let mut rows = Rows::default();
        for (place, document) in documents.enumerate() {
            if let Some(((source_no, tenant), external_id)) = document {
                rows.source_nos.push(source_no);
                rows.tenants.push(tenant);
                rows.external_ids.push(external_id);
                rows.places.push(place);
            }
        }
        rows
    }

    fn written_down(&self) -> Result<WrittenDown> {
        let mut found = WrittenDown::default();
        if self.places.is_empty() {
            return Ok(found);
        }
        let of_documents = || changes::of_documents(&self.source_nos, &self.tenants, &self.external_ids);
        for (row, what) in as_owner(of_documents)? {
            match what {
                What::Changed => found.stale.push(self.places[row]),
                What::Gone | What::Truncated => drop(found.gone.insert(self.places[row])),
            }
        }
        Ok(found)
    }

    fn enqueued(&self) -> Result<Vec<usize>> {
        if self.places.is_empty() {
            return Ok(Vec::new());
        }
        let found = as_owner(|| changes::enqueued(&self.source_nos, &self.tenants, &self.external_ids))?;
        Ok(found.into_iter().map(|row| self.places[row]).collect())
    }
}
