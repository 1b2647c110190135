//! kb.query and kb.query_vector: embed the question, recall, fuse, rerank, diversify, shape, surround.

use super::query_log;
use crate::catalog::embedder_access::access;
use crate::catalog::reranking;
use crate::catalog::rewording::{Reworded, reworded};
use crate::error::{Error, Object, Result};
use crate::gateway::client;
use crate::model::retrieval::OnError;
use crate::model::syntax::Syntax;
use crate::model::vector_db::question_problem;
use crate::model::{Candidate, Filter, Hit, Kind, Mode, Retrieval};
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::retrieve::dense::{dense, similarities};
use crate::retrieve::gone::present_places;
use crate::retrieve::journal::Journal;
use crate::retrieve::keyword::keyword;
use crate::retrieve::request::{AnswerBounds, Request};
use crate::retrieve::surroundings::surrounded;
use crate::retrieve::{diversity, fuse, shape, transform, words};
use crate::settings;
use crate::store::search::{self, Target};
use crate::store::vector_store::VectorDb;
use crate::store::{changes, jobs, services, tenants};
use serde_json::json;
use std::time::Instant;
use uuid::Uuid;

/// Answers a question in words, and logs it where the knowledge base wants that.
pub fn query(request: &Request, query: &str) -> Result<Vec<Hit>> {
    Ok(logged(request, query)?.hits)
}

/// As [`query`], with what the answer was looked for with.
pub(super) fn logged(request: &Request, query: &str) -> Result<Answer> {
    let begun = Instant::now();
    let mut answer = answer(request, query, &Journal::closed())?;
    query_log::log(&answer.target, request, query, begun.elapsed(), &mut answer.hits);
    Ok(answer)
}

/// An answer, and what it was looked for with.
pub(super) struct Answer {
    pub hits: Vec<Hit>,
    pub target: Target,
    pub bounds: AnswerBounds,
    /// The question's; None where it was not embedded.
    pub vector: Option<Vec<f32>>,
}

/// As [`query`], but never logs, and writes down how.
pub(super) fn answer(request: &Request, query: &str, journal: &Journal) -> Result<Answer> {
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

fn answer_of(request: &Request, query: &str, target: Target, journal: &Journal) -> Result<Answer> {
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
    let filter = request.filter.as_ref();
    let find = |bounds: &AnswerBounds| {
        Search { target: &target, filter, bounds, journal }.find(query, vector.as_deref())
    };
    let mut candidates =
        diversity::recalled(&target.retrieval.diversity, &wide, find, &report::check_interrupts)?;
    let mut problem = None;
    if target.retrieval.transform.is_some() {
        let search = Search { target: &target, filter, bounds: &wide, journal };
        (candidates, problem) = search.find_reworded(query, vector.as_deref(), candidates)?;
        journal.stage("transform", &candidates);
    }
    let asked = Question { words: Some(query), vector: vector.as_deref() };
    let mut hits = finish(&target, request, &bounds, asked, candidates, journal)?;
    if let Some(error) = failed {
        shape::mark_keyword(&mut hits, &error.to_string());
    }
    if let Some(problem) = problem {
        shape::mark_not_reworded(&mut hits, &problem);
    }
    Ok(Answer { hits, bounds, vector, target })
}

/// Where candidates are looked for.
struct Search<'a> {
    target: &'a Target,
    filter: Option<&'a Filter>,
    bounds: &'a AnswerBounds,
    journal: &'a Journal,
}

