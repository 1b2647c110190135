//! The documents that are sent and returned. Their comments are their descriptions in OpenAPI.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// JSON as the database printed it, so that no number changes.
type Raw = Box<RawValue>;

/// Any JSON.
pub type Anything = Value;
/// See RFC 9457.
pub type Problems = crate::Problem;

/// The envelope of a successful answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Envelope<T> {
    pub status: u16,
    pub message: String,
    pub data: T,
}

/// A page of knowledge bases.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KnowledgeBases {
    pub knowledge_bases: Vec<KnowledgeBase>,
    pub page: Page,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Page {
    /// The number of items of this page.
    pub count: usize,
    /// The cursor of the next page; null: this is the last one.
    pub next_cursor: Option<String>,
}

/// A knowledge base: its id and etag, and its settings as kb.get_knowledge_base returns them.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct KnowledgeBase(#[schemars(with = "Map<String, Value>")] pub Raw);

/// A knowledge base as it is declared in a file for kb.apply: embedder, vector_db, description, chunking,
/// preprocess, retrieval, metadata, sources and so on. A member that is left out stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Declared(pub Map<String, Value>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    #[serde(default)]
    pub strategy: Strategy,
}

/// upsert: what is new or changed; replace: everything, into a new build.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    #[default]
    Upsert,
    Replace,
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Upsert => "upsert",
            Strategy::Replace => "replace",
        }
    }
}

/// An ingestion that has begun.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Run {
    pub knowledge_base: String,
    /// The number of the run in kb.runs; null: there is nothing to do.
    pub run: Option<i64>,
}

/// A question, with what kb.query takes beside it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    pub query: String,
    /// The most passages: 1 to 10,000.
    pub top_k: Option<i32>,
    /// The least score of a passage.
    pub min_score: Option<f64>,
    /// A filter in kb's language; in its short form, a map from keys of metadata to values.
    pub filters: Option<Map<String, Value>>,
    /// The most tokens of all passages together.
    pub max_tokens: Option<i32>,
    /// dense, keyword or hybrid.
    pub mode: Option<String>,
    /// What else kb.query takes as options.
    pub options: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Matches {
    pub matches: Vec<Match>,
}

/// A passage that was found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Match {
    /// The id of the chunk.
    pub id: String,
    pub rank: i32,
    pub knowledge_base: String,
    /// The document's external_id.
    pub document: String,
    pub title: Option<String>,
    pub text: String,
    /// The similarity of meaning; null: the passage was found by its words only.
    pub score: Option<f64>,
    pub token_estimate: i32,
    #[schemars(with = "Map<String, Value>")]
    pub metadata: Raw,
    /// Where the passage is: page, headings, characters.
    #[schemars(with = "Map<String, Value>")]
    pub locator: Raw,
}

/// Passages of several knowledge bases, the best first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchResults {
    pub results: Vec<SearchResult>,
}

/// A passage, and the document or row that it is from.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchResult {
    pub score: Option<f64>,
    pub chunk: String,
    #[serde(rename = "contentItem")]
    pub content_item: ContentItem,
}

/// The document or row that a passage is from.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ContentItem {
    /// The document's external_id, for a row its key.
    pub id: String,
    pub schema: ContentSchema,
    pub title: Option<String>,
    /// The metadata of the document.
    #[schemars(with = "Map<String, Value>")]
    pub data: Raw,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ContentSchema {
    /// The knowledge base.
    pub name: String,
}
