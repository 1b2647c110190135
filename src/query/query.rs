//! kb.query and kb.query_vector: embed the question, recall, fuse, rerank, diversify, shape, surround.
//!
//! The functions are STABLE and take no transaction id, so that they work on a hot standby. An answer that
//! does not come from vectors says so in every row, and has no score.

use super::candidates::{CandidateSearch, add_rows};
use super::question_vector::embed;
use crate::jobs::queue;
use crate::models::services;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::query::dense::similarities;
use crate::query::log_question;
use crate::query::removed_rows::present_places;
use crate::query::reranking;
use crate::query::sql::filtered_chunks::FilteredChunks;
use crate::query::sql::search;
use crate::query::sql::search::SearchTarget;
use crate::query::surroundings::surrounded;
use crate::tables::changes;
use crate::vectors::VectorDb;
use kb_search::journal::Journal;
use kb_search::request::{AnswerBounds, Request};
use kb_search::{diversity, shape, words};
use kb_types::error::{Error, Result};
use kb_types::retrieval::OnError;
use kb_types::syntax::Syntax;
use kb_types::vector_db::question_problem;
use kb_types::{Candidate, Hit, Kind, Mode, Retrieval, ServiceKind};
use serde_json::json;
use std::time::Instant;
use uuid::Uuid;

/// Answers a question in words, and logs it if the knowledge base specifies that.
pub fn query(request: &Request, query: &str) -> Result<Vec<Hit>> {
    Ok(logged(request, query)?.hits)
}

/// Does what [`query`] does, and also returns what was used in the search.
pub fn logged(request: &Request, query: &str) -> Result<Answer> {
    let begun = Instant::now();
    let mut answer = answer(request, query, &Journal::closed())?;
    log_question::log(&answer.target, request, query, begun.elapsed(), &mut answer.hits);
    Ok(answer)
}

/// An answer, and what was used to search for it.
pub struct Answer {
    pub hits: Vec<Hit>,
    pub target: SearchTarget,
    pub bounds: AnswerBounds,
    /// The vector of the question. None: it was not embedded.
    pub vector: Option<Vec<f32>>,
}

/// Does what [`query`] does, but never logs the question, and records the steps in a journal.
pub fn answer(request: &Request, query: &str, journal: &Journal) -> Result<Answer> {
    if query.trim().is_empty() {
        return Err(Error::Argument { argument: "query", problem: "it is empty".into() });
    }
    // Without preload, the first question after a restart starts the worker if jobs are waiting.
    if !report::in_recovery()
        && !wake::worker_runs()
        && (queue::any_visible()? || as_owner(changes::any_waiting)?)
    {
        wake::ensure_worker();
    }
    let answer = answer_of(request, query, target(request)?, journal)?;
    let Retrieval { mode, syntax, .. } = answer.target.retrieval;
    let is_required = syntax.is_some_and(|syntax| !words::read(query, syntax).phrases.is_empty());
    if !answer.hits.is_empty() || mode != Mode::Keyword || !is_required {
        return Ok(answer);
    }
    let mut target = answer.target;
    target.retrieval.syntax = Some(Syntax::WithoutPhrases);
    let mut answer = answer_of(request, query, target, journal)?;
    shape::mark_without_phrases(&mut answer.hits);
    Ok(answer)
}