impl Search<'_> {
    /// Candidates for a question, best first; without a vector by its words.
    fn find(&self, words: &str, vector: Option<&[f32]>) -> Result<Vec<Candidate>> {
        let Search { target, bounds, journal, .. } = *self;
        Ok(match vector {
            None => fuse::of_one(self.by_words(words, bounds)?),
            Some(vector) if target.retrieval.mode == Mode::Hybrid => {
                let top_k = bounds.top_k.max(target.retrieval.hybrid.candidates);
                let side = AnswerBounds { top_k, ..*bounds };
                let found = (self.by_meaning(vector, &side)?, self.by_words(words, &side)?);
                journal.time("fuse", || {
                    let mut fused =
                        fuse::fuse(found.0, found.1, bounds.dedupe, top_k, &target.retrieval.hybrid);
                    self.compare(vector, &mut fused)?;
                    journal.stage("fuse", &fused);
                    Ok::<_, Error>(fused)
                })?
            }
            Some(vector) => fuse::of_one(self.by_meaning(vector, bounds)?),
        })
    }

    /// Gives what has no similarity its own, where that can leave it out; what is in the answer gets it in any case.
    fn compare(&self, vector: &[f32], candidates: &mut [Candidate]) -> Result<()> {
        match self.bounds.min_score > self.target.vector_db.metric.least_score() {
            true => similarities(self.target, vector, candidates),
            false => Ok(()),
        }
    }

    fn by_meaning(&self, vector: &[f32], bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let Search { target, filter, journal, .. } = *self;
        let found = journal.time("dense", || dense(target, vector, filter, bounds, journal))?;
        journal.stage("dense", &found);
        Ok(found)
    }

    fn by_words(&self, words: &str, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let Search { target, filter, journal, .. } = *self;
        let found = journal.time("keyword", || keyword(target, words, filter, bounds, journal))?;
        journal.stage("keyword", &found);
        Ok(found)
    }

    /// The question's candidates and those for other words of it, as one list, and why some of these are not there.
    fn find_reworded(
        &self,
        question: &str,
        vector: Option<&[f32]>,
        own: Vec<Candidate>,
    ) -> Result<(Vec<Candidate>, Option<String>)> {
        let Search { target, bounds, journal, .. } = *self;
        let Reworded { questions, passage, mut problem } = journal
            .time("transform", || reworded(&target.retrieval, target.kb_no, question, vector.is_some()));
        journal.note("transform", "questions", || json!(questions));
        journal.note("transform", "passage", || json!(passage));
        // What they find is not what the question finds, and a model's quotation marks are text.
        let closed = Journal::closed();
        let mut plain = target.clone();
        plain.retrieval.syntax = Some(Syntax::Plain);
        let others = Search { target: &plain, journal: &closed, ..*self };
        let mut lists = vec![own];
        let mut embedded = |kind, texts: &[String]| match embed(target, kind, texts) {
            Ok(vectors) => vectors.into_iter().map(Some).collect(),
            // A model reads only so much, which a chat model does not know.
            Err(Error::InputTooLong { .. }) => {
                texts.iter().map(|text| beginning(target, kind, text)).collect()
            }
            Err(error) => {
                problem = Some(error.to_string());
                Vec::new()
            }
        };
        match vector {
            None => {
                for words in &questions {
                    lists.push(others.find(words, None)?);
                }
            }
            Some(_) => {
                let vectors: Vec<Option<Vec<f32>>> = embedded(Kind::Query, &questions);
                for (words, vector) in questions.iter().zip(vectors) {
                    let Some(vector) = vector else { continue };
                    lists.push(others.find(words, Some(&vector))?);
                }
                for vector in embedded(Kind::Document, passage.as_slice()).into_iter().flatten() {
                    lists.push(others.by_meaning(&vector, bounds)?);
                }
            }
        }
        if lists.len() == 1 {
            return Ok((lists.swap_remove(0), problem));
        }
        let mut fused = transform::fuse(lists, bounds.dedupe, target.retrieval.hybrid.k);
        if let Some(vector) = vector {
            self.compare(vector, &mut fused)?;
        }
        Ok((fused, problem))
    }
}

/// The vector of as much of a text as the model reads: all of it, a half, a quarter, an eighth.
fn beginning(target: &Target, kind: Kind, text: &str) -> Option<Vec<f32>> {
    let parts = (0..4).map(|times| text[..text.floor_char_boundary(text.len() >> times)].to_string());
    parts.into_iter().find_map(|part| embed(target, kind, &[part]).ok()?.pop())
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
    let filter = request.filter.as_ref();
    let journal = Journal::closed();
    let find = |bounds: &AnswerBounds| Ok(fuse::of_one(dense(&target, vector, filter, bounds, &journal)?));
    let candidates =
        diversity::recalled(&target.retrieval.diversity, &bounds, find, &report::check_interrupts)?;
    let asked = Question { words: None, vector: Some(vector) };
    finish(&target, request, &bounds, asked, candidates, &journal)
}

/// A question in words, where it has some, and as a vector, where it was embedded.
struct Question<'a> {
    words: Option<&'a str>,
    vector: Option<&'a [f32]>,
}

/// The stages after recall and fusion.
fn finish(
    target: &Target,
    request: &Request,
    bounds: &AnswerBounds,
    question: Question,
    candidates: Vec<Candidate>,
    journal: &Journal,
) -> Result<Vec<Hit>> {
    let (ranked, why_not) =
        journal.time("rerank", || reranking::rerank(target, bounds, question.words, candidates));
    if target.retrieval.rerank.is_some() {
        journal.stage("rerank", &ranked);
        journal.note("rerank", "problem", || json!(why_not));
    }
    let vectors = |ids: &[Uuid]| target.vector_db.store().vectors(target.build_no, ids);
    let diversity = &target.retrieval.diversity;
    let ranked = journal.time("diversity", || {
        diversity::diverse(ranked, diversity, bounds, vectors, journal, &report::check_interrupts)
    })?;
    if !diversity.is_none() {
        journal.stage("diversity", &ranked);
    }
    // What is written around the rows of a context counts, too: their tokens are bounded where it is written.
    let max_tokens = bounds.max_tokens.filter(|_| !request.as_context);
    let mut chosen = journal.time("shape", || shape::choose(ranked, &AnswerBounds { max_tokens, ..*bounds }));
    journal.stage("shape", &chosen);
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
