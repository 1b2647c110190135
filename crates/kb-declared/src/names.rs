//! The properties of what can be declared, under kb's names and those of other systems.

use crate::declaration::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    WholeNumber,
    Number,
    Boolean,
    Object,
    /// A text, or a list of texts.
    Texts,
    /// A reference to a key.
    Secret,
}

pub struct Property {
    /// The name of the argument of kb's function.
    pub name: &'static str,
    /// Other names for it in a file.
    pub others: &'static [&'static str],
    pub form: Form,
}

const fn property(name: &'static str, form: Form) -> Property {
    Property { name, others: &[], form }
}

const fn also(name: &'static str, others: &'static [&'static str], form: Form) -> Property {
    Property { name, others, form }
}

const EMBEDDER: &[Property] = &[
    property("provider", Form::Text),
    property("model", Form::Text),
    property("dimension", Form::WholeNumber),
    property("base_url", Form::Text),
    also("secret", &["api_key"], Form::Secret),
    property("config", Form::Object),
];
const SERVICE: &[Property] = &[
    property("provider", Form::Text),
    property("model", Form::Text),
    property("base_url", Form::Text),
    also("secret", &["api_key"], Form::Secret),
    property("config", Form::Object),
];
const VECTOR_DB: &[Property] = &[
    property("type", Form::Text),
    property("dimension", Form::WholeNumber),
    property("metric", Form::Text),
    property("config", Form::Object),
];
const KNOWLEDGE_BASE: &[Property] = &[
    also("embedder", &["embedder_ref"], Form::Text),
    also("vector_db", &["vector_db_ref"], Form::Text),
    property("description", Form::Text),
    property("chunking", Form::Object),
    property("preprocess", Form::Object),
    property("retrieval", Form::Object),
    property("metadata", Form::Object),
];
const MEMORY: &[Property] = &[
    also("embedder", &["embedder_ref"], Form::Text),
    also("vector_db", &["vector_db_ref"], Form::Text),
    property("description", Form::Text),
    property("chunking", Form::Object),
    property("preprocess", Form::Object),
    property("retrieval", Form::Object),
    property("metadata", Form::Object),
    property("settings", Form::Object),
];
const BINDING: &[Property] = &[
    property("top_k", Form::WholeNumber),
    property("min_score", Form::Number),
    property("max_tokens", Form::WholeNumber),
    property("fallback", Form::Text),
    property("inject_as", Form::Text),
    property("filter", Form::Object),
];
/// What kb.attach_table takes.
const TABLE: &[Property] = &[
    property("content", Form::Texts),
    property("published_when", Form::Text),
    property("metadata", Form::Texts),
    property("tenant", Form::Text),
    property("title", Form::Text),
    property("uri", Form::Text),
    property("content_type", Form::Text),
    property("replicated", Form::Boolean),
    property("json_fields", Form::Object),
    property("adopt", Form::Text),
];
const QUOTA: &[Property] = &[
    property("bytes", Form::WholeNumber),
    property("documents", Form::WholeNumber),
    property("document_bytes", Form::WholeNumber),
    property("knowledge_bases", Form::WholeNumber),
    property("tokens_per_day", Form::WholeNumber),
    property("attached_tables", Form::WholeNumber),
    property("metadata_indexes", Form::WholeNumber),
    property("memory_entries", Form::WholeNumber),
];

/// The properties of a kind. A source has a type, and everything else is its configuration; a metadata index
/// has a type; a share has none.
pub fn properties(kind: Kind) -> &'static [Property] {
    match kind {
        Kind::VectorDb => VECTOR_DB,
        Kind::Embedder => EMBEDDER,
        Kind::Llm | Kind::Reranker | Kind::Extractor => SERVICE,
        Kind::KnowledgeBase => KNOWLEDGE_BASE,
        Kind::Memory => MEMORY,
        Kind::Binding => BINDING,
        Kind::Quota => QUOTA,
        Kind::Table => TABLE,
        Kind::MetadataIndex | Kind::Source | Kind::Share | Kind::Objects => &[],
    }
}

/// The lists of a file, and what they declare.
pub const LISTS: &[(&str, Kind)] = &[
    ("llms", Kind::Llm),
    ("embedders", Kind::Embedder),
    ("rerankers", Kind::Reranker),
    ("extractors", Kind::Extractor),
    ("vector_dbs", Kind::VectorDb),
    ("knowledge_bases", Kind::KnowledgeBase),
    ("memories", Kind::Memory),
    ("quotas", Kind::Quota),
];

/// The name, within its agent, of the knowledge base that gets the objects that an agent knows.
pub const OF_AGENT: &str = "knowledge";

/// What a project's file says of itself, and kb has no use for.
pub const OF_PROJECT: &[&str] = &["name", "version", "description", "author"];
