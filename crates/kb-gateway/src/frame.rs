//! Frames of the gateway's socket: MessagePack after a head, and the limits of their sizes.
//!
//! The head of a request has its length, the largest size of its answer, and its urgency. The gateway
//! therefore knows before it reads whether it has the memory, and a question does not wait for memory that
//! other requests hold.
//!
//! **Invariant:** no allocation depends on a number that came over a socket, or is larger in proportion than
//! a frame, a batch, a provider's capped reply or a piece of a local model.

use super::protocol::{Request, Urgency};
use super::{memory_accesses, query_log, wanted_summaries};
use kb_types::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The most bytes of a frame.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;
/// The most bytes of a text, which are more than any model reads.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The most bytes of the texts of a request, and of the vectors of its answer.
pub const MAX_TEXTS: usize = 4 * 1024 * 1024;
pub const MAX_VECTORS: usize = 8 * 1024 * 1024;
/// The most bytes of the name of a tenant.
pub const MAX_TENANT: usize = 1024;
/// The most bytes of the answer of a chat model.
pub const MAX_CHAT: usize = 256 * 1024;
/// The most bytes of a part of a page.
pub const MAX_PART: usize = 2 * 1024 * 1024;
/// The most bytes of a page of a bucket's listing, as it is sent and as it is passed on, and of a part of an
/// object.
pub const MAX_OBJECTS: usize = 4 * 1024 * 1024;
/// The most bytes of a file that an extraction service reads, and of the text that it finds.
pub const MAX_FILE: usize = 15 * 1024 * 1024;
pub const MAX_FILE_TEXT: usize = MAX_VECTORS;
/// The memory of a request besides its texts and vectors.
const BASE: usize = 16 * 1024;

/// A message with its number on the connection, which the answer repeats.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    pub id: u64,
    pub body: T,
}

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The length of the request in bytes.
    pub length: usize,
    /// The most bytes of the vectors of its answer.
    pub answer: usize,
    pub urgency: Urgency,
}

impl Head {
    pub const SIZE: usize = 12;

    fn write(&self) -> [u8; Head::SIZE] {
        let mut bytes = [0; Head::SIZE];
        for (place, number) in
            bytes.as_chunks_mut::<4>().0.iter_mut().zip([self.length, self.answer, self.urgency as usize])
        {
            *place = (number as u32).to_le_bytes();
        }
        bytes
    }

    pub fn read(bytes: [u8; Head::SIZE]) -> Result<Head> {
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four) as usize);
        let mut next = || numbers.next().unwrap_or(0);
        let (length, answer) = (bounded(next(), MAX_FRAME)?, bounded(next(), MAX_VECTORS)?);
        let urgency = match next() {
            0 => Urgency::Query,
            1 => Urgency::Bulk,
            2 => Urgency::Ingest,
            other => return Err(Error::Internal(format!("a frame has the unknown urgency {other}"))),
        };
        Ok(Head { length, answer, urgency })
    }

    /// The memory in bytes that the request takes until its answer is written.
    pub fn cost(&self) -> usize {
        cost(self.length, self.answer)
    }
}

/// The request counts twice (as received and as sent to the provider), and the vectors once.
pub fn cost(request: usize, vectors: usize) -> usize {
    BASE + 2 * request + vectors
}

/// The size of the vectors of this many texts in bytes.
pub fn vector_bytes(texts: usize, dimension: usize) -> usize {
    texts.saturating_mul(dimension).saturating_mul(4)
}

/// The most texts of a request, by the size of their vectors.
pub fn max_texts(dimension: usize) -> usize {
    (MAX_VECTORS / vector_bytes(1, dimension.max(1))).max(1)
}

fn bounded(length: usize, limit: usize) -> Result<usize> {
    match length <= limit {
        true => Ok(length),
        false => {
            Err(Error::TooLarge { what: "a message to or from the gateway".into(), size: length, limit })
        }
    }
}

