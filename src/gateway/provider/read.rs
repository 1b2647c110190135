//! What the dialects share in reading an answer: JSON straight into f32, a vector for each text, in order.

use super::{Answer, Unusable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Reads JSON. The error says what was expected where.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| unexpected(&error))
}

/// The error without what was found instead: serde repeats a string that it finds, which may be a text
/// or a key.
pub fn unexpected(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let expected = message.rfind(", expected ").map_or(message.as_str(), |at| &message[at + 2..]);
    format!("the answer is not the JSON expected: {expected}")
}

/// The answer, if it has as many vectors as there were texts.
pub fn answer(vectors: Vec<Vec<f32>>, tokens: Option<u64>, count: usize) -> Result<Answer, Unusable> {
    if vectors.len() != count {
        return Err(format!("{} vectors came back for {count} texts", vectors.len()).into());
    }
    Ok(Answer { value: vectors, tokens })
}

/// A vector as JSON numbers, or as little-endian f32 in base64. A number beyond f32 becomes infinite.
pub struct Vector(pub Vec<f32>);

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VectorVisitor)
    }
}

struct VectorVisitor;

impl<'de> Visitor<'de> for VectorVisitor {
    type Value = Vector;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an array of numbers or base64")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, numbers: A) -> Result<Vector, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(numbers)).map(Vector)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vector, E> {
        let bytes = STANDARD.decode(text).map_err(|_| E::custom("a vector is not base64"))?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(E::custom(format_args!("a vector has {} bytes, no multiple of 4", bytes.len())));
        }
        Ok(Vector(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()))
    }
}

#[derive(Deserialize)]
struct OpenAiAnswer {
    data: Vec<Item>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vector,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
}

/// Reads an answer of the shape that OpenAI made common:
/// `{"data": [{"index": 0, "embedding": […]}], "usage": {"total_tokens": 7}}`. Vectors are put in the
/// order of `index`; where no item has one, they stay as they came.
pub fn openai(body: &[u8], count: usize) -> Result<Answer, Unusable> {
    let OpenAiAnswer { mut data, usage } = parse(body)?;
    if data.len() == count && data.iter().any(|item| item.index.is_some()) {
        data.sort_unstable_by_key(|item| item.index);
        if data.iter().enumerate().any(|(place, item)| item.index != Some(place)) {
            return Err(format!("the indexes that came back are not 0 to {}, each once", count - 1).into());
        }
    }
    let tokens = usage.and_then(|usage| usage.total_tokens.or(usage.prompt_tokens));
    answer(data.into_iter().map(|item| item.embedding.0).collect(), tokens, count)
}
