//! The messages on the gateway's socket. `frame.rs` has their encoding.

pub use super::endpoint::access::Access;
pub use super::endpoint::budget::Spent;
pub use super::endpoint::usage::Usage;
pub use super::object_storage::listing::{Object, Page};
pub use super::turns::Urgency;
pub use kb_types::Prompt;
use kb_types::bucket::Bucket;
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, ServiceText};
use kb_types::{ChatReply, Dialogue, Embedder, Kind, Llm, Reranker, ServiceKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The path of the socket, relative to the data directory, which is the working directory of every server
/// process. Base backups skip this folder.
pub const SOCKET_PATH: &str = "pg_stat_tmp/kb.gateway.sock";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // one at a time, on its way into a frame
pub enum Request {
    /// Requests a vector for each text, in order, or an error.
    Embed {
        embedder: Embedder,
        access: Access,
        kind: Kind,
        urgency: Urgency,
        texts: Vec<String>,
        /// The tokens of each text. Empty if they were not counted.
        tokens: Vec<u32>,
        client: Client,
        /// How long the client waits for the answer in ms. None means as long as it takes.
        patience_ms: Option<u64>,
    },
    /// Requests a score for how well each text answers a question, in order.
    Rerank {
        reranker: Reranker,
        /// The chat model, for a reranker that uses one.
        llm: Option<Llm>,
        access: Access,
        query: String,
        texts: Vec<String>,
        client: Client,
        patience_ms: Option<u64>,
    },
    /// Requests the answer of a chat model.
    Chat { llm: Llm, access: Access, dialogue: Dialogue, client: Client, patience_ms: Option<u64> },
    /// Requests the text that an extraction service finds in a file.
    Extract { extractor: Extractor, access: Access, file: File, client: Client, patience_ms: Option<u64> },
    /// Requests the usage of queries in a database, part by part. Each part is repeated until its number
    /// comes back in `booked` (0 for none).
    TakeUsage { database: u32, booked: u64 },
    /// Stores a question until a worker has written it to the log.
    LogQuestion { database: u32, question: Box<LoggedQuestion> },
    /// Requests the questions of a database that wait for the log, part by part. Those up to the number
    /// `written` have been written.
    TakeQuestions { database: u32, written: u64 },
    /// Requests a question that waits for the log.
    FindQuestion { database: u32, query_id: Uuid },
    /// Counts an access to each of these entries of a memory, at a time in microseconds since 1970, on behalf
    /// of a tenant.
    CountAccesses { database: u32, tenant: String, kb_no: i64, at: i64, document_ids: Vec<i64> },
    /// Requests the accesses to memories of a database, part by part. Each part is repeated until its number
    /// comes back in `written` (0 for none).
    TakeAccesses { database: u32, written: u64 },
    /// Stores that a summary is wanted, until a worker takes it.
    WantSummary { database: u32, wanted: WantedSummary },
    /// Requests some of the summaries that are wanted in a database. They are not stored any longer.
    TakeWantedSummaries { database: u32 },
    /// Requests the number of tokens of each text, without special tokens.
    CountTokens { embedder: Embedder, texts: Vec<String> },
    /// Requests a page, or whether it has changed.
    Fetch { fetch: Box<Fetch>, client: Client },
    /// Requests the next part of a page, by the number that came with the part before.
    FetchMore(u64),
    /// Requests a page of the listing of a bucket: the objects whose keys begin with a prefix.
    ListObjects { bucket: Bucket, access: Access, prefix: String, next: Option<String>, client: Client },
    /// Requests a part of an object.
    ReadObject { bucket: Bucket, access: Access, part: WantedPart, client: Client },
    /// Requests the state of the gateway.
    Health,
}

impl Request {
    /// Whether the next request of the connection may depend on this one.
    pub fn is_done_first(&self) -> bool {
        matches!(self, Request::LogQuestion { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Embedded(EmbedReply),
    /// A score for each text. Larger scores are better.
    Reranked(Vec<f64>),
    Chatted(ChatReply),
    Extracted(ServiceText),
    Usage(UsagePart),
    /// The number of the last question, and the questions.
    Questions(u64, Vec<LoggedQuestion>),
    Question(Option<Box<LoggedQuestion>>),
    Accesses(AccessPart),
    WantedSummaries(Vec<WantedSummary>),
    /// The request was accepted, or there is no room for it.
    Done,
    Counts(Vec<u32>),
    Fetched(Fetched),
    /// A page, or why there is none.
    Listed(std::result::Result<Page, String>),
    ReadPart(ObjectPart),
    Health(Health),
    /// The gateway is alive, but waits for memory before it continues to read.
    Alive,
    Error(WireError),
}

/// A page that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    pub url: String,
    /// What is known of it.
    pub known: Option<Validators>,
    /// The most bytes of its content, unpacked.
    pub max_bytes: usize,
    /// The time for one attempt, from the first byte that is sent to the last that is read.
    pub timeout_ms: u64,
    /// Whether robots.txt is honoured.
    pub robots: bool,
    /// The most requests a second to its host.
    pub per_second: f64,
}

/// What a server said of the content that it sent, by which it sees later whether that has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// The URL that sent the content, after redirects. Only this URL is asked whether it has changed.
    pub url: String,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fetched {
    NotModified,
    /// There is no such page (any more).
    Gone,
    /// It has more than `max_bytes`; how many, or at least so many.
    TooLarge(usize),
    /// robots.txt does not allow to read it.
    Disallowed,
    Failed {
        problem: String,
        /// Whether it may be there later.
        passing: bool,
    },
    Page {
        validators: Validators,
        content_type: Option<String>,
        part: Part,
    },
    /// The next part.
    More(Part),
}

/// A part of the content of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// The number by which the next part is requested. None: this is the last one.
    pub more: Option<u64>,
}

/// A part of an object that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WantedPart {
    pub key: String,
    /// The ETag that the parts before had.
    pub etag: Option<String>,
    pub from: u64,
}

/// A part of an object as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ObjectPart {
    /// There is no such object.
    Gone,
    /// It is not what the parts before were of.
    Changed,
    Failed(String),
    Read {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// The size of the object.
        size: u64,
        etag: Option<String>,
        content_type: Option<String>,
        /// Whether it is stored compressed, by gzip.
        is_packed: bool,
    },
}

