//! What goes over the gateway's socket: length-prefixed MessagePack frames.

use super::secret::{Reference, Secret};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use serde::{Deserialize, Serialize};

/// The socket, relative to the data directory (every server process's working directory); base
/// backups skip this folder.
pub const SOCKET_PATH: &str = "pg_stat_tmp/kb.gateway.sock";

/// Bytes at most of one frame.
pub const MAX_FRAME: usize = 256 * 1024 * 1024;

/// Who waits: queries go ahead of ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Urgency {
    Query,
    Ingest,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// What queries of a database have spent since it was last asked for.
    TakeUsage { database: u32 },
    /// Tokens of each text, special tokens not counted.
    CountTokens { embedder: Embedder, texts: Vec<String> },
    /// What the gateway knows about itself.
    Health,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Embedded(Embedded),
    Usage(Vec<QueryUsage>),
    Counts(Vec<u32>),
    Health(Health),
    Error(Fault),
}

/// By what right a remote provider is asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// What the embedder's secret refers to.
    pub reference: Option<Reference>,
    /// The key itself, where it lies in the database.
    pub stored: Option<Secret>,
    /// Scheme, host and port that the secret is bound to.
    pub host: Option<String>,
    pub spent: Spent,
}

/// Tokens of one day, as far as the asking database knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spent {
    /// Days since 1970, UTC.
    pub day: u64,
    pub tokens: u64,
}

/// For whom something is embedded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Oid of the database.
    pub database: u32,
    /// kb_no of the knowledge base; 0: none.
    pub kb_no: i64,
}

/// What embedding cost. Local models cost nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub requests: u64,
    pub retries: u64,
    /// Texts that got a vector.
    pub texts: u64,
    pub tokens: u64,
}

impl Usage {
    pub fn add(&mut self, more: &Usage) {
        self.requests += more.requests;
        self.retries += more.retries;
        self.texts += more.texts;
        self.tokens += more.tokens;
    }
}

/// Usage by queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryUsage {
    pub embedder: String,
    pub kb_no: i64,
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
    pub cached_queries: usize,
    pub model_dir: String,
    /// Endpoints of providers that keep failing and are left alone for now.
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
    Paused { embedder: String, problem: String, retry_after_ms: u64 },
    Gateway { problem: String },
    Internal(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::ModelFiles { model, problem } => Fault::ModelFiles { model, problem },
            Error::InputTooLong { model, tokens, limit } => Fault::InputTooLong { model, tokens, limit },
            Error::Embedding { embedder, problem } => Fault::Embedding { embedder, problem },
            Error::Configuration { object, problems } => Fault::Configuration { object, problems },
            Error::ProviderUnavailable { provider } => Fault::ProviderUnavailable { provider },
            Error::Provider { embedder, problem, passing } => Fault::Provider { embedder, problem, passing },
            Error::Paused { embedder, problem, retry_after_ms } => {
                Fault::Paused { embedder, problem, retry_after_ms }
            }
            Error::Gateway { problem } => Fault::Gateway { problem },
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
            Fault::Configuration { object, problems } => Error::Configuration { object, problems },
            Fault::ProviderUnavailable { provider } => Error::ProviderUnavailable { provider },
            Fault::Provider { embedder, problem, passing } => Error::Provider { embedder, problem, passing },
            Fault::Paused { embedder, problem, retry_after_ms } => {
                Error::Paused { embedder, problem, retry_after_ms }
            }
            Fault::Gateway { problem } => Error::Gateway { problem },
            Fault::Internal(message) => Error::Internal(message),
        }
    }
}

/// A message and the number by which its answer is told from others on the connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    pub id: u64,
    pub body: T,
}

/// A whole frame: 4 bytes of length, little-endian, then the message.
pub fn encode<T: Serialize>(id: u64, body: T) -> Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write(&mut frame, &Envelope { id, body })
        .map_err(|e| Error::Internal(format!("message cannot be encoded: {e}")))?;
    let length = frame.len() - 4;
    if length > MAX_FRAME {
        return Err(Error::Internal(format!("message of {length} bytes is over the {MAX_FRAME} allowed")));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// The length that a frame's first four bytes announce.
pub fn frame_length(prefix: [u8; 4]) -> Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_FRAME {
        return Err(Error::Internal(format!("frame of {length} bytes is over the {MAX_FRAME} allowed")));
    }
    Ok(length)
}

/// A message from a frame's content (without the length).
pub fn decode<T: for<'de> Deserialize<'de>>(content: &[u8]) -> Result<Envelope<T>> {
    rmp_serde::from_slice(content).map_err(|e| Error::Internal(format!("message cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_survive_the_wire() {
        let vectors = Vectors::new(2, &[vec![1.0, -0.5], vec![f32::MIN_POSITIVE, 3e7]]);
        let embedded = Embedded { vectors: vectors.clone(), failed: vec![], usage: Usage::default() };
        let frame = encode(7, Response::Embedded(embedded.clone())).unwrap();
        let length = frame_length([frame[0], frame[1], frame[2], frame[3]]).unwrap();
        assert_eq!(length, frame.len() - 4);
        let back: Envelope<Response> = decode(&frame[4..]).unwrap();
        assert_eq!(back.id, 7);
        assert_eq!(back.body, Response::Embedded(embedded));
        assert_eq!(vectors.numbers(), [1.0, -0.5, f32::MIN_POSITIVE, 3e7]);
        assert_eq!(vectors.count(), 2);
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        assert!(frame_length([0xff; 4]).is_err());
    }

    #[test]
    fn a_fault_keeps_its_kind() {
        let error = Error::InputTooLong { model: "m".into(), tokens: 300, limit: 256 };
        assert_eq!(Error::from(Fault::from(error.clone())), error);
    }
}
