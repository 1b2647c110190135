//! kb.query of several knowledge bases at once.

use super::query::query;
use crate::error::{Error, Result};
use crate::model::Hit;
use crate::retrieve::{Request, several};
use crate::store::search;
use std::collections::HashSet;

/// Knowledge bases at most: each is asked in turn.
const MOST: usize = 100;

/// Asks each, under its own settings where the call leaves something open, and fuses the answers. Rows and tokens of the
/// whole are bounded by the call, else by the largest bound that one of them has.
pub fn query_several(kb_ids: &[String], request: &Request, question: &str) -> Result<Vec<Hit>> {
    let problem = |problem| Err(Error::Argument { argument: "kb_ids", problem });
    if kb_ids.is_empty() {
        return problem("it is empty".to_string());
    }
    if kb_ids.len() > MOST {
        return problem(format!("it has {}; at most {MOST} are asked at once", kb_ids.len()));
    }
    let mut seen = HashSet::new();
    let (mut requests, mut top_k, mut max_tokens) = (Vec::new(), 0, Some(0));
    for kb_id in kb_ids.iter().filter(|id| seen.insert(id.as_str())) {
        let mut request = request.clone();
        request.kb_id = kb_id.clone();
        let retrieval = request.retrieval(&search::target(kb_id)?.retrieval)?;
        top_k = top_k.max(retrieval.top_k);
        // None is no bound: larger than any.
        max_tokens = max_tokens.zip(retrieval.max_tokens).map(|(most, own)| most.max(own));
        requests.push(request);
    }
    let mut fusion = several::Fusion::new(top_k);
    for request in requests {
        fusion.add(query(&request, question)?);
    }
    Ok(fusion.finish(max_tokens))
}
