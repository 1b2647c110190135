//! What is said over the gateway's socket; `frame.rs` says how.

pub use super::endpoint::access::Access;
pub use super::endpoint::budget::Spent;
pub use super::endpoint::usage::Usage;
pub use super::turns::Urgency;
pub use kb_types::Prompt;
use kb_types::error::{Error, Object, Result};
use kb_types::{Embedder, Kind, Llm, Reranker};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The socket, relative to the data directory (every server process's working directory); base
/// backups skip this folder.
pub const SOCKET_PATH: &str = "pg_stat_tmp/kb.gateway.sock";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // one at a time, on its way into a frame
pub enum Request {
    /// A vector per text, in order, or what is wrong with it.
    Embed {
        embedder: Embedder,
        access: Access,
        kind: Kind,
        urgency: Urgency,
        texts: Vec<String>,
        /// Tokens of each text, where they were counted; empty where not.
        tokens: Vec<u32>,
        client: Client,
        /// How long the client waits for the answer, in ms; None: as long as it takes.
        patience_ms: Option<u64>,
    },
    /// How well each text answers a question, in order.
    Rerank {
        reranker: Reranker,
        /// The chat model of a reranker that asks one.
        llm: Option<Llm>,
        access: Access,
        query: String,
        texts: Vec<String>,
        client: Client,
        patience_ms: Option<u64>,
    },
    /// What a chat model answers.
    Chat { llm: Llm, access: Access, prompt: Prompt, client: Client, patience_ms: Option<u64> },
    /// What queries of a database have spent: part after part, each again and again until its number comes
    /// back in `booked` (0: none).
    TakeUsage { database: u32, booked: u64 },
    /// Keeps a question for the log until a worker has written it.
    LogQuestion { database: u32, question: Box<LoggedQuestion> },
    /// The questions of a database that wait for the log, part after part; those up to the number `written`
    /// are written.
    TakeQuestions { database: u32, written: u64 },
    /// A question that waits for the log.
    FindQuestion { database: u32, query_id: Uuid },
    /// Tokens of each text, special tokens not counted.
    CountTokens { embedder: Embedder, texts: Vec<String> },
    /// What the gateway knows about itself.
    Health,
}

impl Request {
    /// Whether the next request of its connection may ask for what this one brings.
    pub fn is_done_first(&self) -> bool {
        matches!(self, Request::LogQuestion { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Embedded(Embedded),
    /// A score for each text; larger is better.
    Reranked(Vec<f64>),
    Chatted(String),
    Usage(UsagePart),
    /// The number of the last of them, and the questions.
    Questions(u64, Vec<LoggedQuestion>),
    Question(Option<Box<LoggedQuestion>>),
    /// It was taken, or there is no room for it.
    Done,
    Counts(Vec<u32>),
    Health(Health),
    /// Nothing new, but the gateway lives: it waits for memory before it reads on.
    Alive,
    Error(Fault),
}

/// A question with what it got, as kb.query_log has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedQuestion {
    pub query_id: Uuid,
    pub kb_no: i64,
    /// Who asked.
    pub tenant: String,
    /// Microseconds since 1970.
    pub asked_at: i64,
    pub query: String,
    pub mode: String,
    pub filter: Option<String>,
    pub top_k: i32,
    pub row_count: i32,
    /// Of the first row.
    pub score: Option<f64>,
    /// Of the first rows, in their order.
    pub chunk_ids: Vec<Uuid>,
    pub duration_ms: f64,
}

/// For whom something is embedded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Oid of the database.
    pub database: u32,
    /// Of a question the session's tenant, of a document the document's.
    pub tenant: String,
    /// kb_no of the knowledge base; 0: none.
    pub kb_no: i64,
    /// The texts are of several tenants: what a provider says, which may repeat one, is passed on to none.
    pub is_shared: bool,
}

/// What an endpoint is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Capability {
    Embed,
    Rerank,
    Chat,
}

impl Capability {
    /// As in kb.usage.
    pub fn name(self) -> &'static str {
        match self {
            Capability::Embed => "embed",
            Capability::Rerank => "rerank",
            Capability::Chat => "chat",
        }
    }
}

/// Some of what queries of a database spent. Without rows it has the number 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsagePart {
    pub number: u64,
    pub rows: Vec<UsageRow>,
}

/// What queries spent at an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Id of the row that configures the endpoint: an embedder's, a reranker's, a chat model's.
    pub endpoint: String,
    pub capability: Capability,
    pub kb_no: i64,
    /// Who asked.
    pub tenant: String,
    pub usage: Usage,
}

/// The vectors of the texts that have one, in order, and what is wrong with the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    pub vectors: Vectors,
    /// Position among the texts, and why.
    pub failed: Vec<(u32, Fault)>,
    pub usage: Usage,
}

