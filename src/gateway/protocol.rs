//! What goes over the gateway's socket: length-prefixed MessagePack frames.

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
    /// One vector per text, in order.
    Embed { embedder: Embedder, kind: Kind, urgency: Urgency, texts: Vec<String> },
    /// Tokens of each text, special tokens not counted.
    CountTokens { embedder: Embedder, texts: Vec<String> },
    /// What the gateway knows about itself.
    Health,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Vectors(Vectors),
    Counts(Vec<u32>),
    Health(Health),
    Error(Fault),
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
}

/// An [`Error`] as it crosses the socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    ModelFiles { model: String, problem: String },
    InputTooLong { model: String, tokens: usize, limit: usize },
    Embedding { embedder: String, problem: String },
    Configuration { object: String, problems: Vec<String> },
    ProviderUnavailable { provider: String },
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
        let frame = encode(7, Response::Vectors(vectors.clone())).unwrap();
        let length = frame_length([frame[0], frame[1], frame[2], frame[3]]).unwrap();
        assert_eq!(length, frame.len() - 4);
        let back: Envelope<Response> = decode(&frame[4..]).unwrap();
        assert_eq!(back.id, 7);
        assert_eq!(back.body, Response::Vectors(vectors.clone()));
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
