//! Reads replies of providers: JSON directly into f32, with a vector or a score for each text, in order.

use super::{Answer, EmbedAnswer, Unusable, VectorResult};
pub use crate::endpoint::error_body::line;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// Parses JSON. The error says what was expected where.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| unexpected(&error))
}

/// The error without the unexpected value. serde repeats a string, which may be a text or a key.
fn unexpected(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let expected = message.rfind(", expected ").map_or(message.as_str(), |at| &message[at + 2..]);
    format!("the answer is not the JSON expected: {expected}")
}

/// The text of a reply that is text.
pub fn text(body: &[u8]) -> Result<String, String> {
    std::str::from_utf8(body).map(str::to_string).map_err(|_| "the answer is not text in UTF-8".to_string())
}

/// The answer, if there are as many vectors as texts.
pub fn answer(vectors: Vec<Vector>, tokens: Option<u64>, count: usize) -> Result<EmbedAnswer, Unusable> {
    if vectors.len() != count {
        return Err(format!("the provider returned {} vectors for {count} texts", vectors.len()).into());
    }
    Ok(Answer { value: vectors.into_iter().map(|vector| vector.0).collect(), tokens })
}

/// A value in the place of a vector: JSON numbers, or little-endian f32 in base64. A number beyond f32
/// becomes infinite. Anything else is an error of this text alone, because the vectors of others are paid
/// for.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector(pub VectorResult);

impl Vector {
    fn wrong(problem: &str) -> Vector {
        Vector(Err(Unusable::Unexpected(problem.into())))
    }
}