/// A question and its answer, as in kb.query_log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedQuestion {
    pub query_id: Uuid,
    pub kb_no: i64,
    /// The tenant of the question.
    pub tenant: String,
    /// Microseconds since 1970.
    pub asked_at: i64,
    pub query: String,
    pub mode: String,
    pub filter: Option<String>,
    pub top_k: i32,
    pub row_count: i32,
    /// The score of the first row.
    pub score: Option<f64>,
    /// The ids of the first chunks, in order.
    pub chunk_ids: Vec<Uuid>,
    pub duration_ms: f64,
}

/// A summary of a conversation that a window lacked.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WantedSummary {
    pub tenant: String,
    pub conversation_id: String,
    /// The subject and the version of the request, as in kb.chat_requests.
    pub subject: String,
    pub version: i64,
}

/// The client of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The oid of the database.
    pub database: u32,
    /// The tenant of the session for a question, and of the document for a document.
    pub tenant: String,
    /// The kb_no of the knowledge base, or 0 for none.
    pub kb_no: i64,
    /// Whether the texts belong to several tenants. If so, messages of a provider, which may repeat a text,
    /// are passed on to none.
    pub is_shared: bool,
}

/// A part of the usage of queries in a database. A part without rows has the number 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsagePart {
    pub number: u64,
    pub rows: Vec<UsageRow>,
}

/// The usage of queries at an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The id of the embedder, reranker, chat model or extractor.
    pub endpoint: String,
    pub kind: ServiceKind,
    pub kb_no: i64,
    /// The tenant of the question.
    pub tenant: String,
    pub usage: Usage,
}

