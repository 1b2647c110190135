//! Reranking the candidates of a question.

use crate::models::ask;
use crate::query::sql::search::Target;
use kb_search::request::AnswerBounds;
use kb_search::rerank;
use kb_types::Candidate;
use kb_types::error::Result;
use std::time::Duration;

/// Candidates in the reranker's order, where the knowledge base or the call names one. If it cannot say, they stay as they
/// were, and the reason is given. `texts` gives candidates their rows.
pub fn rerank(
    target: &Target,
    bounds: &AnswerBounds,
    question: Option<&str>,
    candidates: Vec<Candidate>,
    texts: impl FnOnce(&mut [Candidate]) -> Result<()>,
) -> Result<(Vec<Candidate>, Option<String>)> {
    let Some(wanted) = &target.retrieval.rerank else { return Ok((candidates, None)) };
    let Some(question) = question else {
        let why = "the question is a vector, and has no words for a reranker to read";
        return Ok((candidates, Some(why.into())));
    };
    let chosen = match ask::choose(&wanted.reranker) {
        Ok(chosen) => chosen,
        Err(error) => return Ok((candidates, Some(error.to_string()))),
    };
    let most = bounds.top_k.saturating_mul(wanted.retrieval_factor);
    let mut split = rerank::split(candidates, bounds, most);
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
