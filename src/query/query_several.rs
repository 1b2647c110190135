//! kb.query over several knowledge bases at once.

use super::query::{logged, target};
use crate::query::sql::search::SearchTarget;
use kb_search::Request;
use kb_search::several_knowledge_bases;
use kb_search::several_knowledge_bases::{Answer, Measure};
use kb_types::error::{Error, Result};
use kb_types::retrieval::{Fusion, Hybrid};
use kb_types::{Hit, Mode};
use std::collections::HashSet;

/// The most knowledge bases, because they are asked in turn.
const MOST: usize = 100;

/// The joint answer of several knowledge bases.
pub struct Together {
    pub hits: Vec<Hit>,
    /// The knowledge base that was named first.
    pub first: SearchTarget,
    pub max_tokens: Option<usize>,
}

/// Asks each knowledge base, under its own settings where the call leaves something open, and joins their
/// answers. `weights` belong to the knowledge bases in their order; without any, all count the same. Rows and
/// tokens of the joint answer are bounded by the call, or else by the largest bound of any of them.
pub fn query_several(
    kb_ids: &[String],
    request: &Request,
    question: &str,
    weights: Option<&[f64]>,
) -> Result<Vec<Hit>> {
    Ok(together(kb_ids, request, question, weights)?.hits)
}

pub fn together(
    kb_ids: &[String],
    request: &Request,
    question: &str,
    weights: Option<&[f64]>,
) -> Result<Together> {
    let problem = |problem| Err(Error::Argument { argument: "kb_ids", problem });
    if kb_ids.len() > MOST {
        return problem(format!("it has {} elements; at most {MOST} are allowed", kb_ids.len()));
    }
    if let Some(wrong) = weights.and_then(|weights| weights_problem(weights, kb_ids.len())) {
        return Err(Error::Argument { argument: "weights", problem: wrong });
    }
    let mut seen = HashSet::new();
    let (mut asked, mut top_k, mut max_tokens) = (Vec::new(), 0, Some(0));
    for (n, kb_id) in kb_ids.iter().enumerate().filter(|(_, id)| seen.insert(id.as_str())) {
        let mut request = request.clone();
        request.kb_id = kb_id.clone();
        let target = target(&request)?;
        top_k = top_k.max(target.retrieval.top_k);
        // None is no bound, and so larger than any.
        max_tokens = max_tokens.zip(target.retrieval.max_tokens).map(|(most, own)| most.max(own));
        let weight = weights.and_then(|weights| weights.get(n)).copied().unwrap_or(1.0);
        asked.push((request, target, weight));
    }
    let targets: Vec<&SearchTarget> = asked.iter().map(|(_, target, _)| target).collect();
    let Some(measure) = measure(&targets) else { return problem("it is empty".to_string()) };
    let mut fusion = several_knowledge_bases::AnswerFusion::new(top_k, measure);
    for (request, target, weight) in &asked {
        let answer = logged(request, question)?;
        // If an embedder or a reranker failed, there is nothing to compare.
        let is_comparable = match measure {
            Measure::Similarity | Measure::Both => answer.vector.is_some(),
            Measure::Reranker => answer.hits.iter().all(|hit| hit.row.locator.get("rerank_status").is_none()),
            Measure::Words | Measure::Ranks => true,
        };
        let alpha = alpha(&target.retrieval.hybrid);
        fusion.add(Answer { hits: answer.hits, weight: *weight, alpha, is_comparable });
    }
    // The text around the rows of a context counts, too.
    let hits = fusion.finish(max_tokens.filter(|_| !request.as_context));
    let first = asked.into_iter().next().map(|(_, target, _)| target);
    match first {
        Some(first) => Ok(Together { hits, first, max_tokens }),
        None => problem("it is empty".to_string()),
    }
}

fn weights_problem(weights: &[f64], count: usize) -> Option<String> {
    if weights.len() != count {
        return Some(format!("it has {} elements, but kb_ids has {count}", weights.len()));
    }
    let wrong = weights.iter().find(|weight| !(**weight > 0.0 && **weight <= 1e6))?;
    Some(format!("{wrong} is not greater than 0 and at most 1000000"))
}

/// The measure by which the rows of these knowledge bases can be compared, or None if there is none.
fn measure(targets: &[&SearchTarget]) -> Option<Measure> {
    let first = targets.first()?;
    let all = |is: &dyn Fn(&SearchTarget) -> bool| targets.iter().all(|target| is(target));
    let reranker =
        |target: &SearchTarget| target.retrieval.rerank.as_ref().map(|rerank| rerank.reranker.clone());
    let is_by_words = |target: &SearchTarget| target.retrieval.mode == Mode::Keyword;
    if !all(&|target| reranker(target).is_none()) {
        // Maximal marginal relevance changes the reranker's scores.
        let is_one =
            all(&|target| reranker(target) == reranker(first) && target.retrieval.diversity.mmr.is_none());
        return Some(if is_one { Measure::Reranker } else { Measure::Ranks });
    }
    if all(&is_by_words) {
        return Some(Measure::Words);
    }
    let fingerprint = first.embedder.fingerprint();
    let is_one = all(&|target| {
        target.embedder.fingerprint() == fingerprint
            && target.vector_db.metric == first.vector_db.metric
            && !is_by_words(target)
    });
    Some(match is_one {
        false => Measure::Ranks,
        true if all(&|target| target.retrieval.mode == Mode::Hybrid) => Measure::Both,
        true => Measure::Similarity,
    })
}

/// The weight of the similarity in relation to the words.
fn alpha(hybrid: &Hybrid) -> f64 {
    match hybrid.fusion {
        Fusion::ZScore | Fusion::Score => hybrid.alpha,
        Fusion::Rrf => hybrid.weights.dense / (hybrid.weights.dense + hybrid.weights.keyword),
    }
}
