//! kb.retrieve_context: asks the knowledge bases that are bound, and never fails because one of them does.

use super::resolve_bindings::{BoundKnowledgeBase, resolve_bindings};
use crate::query::query::{Answer, logged};
use crate::query::search::SearchTarget;
use kb_search::Request;
use kb_search::bindings::{Weighed, estimated_tokens, within};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::{Hit, Json};
use serde_json::{Value, json};

/// The most bindings that one call asks, because their knowledge bases are asked in turn.
const MOST: usize = 100;

/// What a knowledge base has answered.
pub struct BoundAnswer {
    pub bound: BoundKnowledgeBase,
    /// The rows within the tokens of the binding, best first.
    pub hits: Vec<Hit>,
    /// The knowledge base, if it could be asked.
    pub target: Option<SearchTarget>,
    /// Why there is no answer.
    pub failure: Option<Error>,
}

/// A row of the answer.
pub struct ContextRow {
    pub binding_id: String,
    /// None: the knowledge base failed, and there is no fallback.
    pub content: Option<String>,
    pub score: Option<f64>,
    pub token_estimate: usize,
    pub metadata: Json,
}

/// The rows of all knowledge bases, in the order of the bindings. A binding without rows has its fallback.
pub fn retrieve_context(scopes: &[String], question: &str) -> Result<Vec<ContextRow>> {
    Ok(ask(scopes, question)?.into_iter().flat_map(BoundAnswer::into_rows).collect())
}

/// Asks the knowledge bases that are bound in these scopes.
pub fn ask(scopes: &[String], question: &str) -> Result<Vec<BoundAnswer>> {
    if question.trim().is_empty() {
        return Err(Error::Argument { argument: "query", problem: "it is empty".into() });
    }
    let resolved = resolve_bindings(scopes)?;
    if resolved.len() > MOST {
        return Err(Error::Argument {
            argument: "scopes",
            problem: format!("they have {} bindings; at most {MOST} are asked together", resolved.len()),
        });
    }
    resolved.into_iter().map(|bound| ask_one(bound, question)).collect()
}

/// Asks one knowledge base. Only a mistake in the question is an error.
fn ask_one(bound: BoundKnowledgeBase, question: &str) -> Result<BoundAnswer> {
    match answer(&bound, question) {
        Ok(Answer { hits, target, bounds, .. }) => {
            let rows: Vec<Weighed> = hits.iter().enumerate().map(|(rank, hit)| weighed(hit, rank)).collect();
            let kept = within(&rows, bounds.max_tokens);
            let mut places = 0..;
            let hits = hits
                .into_iter()
                .filter(|_| places.next().is_some_and(|place| kept.binary_search(&place).is_ok()));
            Ok(BoundAnswer { bound, hits: hits.collect(), target: Some(target), failure: None })
        }
        Err(error @ Error::Argument { argument: "query", .. }) => Err(error),
        Err(error) => Ok(BoundAnswer { bound, hits: Vec::new(), target: None, failure: Some(error) }),
    }
}

fn answer(bound: &BoundKnowledgeBase, question: &str) -> Result<Answer> {
    let BoundKnowledgeBase { binding, kb_id, .. } = bound;
    let Some(kb_id) = kb_id else {
        return Err(Error::NotFound { what: ObjectKind::KnowledgeBase, id: binding.id_ref.clone() });
    };
    let filter = binding.filter.clone();
    let mut request =
        Request::new(kb_id, binding.top_k, binding.min_score, filter, binding.max_tokens, None, None)?;
    request.as_context = true;
    logged(&request, question)
}

/// How a row counts where not all fit.
pub fn weighed(hit: &Hit, rank: usize) -> Weighed {
    Weighed { score: hit.score, rank, tokens: usize::try_from(hit.row.token_count).unwrap_or(0) }
}

impl BoundAnswer {
    fn into_rows(self) -> Vec<ContextRow> {
        let BoundAnswer { bound, hits, failure, .. } = self;
        let row = |content: Option<String>, score, token_estimate, metadata| ContextRow {
            binding_id: bound.binding.id_ref.clone(),
            content,
            score,
            token_estimate,
            metadata,
        };
        if hits.is_empty() {
            let fallback = bound.binding.fallback.clone();
            if fallback.is_none() && failure.is_none() {
                return Vec::new();
            }
            let tokens = fallback.as_deref().map_or(0, estimated_tokens);
            let metadata = bound.about_fallback(fallback.is_some(), failure.as_ref());
            return vec![row(fallback, None, tokens, metadata)];
        }
        hits.into_iter()
            .map(|hit| {
                let (tokens, metadata) = (weighed(&hit, 0).tokens, bound.about(&hit));
                row(Some(hit.row.content), hit.score, tokens, metadata)
            })
            .collect()
    }
}

fn json(value: Value) -> Json {
    Json::new(value.to_string())
}

impl BoundKnowledgeBase {
    fn about(&self, hit: &Hit) -> Json {
        Json::object(&[
            ("kb_id", &json(json!(hit.kb_id))),
            ("inject_as", &json(json!(self.binding.inject_as))),
            ("external_id", &json(json!(hit.row.external_id))),
            ("title", &json(json!(hit.row.title))),
            ("chunk_id", &json(json!(hit.chunk_id.to_string()))),
            ("rank_score", &json(json!(hit.rank_score))),
            ("locator", &json(hit.row.locator.clone())),
            // Stored text, because numbers may have more digits than a JSON value holds here.
            ("metadata", &hit.row.metadata),
        ])
    }

    fn about_fallback(&self, is_fallback: bool, failure: Option<&Error>) -> Json {
        let mut about = json!({
            "kb_id": self.kb_id,
            "inject_as": self.binding.inject_as,
            "fallback": is_fallback,
        });
        if let (Some(error), Value::Object(members)) = (failure, &mut about) {
            members.insert("error".into(), json!(error.to_string()));
            members.insert("sqlstate".into(), json!(error.sqlstate()));
        }
        json(about)
    }
}