/// A part of the accesses to the memories of a database. A part without any has the number 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessPart {
    pub number: u64,
    pub tenants: Vec<TenantAccesses>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantAccesses {
    /// The tenant of the sessions that recalled the entries.
    pub tenant: String,
    pub entries: Vec<EntryAccesses>,
}

/// How often an entry of a memory was recalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryAccesses {
    pub kb_no: i64,
    pub document_id: i64,
    pub count: i64,
    /// The last time, in microseconds since 1970.
    pub at: i64,
}

/// The vectors of the texts that got one, in order, and the errors of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbedReply {
    pub vectors: Vectors,
    /// The index of the text, and the error.
    pub failed: Vec<(u32, WireError)>,
    pub usage: Usage,
}

impl EmbedReply {
    pub fn new(dimension: usize, results: Vec<Result<Vec<f32>>>, usage: Usage) -> EmbedReply {
        let (mut vectors, mut failed) = (Vec::with_capacity(results.len()), Vec::new());
        for (i, result) in results.into_iter().enumerate() {
            match result {
                Ok(vector) => vectors.push(vector),
                Err(error) => failed.push((i as u32, error.into())),
            }
        }
        EmbedReply { vectors: Vectors::new(dimension, &vectors), failed, usage }
    }
}

/// `count` vectors of `dimension` numbers, as contiguous little-endian f32.
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

    /// All numbers of all vectors.
    pub fn numbers(&self) -> Vec<f32> {
        self.bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    }

    pub fn count(&self) -> usize {
        (self.bytes.len() / 4).checked_div(self.dimension).unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// The number of models in memory.
    pub models: usize,
    pub model_dir: String,
    /// The number of endpoints whose breaker is open.
    pub open_breakers: usize,
}

/// Defines [`WireError`] from the variants of [`Error`] that are sent with all their fields.
macro_rules! wire_errors {
    ($($variant:ident { $($field:ident: $type:ty),+ },)+) => {
        /// The form of an [`Error`] on the socket.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum WireError {
            $($variant { $($field: $type),+ },)+
            Configuration { object: String, problems: Vec<String> },
            Internal(String),
        }

        impl From<Error> for WireError {
            fn from(error: Error) -> Self {
                match error {
                    $(Error::$variant { $($field),+ } => WireError::$variant { $($field),+ },)+
                    Error::Configuration { object, problems, .. } => WireError::Configuration { object, problems },
                    Error::Internal(message) => WireError::Internal(message),
                    other => WireError::Internal(other.to_string()),
                }
            }
        }

        impl From<WireError> for Error {
            fn from(fault: WireError) -> Self {
                match fault {
                    $(WireError::$variant { $($field),+ } => Error::$variant { $($field),+ },)+
                    WireError::Configuration { object, problems } => Error::configuration(object, problems),
                    WireError::Internal(message) => Error::Internal(message),
                }
            }
        }
    };
}

wire_errors! {
    ModelFiles { model: String, problem: String },
    InputTooLong { model: String, tokens: usize, limit: usize },
    Embedding { embedder: String, problem: String },
    ProviderUnavailable { provider: String, available: String },
    Provider { embedder: String, problem: String, passing: bool },
    Paused { embedder: String, problem: String, retry_after_ms: u64, of_tenant: bool },
    Service { kind: ServiceKind, id: String, problem: String, passing: bool },
    ServicePaused { kind: ServiceKind, id: String, problem: String },
    TooLarge { what: String, size: usize, limit: usize },
    Gateway { problem: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_keeps_its_kind() {
        let error = Error::InputTooLong { model: "m".into(), tokens: 300, limit: 256 };
        assert_eq!(Error::from(WireError::from(error.clone())), error);
        let error = Error::TooLarge { what: "a text".into(), size: 9, limit: 8 };
        assert_eq!(Error::from(WireError::from(error.clone())), error);
        let error = Error::Internal("a text was not answered".into());
        assert_eq!(Error::from(WireError::from(error.clone())), error);
    }
}
