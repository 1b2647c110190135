//! One thing that a file declares.

pub use crate::places::{Place, Problem};
use kb_types::named;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is declared, in the order in which it is made: what others refer to comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Llm,
    Embedder,
    Reranker,
    Extractor,
    VectorDb,
    KnowledgeBase,
    Memory,
    MetadataIndex,
    Source,
    Share,
    /// An attached table.
    Table,
    Binding,
    /// The objects that an agent knows, in a knowledge base of its own.
    Objects,
    Quota,
}

named!(Kind {
    Llm => "llm",
    Embedder => "embedder",
    Reranker => "reranker",
    Extractor => "extractor",
    VectorDb => "vector_db",
    KnowledgeBase => "knowledge_base",
    Memory => "memory",
    MetadataIndex => "metadata_index",
    Source => "source",
    Share => "share",
    Table => "table",
    Binding => "binding",
    Objects => "objects",
    Quota => "quota",
});

/// The name of something: no two of a kind have the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub kind: Kind,
    /// The knowledge base or memory of a source, table, objects, share or metadata index; the scope of a
    /// binding; else ''.
    pub of: String,
    /// The tenant of a share or quota, the knowledge base of a binding, the key of a metadata index; '' for
    /// objects.
    pub id: String,
}

impl Identity {
    pub fn new(kind: Kind, of: impl Into<String>, id: impl Into<String>) -> Self {
        Identity { kind, of: of.into(), id: id.into() }
    }

    /// The knowledge base or memory that has this source, table, metadata index, share or these objects,
    /// under either kind. Empty for everything else.
    pub fn owners(&self) -> Vec<Identity> {
        match self.kind {
            Kind::MetadataIndex | Kind::Source | Kind::Share | Kind::Table | Kind::Objects => {
                [Kind::KnowledgeBase, Kind::Memory].map(|kind| Identity::new(kind, "", &self.of)).into()
            }
            _ => Vec::new(),
        }
    }

    /// The identity in one text: `id`, or `of/id`.
    pub fn text(&self) -> String {
        match (self.of.as_str(), self.id.as_str()) {
            ("", id) => id.into(),
            (of, "") => of.into(),
            (of, id) => format!("{of}/{id}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    pub identity: Identity,
    /// Where it begins.
    pub place: Place,
    /// By the names of the arguments of kb's functions. Null is the same as nothing.
    pub properties: Map<String, Value>,
    /// Where properties stand, also those within objects (`chunking.size`).
    pub places: BTreeMap<String, Place>,
}

impl Declaration {
    /// The place of what a message is about, which begins with a path of properties: `chunking.size: …`.
    pub fn place_of(&self, message: &str) -> Place {
        let mut path = message.split_once(": ").map_or("", |(path, _)| path);
        loop {
            if let Some(place) = self.places.get(path) {
                return *place;
            }
            match path.rsplit_once('.') {
                Some((outer, _)) => path = outer,
                None => return self.place,
            }
        }
    }
}
