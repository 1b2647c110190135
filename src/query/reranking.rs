//! Reranking the candidates of a question.

use crate::models::ask;
use crate::query::sql::search::SearchTarget;
use kb_search::request::AnswerBounds;
use kb_search::rerank_order;
use kb_types::Candidate;
use kb_types::error::Result;
use std::time::Duration;

/// Returns candidates in the order of the reranker, if the knowledge base or the call names one. If the
/// reranker fails, the order stays and the reason is returned. `texts` reads the rows of candidates.
pub fn rerank(
    target: &SearchTarget,
    bounds: &AnswerBounds,
    question: Option<&str>,
    candidates: Vec<Candidate>,
    texts: impl FnOnce(&mut [Candidate]) -> Result<()>,
) -> Result<(Vec<Candidate>, Option<String>)> {
    let Some(wanted) = &target.retrieval.rerank else { return Ok((candidates, None)) };
    let Some(question) = question else {
        let why = "the question is a vector, and a reranker needs its text";
        return Ok((candidates, Some(why.into())));
    };
    let chosen = match ask::choose(&wanted.reranker) {
        Ok(chosen) => chosen,
        Err(error) => return Ok((candidates, Some(error.to_string()))),
    };
    let most = bounds.top_k.saturating_mul(wanted.retrieval_factor);
    let mut split = rerank_order::split(candidates, bounds, most);
    texts(&mut split.read)?;
    split.keep_what_fits(chosen.longest_text());
    if split.read.is_empty() {
        return Ok((split.unchanged(), None));
    }
    let timeout = Duration::from_millis(wanted.timeout_ms);
    Ok(match ask::scores(&chosen, question, split.texts(), target.kb_no, timeout) {
        Ok(scores) => (split.by(&scores), None),
        Err(error) => (split.unchanged(), Some(error.to_string())),
    })
}