impl Embedded {
    pub fn new(dimension: usize, results: Vec<Result<Vec<f32>>>, usage: Usage) -> Embedded {
        let (mut vectors, mut failed) = (Vec::with_capacity(results.len()), Vec::new());
        for (i, result) in results.into_iter().enumerate() {
            match result {
                Ok(vector) => vectors.push(vector),
                Err(error) => failed.push((i as u32, error.into())),
            }
        }
        Embedded { vectors: Vectors::new(dimension, &vectors), failed, usage }
    }
}

/// `count` vectors of `dimension` numbers, one after the other, little-endian f32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vectors {
    pub dimension: usize,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl Vectors {
    pub fn new(dimension: usize, vectors: &[Vec<f32>]) -> Self {
        let mut bytes = Vec::with_capacity(vectors.len() * dimension * 4);
        for vector in vectors {
            for number in vector {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        Vectors { dimension, bytes }
    }

    /// All numbers in one row.
    pub fn numbers(&self) -> Vec<f32> {
        self.bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    }

    pub fn count(&self) -> usize {
        (self.bytes.len() / 4).checked_div(self.dimension).unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Models in memory.
    pub models: usize,
    pub model_dir: String,
    /// Endpoints whose breaker is open.
    pub open_breakers: usize,
}

/// An [`Error`] as it crosses the socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    ModelFiles { model: String, problem: String },
    InputTooLong { model: String, tokens: usize, limit: usize },
    Embedding { embedder: String, problem: String },
    Configuration { object: String, problems: Vec<String> },
    ProviderUnavailable { provider: String },
    Provider { embedder: String, problem: String, passing: bool },
    Paused { embedder: String, problem: String, retry_after_ms: u64, of_tenant: bool },
    Service { what: Object, id: String, problem: String, passing: bool },
    ServicePaused { what: Object, id: String, problem: String },
    TooLarge { what: String, size: usize, limit: usize },
    Gateway { problem: String },
    Internal(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::ModelFiles { model, problem } => Fault::ModelFiles { model, problem },
            Error::InputTooLong { model, tokens, limit } => Fault::InputTooLong { model, tokens, limit },
            Error::Embedding { embedder, problem } => Fault::Embedding { embedder, problem },
            Error::Configuration { object, problems, .. } => Fault::Configuration { object, problems },
            Error::ProviderUnavailable { provider } => Fault::ProviderUnavailable { provider },
            Error::Provider { embedder, problem, passing } => Fault::Provider { embedder, problem, passing },
            Error::Paused { embedder, problem, retry_after_ms, of_tenant } => {
                Fault::Paused { embedder, problem, retry_after_ms, of_tenant }
            }
            Error::Service { what, id, problem, passing } => Fault::Service { what, id, problem, passing },
            Error::ServicePaused { what, id, problem } => Fault::ServicePaused { what, id, problem },
            Error::TooLarge { what, size, limit } => Fault::TooLarge { what, size, limit },
            Error::Gateway { problem } => Fault::Gateway { problem },
            Error::Internal(message) => Fault::Internal(message),
            other => Fault::Internal(other.to_string()),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::ModelFiles { model, problem } => Error::ModelFiles { model, problem },
            Fault::InputTooLong { model, tokens, limit } => Error::InputTooLong { model, tokens, limit },
            Fault::Embedding { embedder, problem } => Error::Embedding { embedder, problem },
            Fault::Configuration { object, problems } => Error::configuration(object, problems),
            Fault::ProviderUnavailable { provider } => Error::ProviderUnavailable { provider },
            Fault::Provider { embedder, problem, passing } => Error::Provider { embedder, problem, passing },
            Fault::Paused { embedder, problem, retry_after_ms, of_tenant } => {
                Error::Paused { embedder, problem, retry_after_ms, of_tenant }
            }
            Fault::Service { what, id, problem, passing } => Error::Service { what, id, problem, passing },
            Fault::ServicePaused { what, id, problem } => Error::ServicePaused { what, id, problem },
            Fault::TooLarge { what, size, limit } => Error::TooLarge { what, size, limit },
            Fault::Gateway { problem } => Error::Gateway { problem },
            Fault::Internal(message) => Error::Internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_keeps_its_kind() {
        let error = Error::InputTooLong { model: "m".into(), tokens: 300, limit: 256 };
        assert_eq!(Error::from(Fault::from(error.clone())), error);
        let error = Error::TooLarge { what: "a text".into(), size: 9, limit: 8 };
        assert_eq!(Error::from(Fault::from(error.clone())), error);
        let error = Error::Internal("a text was not answered".into());
        assert_eq!(Error::from(Fault::from(error.clone())), error);
    }
}
