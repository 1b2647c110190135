//! kb.query and kb.query_vector: embed the question, recall, fuse, rerank, diversify, shape, surround.

use super::query_log;
use crate::catalog::embedder_access::access;
use crate::catalog::reranking;
use crate::catalog::rewording::{Reworded, reworded};
use crate::error::{Error, Object, Result};
use crate::gateway::client;
use crate::model::retrieval::OnError;
use crate::model::vector_db::question_problem;
use crate::model::{Candidate, Filter, Hit, Kind, Mode, Retrieval};
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::retrieve::dense::{dense, similarities};
use crate::retrieve::gone::present_places;
use crate::retrieve::keyword::keyword;
use crate::retrieve::request::{AnswerBounds, Request};
use crate::retrieve::surroundings::surrounded;
use crate::retrieve::{diversity, fuse, shape, transform};
use crate::settings;
use crate::store::search::{self, Target};
use crate::store::vector_store::VectorDb;
use crate::store::{changes, jobs, services, tenants};
use std::time::Instant;
use uuid::Uuid;

/// Answers a question in words, and logs it where the knowledge base wants that.
pub fn query(request: &Request, query: &str) -> Result<Vec<Hit>> {
    let begun = Instant::now();
    let (target, mut hits) = answer(request, query)?;
    query_log::log(&target, request, query, begun.elapsed(), &mut hits);
    Ok(hits)
}

/// As [`query`], but never logs.
pub(super) fn answer(request: &Request, query: &str) -> Result<(Target, Vec<Hit>)> {
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
    let bounds = AnswerBounds::new(&target.retrieval, &target.preprocess);
    let mut failed = None;
    let mut vector = None;
    if target.retrieval.mode != Mode::Keyword {
        match embed(&target, Kind::Query, &[query.to_string()]) {
            Ok(mut vectors) => vector = vectors.pop(),
            Err(error) if target.retrieval.on_error == OnError::Keyword => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    // A reranker reads more candidates than the answer has rows.
    let wide = AnswerBounds { top_k: target.retrieval.recalled(), ..bounds };
    let filter = request.filter.as_ref();
    let find =
        |bounds: &AnswerBounds| Search { target: &target, filter, bounds }.find(query, vector.as_deref());
    let mut candidates = diversity::recalled(&target.retrieval.diversity, &wide, find)?;
    let mut problem = None;
    if failed.is_none() && target.retrieval.transform.is_some() {
        let search = Search { target: &target, filter, bounds: &wide };
        (candidates, problem) = search.find_reworded(query, vector.as_deref(), candidates)?;
    }
    let mut hits = finish(&target, request, &bounds, Some(query), candidates)?;
    if let Some(error) = failed {
        shape::mark_keyword(&mut hits, &error.to_string());
    }
    if let Some(problem) = problem {
        shape::mark_not_reworded(&mut hits, &problem);
    }
    Ok((target, hits))
}

/// Where candidates are looked for.
struct Search<'a> {
    target: &'a Target,
    filter: Option<&'a Filter>,
    bounds: &'a AnswerBounds,
}

impl Search<'_> {
    /// Candidates for a question, best first; without a vector by its words.
    fn find(&self, words: &str, vector: Option<&[f32]>) -> Result<Vec<Candidate>> {
        let Search { target, filter, bounds } = *self;
        Ok(match vector {
            None => fuse::of_one(keyword(target, words, filter, bounds)?),
            Some(vector) if target.retrieval.mode == Mode::Hybrid => {
                let top_k = bounds.top_k.max(target.retrieval.hybrid.candidates);
                let side = AnswerBounds { top_k, ..*bounds };
                let found = (dense(target, vector, filter, &side)?, keyword(target, words, filter, &side)?);
                let mut fused = fuse::fuse(found.0, found.1, bounds.dedupe, &target.retrieval.hybrid);
                similarities(target, vector, &mut fused)?;
                fused
            }
            Some(vector) => fuse::of_one(dense(target, vector, filter, bounds)?),
        })
    }

    /// The question's candidates and those for other words of it, as one list, and why some of these are not there.
    fn find_reworded(
        &self,
        question: &str,
        vector: Option<&[f32]>,
        own: Vec<Candidate>,
    ) -> Result<(Vec<Candidate>, Option<String>)> {
        let Search { target, filter, bounds } = *self;
        let Reworded { questions, passage, mut problem } =
            reworded(&target.retrieval, target.kb_no, question, vector.is_some());
        let mut lists = vec![own];
        let mut embedded = |kind, texts: &[String]| match embed(target, kind, texts) {
            Ok(vectors) => vectors,
            Err(error) => {
                problem = Some(error.to_string());
                Vec::new()
            }
        };
        match vector {
            None => {
                for words in &questions {
                    lists.push(self.find(words, None)?);
                }
            }
            Some(_) => {
                for (words, vector) in questions.iter().zip(embedded(Kind::Query, &questions)) {
                    lists.push(self.find(words, Some(&vector))?);
                }
                for vector in embedded(Kind::Document, passage.as_slice()) {
                    lists.push(dense(target, &vector, filter, bounds)?);
                }
            }
        }
        if lists.len() == 1 {
            return Ok((lists.swap_remove(0), problem));
        }
        let mut fused = transform::fuse(lists, bounds.dedupe, target.retrieval.hybrid.k);
        if let Some(vector) = vector {
            similarities(target, vector, &mut fused)?;
        }
        Ok((fused, problem))
    }
}

