//! What was found for a question, and the part of it that fits into the prompt.

use super::token_counter::TokenCounter;
use crate::memory::recall::{Recall, Recalled, recall};
use crate::query::context::{self, members};
use crate::query::query::logged;
use crate::query::query_several::together;
use kb_search::Request;
use kb_search::context::{Cited, text};
use kb_types::context_format::ContextFormat;
use kb_types::error::Result;
use kb_types::{Hit, Json};
use serde_json::json;

/// The knowledge bases that are asked.
pub enum Asked {
    One(String),
    Several(Vec<String>),
}

/// The passages that answer a question, best first.
pub struct Found {
    pub hits: Vec<Hit>,
    /// The knowledge base that was named first.
    pub kb_no: i64,
    /// The most tokens of all passages that the knowledge bases allow.
    max_tokens: Option<usize>,
    cited: Vec<Cited>,
}

/// A passage as the model gets it.
pub struct Given {
    pub external_id: String,
    pub title: Option<String>,
    pub document_id: i64,
    pub chunk_id: String,
    pub kb_id: String,
    pub content: String,
    /// What the caller is told of it.
    pub described: Json,
}

/// The text with the passages, numbered from 1.
pub struct Written {
    pub text: String,
    pub given: Vec<Given>,
}

/// Asks the knowledge bases as kb.context does.
pub fn find(asked: &Asked, request: &Request, question: &str) -> Result<Found> {
    let mut request = request.clone();
    request.as_context = true;
    let (hits, kb_no, max_tokens) = match asked {
        Asked::One(kb_id) => {
            request.kb_id = kb_id.clone();
            let answer = logged(&request, question)?;
            (answer.hits, answer.target.kb_no, answer.bounds.max_tokens)
        }
        Asked::Several(kb_ids) => {
            let together = together(kb_ids, &request, question, None)?;
            (together.hits, together.first.kb_no, together.max_tokens)
        }
    };
    let cited = context::cited(hits.iter())?;
    Ok(Found { hits, kb_no, max_tokens, cited })
}

impl Found {
    /// Writes as many of the passages as fit, best first.
    pub fn write(&self, room: usize, counter: &TokenCounter) -> Result<Written> {
        if self.hits.is_empty() {
            return Ok(Written { text: String::new(), given: Vec::new() });
        }
        let most = self.max_tokens.map_or(room, |most| most.min(room));
        let count = |texts: &[String]| counter.counts(texts);
        let written = text(&self.cited, ContextFormat::Xml, Some(most), &count)?;
        let given = (1..).zip(&written.blocks).map(|(index, block)| {
            let (hit, cited) = (&self.hits[block.passage], &self.cited[block.passage]);
            let content = cited.content.get(..block.bytes).unwrap_or(&cited.content).to_string();
            let json = |value: &str| Json::new(json!(value).to_string());
            let mut described = members(index, block, hit, cited);
            described.push(("chunk_id", json(&hit.chunk_id.to_string())));
            described.push(("content", json(&content)));
            Given {
                external_id: hit.row.external_id.clone(),
                title: hit.row.title.clone(),
                document_id: hit.row.place.document_id,
                chunk_id: hit.chunk_id.to_string(),
                kb_id: hit.kb_id.clone(),
                described: Json::object(&described),
                content,
            }
        });
        Ok(Written { given: given.collect(), text: written.text })
    }
}

/// The facts that are remembered about a subject and answer the question, best first.
pub fn remembered(memory: &str, question: &str, subject: Option<&str>) -> Result<Vec<Recalled>> {
    recall(memory, question, Recall { subject: subject.map(str::to_string), ..Recall::default() })
}

/// What the caller is told of a fact.
pub fn described(recalled: &Recalled) -> Json {
    let Recalled { entry, score, .. } = recalled;
    Json::new(
        json!({"id": entry.id, "subject": entry.subject, "fact": entry.fact, "score": score}).to_string(),
    )
}