/// Refuses a request that is too large or does not match its head.
pub fn check(request: &Request, head: &Head) -> Result<()> {
    let what = |what: &str, size, limit| Err(Error::TooLarge { what: what.into(), size, limit });
    let (embedder, kind, urgency, texts, client) = match request {
        Request::Embed { embedder, kind, urgency, texts, client, .. } => {
            (embedder, kind, urgency, texts, client)
        }
        Request::Extract { file, .. } if file.bytes.len() > MAX_FILE => {
            return what("a file for an extractor", file.bytes.len(), MAX_FILE);
        }
        Request::Rerank { client, .. } | Request::Chat { client, .. } | Request::Extract { client, .. } => {
            if client.tenant.len() > MAX_TENANT {
                return what("the tenant's name", client.tenant.len(), MAX_TENANT);
            }
            // Only short questions may use the memory of questions.
            return match head.urgency {
                Urgency::Bulk => Ok(()),
                _ => Err(Error::Internal(
                    "a request does not have the urgency that its frame announces".into(),
                )),
            };
        }
        Request::WantSummary { wanted, .. } => {
            return match [&wanted.tenant, &wanted.conversation_id, &wanted.subject]
                .map(String::len)
                .into_iter()
                .max()
            {
                Some(size) if size > MAX_TENANT => what("the name of a conversation", size, MAX_TENANT),
                _ => Ok(()),
            };
        }
        Request::Fetch { client, .. } if client.tenant.len() > MAX_TENANT => {
            return what("the tenant's name", client.tenant.len(), MAX_TENANT);
        }
        Request::Fetch { .. } | Request::FetchMore(_) => {
            return match (head.answer, head.urgency) {
                (MAX_PART, Urgency::Ingest) => Ok(()),
                _ => Err(Error::Internal("a request for a page does not have the head of one".into())),
            };
        }
        Request::ListObjects { client, .. } | Request::ReadObject { client, .. } => {
            if client.tenant.len() > MAX_TENANT {
                return what("the tenant's name", client.tenant.len(), MAX_TENANT);
            }
            return match (head.answer, head.urgency) {
                (MAX_OBJECTS, Urgency::Ingest) => Ok(()),
                _ => Err(Error::Internal("a request for objects does not have the head of one".into())),
            };
        }
        _ => return Ok(()),
    };
    if let Some(text) = texts.iter().find(|text| text.len() > MAX_TEXT) {
        return what("a text to be embedded", text.len(), MAX_TEXT);
    }
    if client.tenant.len() > MAX_TENANT {
        return what("the tenant's name", client.tenant.len(), MAX_TENANT);
    }
    // The prefix occurs once in the frame, but before each text in memory.
    let prefixes = texts.len().saturating_mul(embedder.prefix(*kind).len());
    if prefixes > MAX_FRAME {
        return what("a request with the prefix before each text", prefixes, MAX_FRAME);
    }
    let vectors = vector_bytes(texts.len(), embedder.dimension);
    if vectors > head.answer {
        return what("the answer to a request", vectors, head.answer);
    }
    let is_as_announced = *urgency == head.urgency;
    if !is_as_announced || *urgency == Urgency::Query && Urgency::of(texts) != Urgency::Query {
        return Err(Error::Internal("a request does not have the urgency that its frame announces".into()));
    }
    Ok(())
}

/// Encodes the frame of a request with its head. Returns an error if the request is too large.
pub fn encode_request(id: u64, request: &Request) -> Result<Vec<u8>> {
    let (answer, urgency) = match request {
        Request::Embed { embedder, urgency, texts, .. } => {
            (vector_bytes(texts.len(), embedder.dimension), *urgency)
        }
        Request::Rerank { texts, .. } => (vector_bytes(texts.len(), 2), Urgency::Bulk),
        Request::Chat { .. } => (MAX_CHAT, Urgency::Bulk),
        Request::Extract { .. } => (MAX_FILE_TEXT, Urgency::Bulk),
        Request::CountTokens { texts, .. } => (vector_bytes(texts.len(), 1), Urgency::of(texts)),
        Request::TakeQuestions { .. } => (2 * query_log::PART_BYTES, Urgency::Bulk),
        Request::TakeAccesses { .. } => (2 * memory_accesses::PART_BYTES, Urgency::Bulk),
        Request::TakeWantedSummaries { .. } => (wanted_summaries::PART_BYTES, Urgency::Bulk),
        Request::Fetch { .. } | Request::FetchMore(_) => (MAX_PART, Urgency::Ingest),
        Request::ListObjects { .. } | Request::ReadObject { .. } => (MAX_OBJECTS, Urgency::Ingest),
        Request::TakeUsage { .. }
        | Request::LogQuestion { .. }
        | Request::CountAccesses { .. }
        | Request::WantSummary { .. }
        | Request::FindQuestion { .. }
        | Request::Health => (0, Urgency::Query),
    };
    let mut frame = vec![0; Head::SIZE];
    write(&mut frame, id, request)?;
    let head = Head {
        length: bounded(frame.len() - Head::SIZE, MAX_FRAME)?,
        answer: bounded(answer, MAX_VECTORS)?,
        urgency,
    };
    check(request, &head)?;
    frame[..Head::SIZE].copy_from_slice(&head.write());
    Ok(frame)
}

fn write<T: Serialize>(frame: &mut Vec<u8>, id: u64, body: T) -> Result<()> {
    rmp_serde::encode::write(frame, &Envelope { id, body })
        .map_err(|e| Error::Internal(format!("message cannot be encoded: {e}")))
}

