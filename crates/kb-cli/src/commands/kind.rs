//! What can be declared, listed, shown and dropped, and the functions and tables of kb for each.

use crate::exit::{Error, Result};
use crate::output::table::Align;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    #[default]
    KnowledgeBase,
    Embedder,
    VectorDb,
    Source,
    Llm,
    Reranker,
    Extractor,
}

/// Of which things a command speaks.
#[derive(clap::Args)]
pub struct Which {
    /// The kind of the things
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub kind: Kind,
    /// The knowledge base of a source
    #[arg(long, value_name = "ID", required_if_eq("kind", "source"))]
    pub kb: Option<String>,
}

impl Which {
    /// The knowledge base, which only sources have.
    pub fn kb(&self) -> Result<Option<&str>> {
        match &self.kb {
            Some(_) if self.kind != Kind::Source => Err(Error::usage("--kb is for --kind source only")),
            kb => Ok(kb.as_deref()),
        }
    }
}

/// A column of a list: its head, the key of its value, and its alignment.
pub type Column = (&'static str, &'static str, Align);

const OF_MODELS: &[Column] =
    &[("ID", "id", Align::Left), ("PROVIDER", "provider", Align::Left), ("MODEL", "model", Align::Left)];

impl Kind {
    /// As a part of names of functions.
    fn snake(self) -> &'static str {
        match self {
            Kind::KnowledgeBase => "knowledge_base",
            Kind::Embedder => "embedder",
            Kind::VectorDb => "vector_db",
            Kind::Source => "source",
            Kind::Llm => "llm",
            Kind::Reranker => "reranker",
            Kind::Extractor => "extractor",
        }
    }

    /// As a part of sentences.
    pub fn shown(self) -> &'static str {
        match self {
            Kind::KnowledgeBase => "knowledge base",
            Kind::VectorDb => "vector database",
            Kind::Llm => "chat model",
            other => other.snake(),
        }
    }

    pub fn list_function(self) -> String {
        format!("list_{}s", self.snake())
    }

    pub fn get_function(self) -> String {
        format!("get_{}", self.snake())
    }

    pub fn drop_function(self) -> String {
        format!("drop_{}", self.snake())
    }

    /// The argument of the functions that names one of them.
    pub fn name(self) -> &'static str {
        if self == Kind::Source { "name" } else { "id" }
    }

    pub fn columns(self) -> &'static [Column] {
        match self {
            Kind::KnowledgeBase => &[
                ("ID", "id", Align::Left),
                ("EMBEDDER", "embedder", Align::Left),
                ("VECTOR DB", "vector_db", Align::Left),
                ("DESCRIPTION", "description", Align::Left),
            ],
            Kind::Embedder => &[
                ("ID", "id", Align::Left),
                ("PROVIDER", "provider", Align::Left),
                ("DIMENSION", "dimension", Align::Right),
                ("MODEL", "model", Align::Left),
            ],
            Kind::VectorDb => &[
                ("ID", "id", Align::Left),
                ("TYPE", "type", Align::Left),
                ("DIMENSION", "dimension", Align::Right),
                ("METRIC", "metric", Align::Left),
            ],
            Kind::Source => &[("NAME", "name", Align::Left), ("TYPE", "type", Align::Left)],
            Kind::Llm | Kind::Reranker | Kind::Extractor => OF_MODELS,
        }
    }
}