impl Default for Vector {
    fn default() -> Vector {
        Vector(Err(Unusable::Unreadable("the provider returned no vector for this text".into())))
    }
}

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

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vector, A::Error> {
        let (mut vector, mut is_whole) = (Vec::new(), true);
        while let Some(Number(number)) = numbers.next_element()? {
            is_whole &= number.is_some();
            vector.push(number.unwrap_or_default());
        }
        match is_whole {
            true => Ok(Vector(Ok(vector))),
            false => Ok(Vector::wrong("its vector contains something that is not a number")),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vector, E> {
        let Ok(bytes) = STANDARD.decode(text) else {
            return Ok(Vector::wrong("its vector is neither an array of numbers nor base64"));
        };
        let (numbers, rest) = bytes.as_chunks::<4>();
        match rest.is_empty() {
            true => Ok(Vector(Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()))),
            false => Ok(Vector::wrong(&format!(
                "its vector has {} bytes, which is not a multiple of 4",
                bytes.len()
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vector, A::Error> {
        IgnoredAny.visit_map(map)?;
        Ok(Vector::wrong("its vector is an object"))
    }

    fn visit_unit<E: Error>(self) -> Result<Vector, E> {
        Ok(Vector::wrong("its vector is null"))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Vector, E> {
        Ok(Vector::wrong("its vector is a boolean"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Vector, E> {
        Ok(Vector::wrong("its vector is a single number"))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Vector, E> {
        Ok(Vector::wrong("its vector is a single number"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Vector, E> {
        Ok(Vector::wrong("its vector is a single number"))
    }
}

/// A number, or None for anything else.
struct Number(Option<f32>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
        Ok(Number(Some(number as f32)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        Ok(Number(Some(number as f32)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
        Ok(Number(Some(number as f32)))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_unit<E: Error>(self) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Number, A::Error> {
        IgnoredAny.visit_seq(seq)?;
        Ok(Number(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Number, A::Error> {
        IgnoredAny.visit_map(map)?;
        Ok(Number(None))
    }
}

/// A number of tokens, in the notations of servers (12, 12.0, "12"). Anything else is ignored and the tokens
/// are estimated, so that vectors that are paid for are not lost.
pub fn count(value: &Value) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// The number of tokens in the first of these fields that has one.
pub fn tokens(usage: &Value, fields: &[&str]) -> Option<u64> {
    fields.iter().find_map(|field| count(usage.get(field)?))
}

/// The sum of these fields, as far as they have numbers. None if none has one.
pub fn sum(usage: &Value, fields: &[&str]) -> Option<u64> {
    let counts = fields.iter().filter_map(|field| count(usage.get(field)?));
    counts.reduce(u64::saturating_add)
}

#[derive(Deserialize)]
struct OpenAiAnswer {
    data: Vec<Option<OpenAiItem>>,
    #[serde(default)]
    usage: Value,
}

#[derive(Default, Deserialize)]
struct OpenAiItem {
    #[serde(default)]
    index: Value,
    #[serde(default)]
    embedding: Vector,
}

/// Reads a reply in OpenAI's format:
/// `{"data": [{"index": 0, "embedding": […]}], "usage": {"total_tokens": 7}}`. Vectors are sorted by `index`.
/// If no item has one, they keep their order.
pub fn openai(body: &[u8], texts: usize) -> Result<EmbedAnswer, Unusable> {
    let OpenAiAnswer { data, usage } = parse(body)?;
    let tokens = tokens(&usage, &["total_tokens", "prompt_tokens"]);
    let data = data.into_iter().map(Option::unwrap_or_default);
    let (indexes, vectors): (Vec<_>, Vec<_>) =
        data.map(|item| (count(&item.index).map(|index| index as usize), item.embedding)).unzip();
    if indexes.iter().all(Option::is_none) {
        return answer(vectors, tokens, texts);
    }
    answer(in_order(indexes.into_iter().zip(vectors), texts)?, tokens, texts)
}

/// The items for each text, in the order of the texts. A text whose index is missing or occurs twice gets no
/// item. An index that no text has makes all indexes meaningless.
fn in_order<T: Default>(
    items: impl IntoIterator<Item = (Option<usize>, T)>,
    texts: usize,
) -> Result<Vec<T>, Unusable> {
    let mut places: Vec<Vec<T>> = (0..texts).map(|_| Vec::new()).collect();
    for (index, item) in items.into_iter().filter_map(|(index, item)| Some((index?, item))) {
        let place = places.get_mut(index);
        place
            .ok_or_else(|| {
                format!("the provider returned an index that is not from 0 to {}", texts.saturating_sub(1))
            })?
            .push(item);
    }
    let only = |mut place: Vec<T>| if place.len() == 1 { place.pop() } else { None };
    Ok(places.into_iter().map(|place| only(place).unwrap_or_default()).collect())
}

/// The score of a text, in the format of most providers.
#[derive(Default, Deserialize)]
pub struct Score {
    #[serde(default)]
    index: Value,
    #[serde(default, alias = "score")]
    relevance_score: Value,
}

/// The scores in the order of the texts. A text without a valid score comes last, because the scores of the
/// others are paid for and some servers omit irrelevant texts. Returns an error if no text has a score.
pub fn scores(
    items: Vec<Option<Score>>,
    tokens: Option<u64>,
    count: usize,
) -> Result<Answer<Vec<f64>>, Unusable> {
    let items = items.into_iter().map(|item| {
        let Score { index, relevance_score } = item.unwrap_or_default();
        (index.as_u64().map(|index| index as usize), relevance_score.as_f64())
    });
    let scores: Vec<Option<f64>> = in_order(items, count)?;
    if count > 0 && scores.iter().all(Option::is_none) {
        return Err(format!("the provider returned no score for any of {count} texts").into());
    }
    let last = scores.iter().flatten().copied().fold(0.0, f64::min);
    Ok(Answer { value: scores.into_iter().map(|score| score.unwrap_or(last)).collect(), tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scores_are_put_in_the_order_of_the_texts_and_each_has_one() {
        let read = |list: &[(usize, f64)], count| {
            let items: Value =
                list.iter().map(|(index, score)| json!({"index": index, "score": score})).collect();
            scores(serde_json::from_value(items).unwrap(), None, count).map(|answer| answer.value)
        };
        assert_eq!(read(&[(2, 0.9), (0, 0.5), (1, 0.1)], 3).unwrap(), [0.5, 0.1, 0.9]);
        for (wrong, count) in
            [(&[(0, 0.9), (0, 0.1)][..], 2), (&[(0, 0.9), (2, 0.1)], 2), (&[(0, 0.9), (1, 0.1)], 1), (&[], 2)]
        {
            assert!(matches!(read(wrong, count), Err(Unusable::Unreadable(_))), "{wrong:?}");
        }
        assert_eq!(read(&[], 0).unwrap(), [0.0; 0]);
    }

    #[test]
    fn a_text_without_a_score_comes_last_and_others_keep_theirs() {
        for (items, expected) in [
            (json!([{"index": 0, "score": 0.9}]), [0.9, 0.0, 0.0]),
            (json!([{"index": 2, "score": 0.9}, {"index": 1, "score": -2.5}]), [-2.5, -2.5, 0.9]),
            (json!([{"index": 0, "score": null}, {"index": 1, "score": 0.5}, {"index": 2}]), [0.0, 0.5, 0.0]),
            (json!([{"index": 0, "score": "NaN"}, {"index": 1, "score": 0.5}, null]), [0.0, 0.5, 0.0]),
            (
                json!([{"index": 0, "score": 0.4}, {"index": 0, "score": 0.5}, {"index": 1, "score": 0.6}]),
                [0.0, 0.6, 0.0],
            ),
        ] {
            let read = scores(serde_json::from_value(items.clone()).unwrap(), None, 3);
            assert_eq!(read.unwrap().value, expected, "{items}");
        }
    }
}
