//! The use case behind kb.query: embed the question, look, and shape the answer.

use super::plan::{self, Step};
use super::{Hit, dedupe, filter, trim};
use crate::catalog::access::access;
use crate::error::{Error, Result};
use crate::gateway::client;
use crate::model::fields::Fields;
use crate::model::knowledge_base::{MAX_TOP_K, OnError};
use crate::model::{Json, Kind};
use crate::pg::{report, wake};
use crate::settings;
use crate::store::jobs;
use crate::store::knowledge_bases::current_tenant;
use crate::store::search::{self, Scan, Target};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// A question's bounds; None means the knowledge base's own setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub kb_id: String,
    pub top_k: Option<usize>,
    pub min_score: Option<f64>,
    pub filter: Option<Json>,
    pub max_tokens: Option<usize>,
    pub on_error: Option<OnError>,
}

impl Request {
    /// Checks every argument; `mode` must be dense in this version, `options` is {on_error}.
    pub fn new(
        kb_id: &str,
        top_k: Option<i32>,
        min_score: Option<f64>,
        filter: Option<Json>,
        max_tokens: Option<i32>,
        mode: &str,
        options: Option<Value>,
    ) -> Result<Self> {
        let argument = |argument, problem: String| Err(Error::Argument { argument, problem });
        if let Some(k) = top_k
            && !(1..=MAX_TOP_K).contains(&i64::from(k))
        {
            return argument("top_k", format!("{k} is not in 1 to {MAX_TOP_K}"));
        }
        if let Some(score) = min_score
            && !score.is_finite()
        {
            return argument("min_score", format!("{score} is not finite"));
        }
        if let Some(tokens) = max_tokens
            && tokens < 1
        {
            return argument("max_tokens", format!("{tokens} is below 1"));
        }
        filter.as_ref().map_or(Ok(()), filter::check)?;
        if mode != "dense" {
            return argument("mode", format!("\"{mode}\" is not available in this version of kb; use dense"));
        }
        let mut fields = Fields::new("options", options.as_ref().unwrap_or(&Value::Null));
        let on_error = fields.text("on_error");
        if let Some(word) = &on_error
            && OnError::parse(word).is_none()
        {
            fields.problem("on_error", format_args!("\"{word}\" is not one of error, keyword"));
        }
        if let Some(problem) = fields.finish().into_iter().next() {
            return argument("options", problem);
        }
        Ok(Request {
            kb_id: kb_id.to_string(),
            top_k: top_k.map(|k| k as usize),
            min_score,
            // An empty filter is none.
            filter: filter.filter(|filter| !filter.is_empty()),
            max_tokens: max_tokens.map(|t| t as usize),
            on_error: on_error.as_deref().and_then(OnError::parse),
        })
    }
}

/// Answers a question in words.
pub fn by_text(request: &Request, query: &str) -> Result<Vec<Hit>> {
    if query.trim().is_empty() {
        return Err(Error::Argument { argument: "query", problem: "it is empty".into() });
    }
    // Without preload, whoever comes first after a restart has the waiting work taken up.
    if !report::in_recovery() && !wake::worker_runs() && jobs::any_visible()? {
        wake::ensure_worker();
    }
    let target = search::target(&request.kb_id)?;
    let timeout = settings::gateway_timeout();
    let tenant = current_tenant()?;
    let vectors = access(&target.embedder, &tenant).and_then(|access| {
        let (texts, whose) = (vec![query.to_string()], client::this_client(&tenant, target.kb_no));
        client::embed(&target.embedder, &access, Kind::Query, texts, whose, timeout)
    });
    match vectors {
        Ok(vectors) => nearest(&target, request, &vectors.numbers()),
        Err(error) if request.on_error.unwrap_or(target.retrieval.on_error) == OnError::Keyword => {
            by_keyword(&target, request, query, &error)
        }
        Err(error) => Err(error),
    }
}