/// Vectors of texts, in order.
pub(super) fn embed(target: &Target, kind: Kind, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let timeout = settings::gateway_timeout();
    let tenant = tenants::current()?;
    let access = access(&target.embedder, &tenant)?;
    let whose = client::this_client(&tenant, target.kb_no);
    let vectors = client::embed(&target.embedder, &access, kind, texts.to_vec(), whose, timeout)?;
    Ok(vectors.numbers().chunks(target.embedder.dimension).map(<[f32]>::to_vec).collect())
}

/// The knowledge base that is asked; an error where the filter names a key that it does not allow.
pub(super) fn target(request: &Request) -> Result<Target> {
    let mut target = search::target(&request.kb_id)?;
    let own = std::mem::take(&mut target.retrieval);
    target.retrieval = request.retrieval(&own)?;
    // A call's mistake is an error, before anything is paid for; what is wrong with a knowledge base's own is not the caller's.
    let chosen = |retrieval: &Retrieval| {
        let reranker = retrieval.rerank.as_ref().map(|rerank| rerank.reranker.clone());
        let llm = retrieval.transform.as_ref().map(|transform| transform.llm.clone());
        [(Object::Reranker, reranker), (Object::Llm, llm)]
    };
    for ((what, id), (_, known)) in chosen(&target.retrieval).into_iter().zip(chosen(&own)) {
        if let Some(id) = id.filter(|id| known.as_ref() != Some(id)) {
            services::get(what, &id)?;
        }
    }
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
    let bounds = AnswerBounds::new(&target.retrieval, &target.preprocess);
    let filter = request.filter.as_ref();
    let find = |bounds: &AnswerBounds| Ok(fuse::of_one(dense(&target, vector, filter, bounds)?));
    let candidates = diversity::recalled(&target.retrieval.diversity, &bounds, find)?;
    finish(&target, request, &bounds, None, candidates)
}

/// The stages after recall and fusion. `question`: in words, where it has some.
fn finish(
    target: &Target,
    request: &Request,
    bounds: &AnswerBounds,
    question: Option<&str>,
    candidates: Vec<Candidate>,
) -> Result<Vec<Hit>> {
    let (ranked, why_not) = reranking::rerank(target, bounds, question, candidates);
    let vectors = |ids: &[Uuid]| target.vector_db.store().vectors(target.build_no, ids);
    let ranked = diversity::diverse(ranked, &target.retrieval.diversity, bounds, vectors)?;
    let mut hits = shape::shape(ranked, &target.kb_id, bounds, request.explain);
    if let Some(why_not) = why_not {
        shape::mark_not_reranked(&mut hits, &why_not);
    }
    if bounds.dedupe && !hits.is_empty() {
        let hashes: Vec<Vec<u8>> = hits.iter().map(|hit| hit.row.content_hash.clone()).collect();
        shape::add_places(&mut hits, present_places(target, &hashes)?);
    }
    surrounded(target, hits, bounds, request.as_context)
}