fn answer_of(request: &Request, query: &str, target: SearchTarget, journal: &Journal) -> Result<Answer> {
    let bounds = AnswerBounds::new(&target.retrieval, &target.preprocess);
    let mut failed = None;
    let mut vector = None;
    if target.retrieval.mode != Mode::Keyword {
        match journal.time("embed", || embed(&target, Kind::Query, &[query.to_string()])) {
            Ok(mut vectors) => vector = vectors.pop(),
            Err(error) if target.retrieval.on_error == OnError::Keyword => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    // A reranker reads more candidates than the answer has rows.
    let wide = AnswerBounds { top_k: target.retrieval.recalled(), ..bounds };
    let filtered = request.filter.as_ref().map(|filter| FilteredChunks::new(&target, filter));
    let search = CandidateSearch { target: &target, filtered: filtered.as_ref(), journal };
    let mut legs = search.legs(query, vector.as_deref())?;
    let left_out = legs.words_left_out();
    let mut candidates = legs.find_diverse(&wide)?;
    let mut problem = None;
    if target.retrieval.transform.is_some() {
        (candidates, problem) = search.find_reworded(query, vector.as_deref(), &wide, candidates)?;
        journal.stage("transform", &candidates);
    }
    let asked = AskedQuestion { words: Some(query), vector: vector.as_deref() };
    let mut hits = finish(&target, request, &bounds, asked, candidates, journal)?;
    if let Some(error) = failed {
        shape::mark_keyword(&mut hits, &error.to_string());
    }
    if let Some(problem) = problem {
        shape::mark_not_reworded(&mut hits, &problem);
    }
    if left_out > 0 {
        shape::mark_words_left_out(&mut hits, left_out);
    }
    Ok(Answer { hits, bounds, vector, target })
}

/// The knowledge base that is asked. Returns an error if the filter names a key that it does not allow.
pub fn target(request: &Request) -> Result<SearchTarget> {
    let mut target = search::target(&request.kb_id)?;
    let own = std::mem::take(&mut target.retrieval);
    target.retrieval = request.retrieval(&own)?;
    // A mistake in the call is an error before anything is paid for; the knowledge base's own settings are
    // not the caller's mistake.
    let chosen = |retrieval: &Retrieval| {
        let reranker = retrieval.rerank.as_ref().map(|rerank| rerank.reranker.clone());
        let llm = retrieval.transform.as_ref().map(|transform| transform.llm.clone());
        [(ServiceKind::Reranker, reranker), (ServiceKind::Llm, llm)]
    };
    for ((what, id), (_, known)) in chosen(&target.retrieval).into_iter().zip(chosen(&own)) {
        if let Some(id) = id.filter(|id| known.as_ref() != Some(id)) {
            services::get(what, &id)?;
        }
    }
    match target.retrieval.key_problem(request.filter_keys.iter().map(String::as_str)) {
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
    let filtered = request.filter.as_ref().map(|filter| FilteredChunks::new(&target, filter));
    let journal = Journal::closed();
    let search = CandidateSearch { target: &target, filtered: filtered.as_ref(), journal: &journal };
    let candidates = search.by_meaning(vector)?.find_diverse(&bounds)?;
    let asked = AskedQuestion { words: None, vector: Some(vector) };
    finish(&target, request, &bounds, asked, candidates, &journal)
}

/// A question in words, if it has any, and as a vector, if it was embedded.
struct AskedQuestion<'a> {
    words: Option<&'a str>,
    vector: Option<&'a [f32]>,
}

/// The stages after recall and fusion.
fn finish(
    target: &SearchTarget,
    request: &Request,
    bounds: &AnswerBounds,
    question: AskedQuestion,
    candidates: Vec<Candidate>,
    journal: &Journal,
) -> Result<Vec<Hit>> {
    let texts = |candidates: &mut [Candidate]| add_rows(target, candidates, journal);
    let (mut ranked, why_not) =
        journal.time("rerank", || reranking::rerank(target, bounds, question.words, candidates, texts))?;
    if target.retrieval.rerank.is_some() {
        journal.stage("rerank", &ranked);
        journal.note("rerank", "problem", || json!(why_not));
    }
    let vectors = |ids: &[Uuid]| target.vector_db.store().vectors(target.build_no, ids);
    let diversity = &target.retrieval.diversity;
    if diversity.collapse.is_some() {
        add_rows(target, &mut ranked, journal)?;
    }
    let ranked = journal.time("diversity", || {
        diversity::diverse(ranked, diversity, bounds, vectors, journal, &report::check_interrupts)
    })?;
    if !diversity.is_none() {
        journal.stage("diversity", &ranked);
    }
    // The text around the rows of a context counts, too, so their tokens are bounded where the context is
    // written.
    let max_tokens = bounds.max_tokens.filter(|_| !request.as_context);
    let mut chosen = journal.time("shape", || shape::choose(ranked, &AnswerBounds { max_tokens, ..*bounds }));
    journal.stage("shape", &chosen);
    add_rows(target, &mut chosen, journal)?;
    if let Some(vector) = question.vector {
        journal.time("compare", || similarities(target, vector, &mut chosen))?;
    }
    let mut hits = shape::hits(chosen, &target.kb_id, request.explain);
    if let Some(why_not) = why_not {
        shape::mark_not_reranked(&mut hits, &why_not);
    }
    if bounds.dedupe && !hits.is_empty() {
        let hashes: Vec<Vec<u8>> = hits.iter().map(|hit| hit.row.content_hash.clone()).collect();
        shape::add_places(&mut hits, present_places(target, &hashes)?);
    }
    if target.retrieval.surroundings.is_none() && !request.as_context {
        return Ok(hits);
    }
    let hits = journal.time("surround", || surrounded(target, hits, bounds, request.as_context))?;
    journal.rows("surround", &hits);
    Ok(hits)
}