/// The answer without a vector: by full text, each row saying so and why in its locator.
fn by_keyword(target: &Target, request: &Request, query: &str, error: &Error) -> Result<Vec<Hit>> {
    let top_k = request.top_k.unwrap_or(target.retrieval.top_k);
    let max_tokens = request.max_tokens.or(target.retrieval.max_tokens);
    let dedupe = target.preprocess.dedupe;
    // Equal texts count once; of more copies than this the rest of the answer may be short.
    let limit = if dedupe { top_k * 4 + 16 } else { top_k };
    let mut hits = search::by_keyword(target, query, request.filter.as_ref(), limit)?;
    if dedupe {
        hits = dedupe::distinct(hits);
    }
    let mut hits = trim::trim(hits, f64::MIN, top_k, max_tokens);
    if dedupe {
        add_places(target, &mut hits)?;
    }
    for hit in &mut hits {
        if let Value::Object(locator) = &mut hit.locator {
            locator.insert("answered_by".into(), json!("keyword"));
            locator.insert("reason".into(), json!(error.to_string()));
        }
    }
    Ok(hits)
}

/// Answers a question that is a vector already.
pub fn by_vector(request: &Request, vector: &[f32]) -> Result<Vec<Hit>> {
    let target = search::target(&request.kb_id)?;
    if vector.len() != target.table.dimension {
        return Err(Error::Argument {
            argument: "vector",
            problem: format!(
                "it has {} dimensions, the vectors of knowledge base \"{}\" have {}",
                vector.len(),
                request.kb_id,
                target.table.dimension
            ),
        });
    }
    nearest(&target, request, vector)
}

fn nearest(target: &Target, request: &Request, vector: &[f32]) -> Result<Vec<Hit>> {
    let top_k = request.top_k.unwrap_or(target.retrieval.top_k);
    let min_score = request.min_score.unwrap_or(target.retrieval.min_score);
    let max_tokens = request.max_tokens.or(target.retrieval.max_tokens);
    let filter = request.filter.as_ref();
    let dedupe = target.preprocess.dedupe;
    let matching = match filter {
        Some(filter) => Some(search::count_matching(target, filter, plan::EXACT_BELOW + 1)?),
        None => None,
    };
    let mut hits = Vec::new();
    let mut steps = VecDeque::from(plan::steps(top_k, dedupe, matching));
    while let Some(step) = steps.pop_front() {
        let (limit, scan) = match step {
            Step::Index { limit } => {
                (limit, Scan::Index { ef_search: plan::ef_search(target.retrieval.ef_search, limit) })
            }
            Step::Exact { limit } => (limit, Scan::Exact),
            Step::ExactDistinct { limit } => (limit, Scan::ExactDistinct),
        };
        let candidates = search::nearest(target, vector, filter, limit, scan)?;
        let (found, last_score) = (candidates.len(), candidates.last().map(|candidate| candidate.score));
        hits = search::hits(target, &candidates)?;
        let is_hidden = hits.len() < found;
        if dedupe {
            hits = dedupe::distinct(hits);
        }
        // An exact scan that gave fewer rows than it was asked for has seen them all.
        let exhausted = scan == Scan::Exact && found < limit;
        if exhausted || plan::is_enough(hits.len(), top_k, found, limit, last_score, min_score) {
            break;
        }
        // The caller may not read some of them, by a policy of the database's own: look further, twice as far each time.
        if steps.is_empty() && is_hidden {
            steps.push_back(Step::Exact { limit: limit * 2 });
        }
    }
    let mut hits = trim::trim(hits, min_score, top_k, max_tokens);
    if dedupe {
        add_places(target, &mut hits)?;
    }
    Ok(hits)
}

/// Names in each locator where else its text stands: `also_in`, a list of external_id and chunk_id.
fn add_places(target: &Target, hits: &mut [Hit]) -> Result<()> {
    if hits.is_empty() {
        return Ok(());
    }
    let hashes: Vec<Vec<u8>> = hits.iter().map(|hit| hit.content_hash.clone()).collect();
    let mut places: HashMap<Vec<u8>, Vec<(uuid::Uuid, String)>> = HashMap::new();
    for (hash, chunk_id, external_id) in search::places(target, &hashes)? {
        places.entry(hash).or_default().push((chunk_id, external_id));
    }
    for hit in hits {
        let Some(all) = places.get(&hit.content_hash) else { continue };
        let others: Vec<Value> = all
            .iter()
            .filter(|(chunk_id, _)| *chunk_id != hit.chunk_id)
            .map(|(chunk_id, external_id)| {
                json!({ "external_id": external_id, "chunk_id": chunk_id.to_string() })
            })
            .collect();
        if !others.is_empty()
            && let Value::Object(locator) = &mut hit.locator
        {
            locator.insert("also_in".into(), Value::Array(others));
        }
    }
    Ok(())
}