/// Encodes the frame of an answer: 4 bytes of length, little-endian, and the message.
pub fn encode<T: Serialize>(id: u64, body: T) -> Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    write(&mut frame, id, body)?;
    let length = bounded(frame.len() - 4, MAX_FRAME)?;
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// The length in the first four bytes of an answer.
pub fn frame_length(prefix: [u8; 4]) -> Result<usize> {
    bounded(u32::from_le_bytes(prefix) as usize, MAX_FRAME)
}

/// Decodes a message from the content of a frame (without head or length).
pub fn decode<T: for<'de> Deserialize<'de>>(content: &[u8]) -> Result<Envelope<T>> {
    rmp_serde::from_slice(content).map_err(|e| Error::Internal(format!("message cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Client, EmbedReply, Response, Usage, Vectors};
    use super::*;
    use kb_types::{Embedder, Kind};

    #[test]
    fn vectors_survive_the_wire() {
        let vectors = Vectors::new(2, &[vec![1.0, -0.5], vec![f32::MIN_POSITIVE, 3e7]]);
        let embedded = EmbedReply { vectors: vectors.clone(), failed: vec![], usage: Usage::default() };
        let frame = encode(7, Response::Embedded(embedded.clone())).unwrap();
        let length = frame_length([frame[0], frame[1], frame[2], frame[3]]).unwrap();
        assert_eq!(length, frame.len() - 4);
        let back: Envelope<Response> = decode(&frame[4..]).unwrap();
        assert_eq!(back.id, 7);
        assert_eq!(back.body, Response::Embedded(embedded));
        assert_eq!(vectors.numbers(), [1.0, -0.5, f32::MIN_POSITIVE, 3e7]);
        assert_eq!(vectors.count(), 2);
    }

    fn request(urgency: Urgency, dimension: usize, texts: Vec<String>) -> Request {
        Request::Embed {
            embedder: Embedder {
                id: "e".into(),
                provider: "hash".into(),
                model: "hash".into(),
                dimension,
                base_url: None,
                config: Default::default(),
            },
            access: Default::default(),
            kind: Kind::Document,
            urgency,
            texts,
            tokens: vec![],
            client: Client::default(),
            patience_ms: None,
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        assert!(frame_length([0xff; 4]).is_err());
        assert!(Head::read([0xff; Head::SIZE]).is_err());
        // A message with absurd inner lengths ends with its bytes.
        for array_or_map_or_text in [0xdd, 0xdf, 0xdb, 0xc6] {
            assert!(decode::<Request>(&[array_or_map_or_text, 0xff, 0xff, 0xff, 0xff, 0x01]).is_err());
        }
    }

    #[test]
    fn the_sender_refuses_requests_that_the_gateway_would_refuse() {
        let refused = |request: &Request| matches!(encode_request(1, request), Err(Error::TooLarge { .. }));
        assert!(!refused(&request(Urgency::Bulk, 4, vec!["a".repeat(MAX_TEXT)])));
        assert!(refused(&request(Urgency::Bulk, 4, vec!["a".repeat(MAX_TEXT + 1)])));
        assert!(refused(&request(Urgency::Bulk, 4000, vec!["a".into(); max_texts(4000) + 1])));
        assert!(refused(&request(Urgency::Bulk, 4, vec!["a".repeat(MAX_TEXT); 17])));
        let mut prefixed = request(Urgency::Bulk, 4, vec!["a".into(); 17]);
        assert!(!refused(&prefixed));
        if let Request::Embed { embedder, .. } = &mut prefixed {
            embedder.config.document_prefix = "a".repeat(MAX_TEXT);
        }
        assert!(refused(&prefixed));
        assert!(refused(&Request::CountTokens {
            embedder: match request(Urgency::Bulk, 1, vec![]) {
                Request::Embed { embedder, .. } => embedder,
                _ => unreachable!(),
            },
            texts: vec!["a".repeat(MAX_FRAME)],
        }));
    }

    #[test]
    fn a_request_must_match_its_head() {
        let many = request(Urgency::Bulk, 8, vec!["a".into(), "b".into()]);
        let frame = encode_request(3, &many).unwrap();
        let head = Head::read(*frame.first_chunk().unwrap()).unwrap();
        assert_eq!(head, Head { length: frame.len() - Head::SIZE, answer: 64, urgency: Urgency::Bulk });
        assert_eq!(check(&many, &head), Ok(()));
        assert!(check(&many, &Head { answer: 63, ..head }).is_err());
        assert!(check(&many, &Head { urgency: Urgency::Query, ..head }).is_err());
        // Several texts are not a question.
        assert!(encode_request(3, &request(Urgency::Query, 8, vec!["a".into(), "b".into()])).is_err());
    }
}
