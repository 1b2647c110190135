//! Signed feature hashing of words and word pairs: vectors without a model, for tests and trials.
//!
//! Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009: a feature's
//! hash picks its axis and its sign, so that collisions cancel in expectation and inner products of
//! hashed vectors estimate those of the full bags of words. Terms are weighted 1 + ln(count), and
//! function words count little, which a model would have learned.

use super::{LocalModel, Pause, finish, or_first_axis};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub struct Hash {
    embedder: Embedder,
}

/// Weight of a word pair beside a word's 1; of a word of up to three letters (mostly function words).
const PAIR: f32 = 0.25;
const SHORT_WORD: f32 = 0.25;

impl Hash {
    pub fn new(embedder: &Embedder) -> Hash {
        Hash { embedder: embedder.clone() }
    }

    fn vector(&self, words: &[Cow<str>]) -> Vec<f32> {
        // Ordered, so that the sums (and their rounding) are the same on every run and platform.
        let mut features: BTreeMap<(&str, Option<&str>), u32> = BTreeMap::new();
        for word in words {
            *features.entry((word, None)).or_default() += 1;
        }
        for pair in words.windows(2) {
            *features.entry((&pair[0], Some(&pair[1]))).or_default() += 1;
        }
        let mut vector = vec![0f32; self.embedder.dimension];
        for ((word, next), count) in features {
            let weight = match next {
                Some(_) => PAIR,
                None if word.chars().count() <= 3 => SHORT_WORD,
                None => 1.0,
            };
            let hash = hash_of(word, next);
            // The axis from the low bits, the sign from the highest: independent of each other.
            let axis = (hash % self.embedder.dimension as u64) as usize;
            let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
            vector[axis] += sign * weight * (1.0 + (count as f32).ln());
        }
        or_first_axis(vector)
    }
}

/// BLAKE3's first eight bytes: the same on every platform and in every version of Rust.
fn hash_of(word: &str, next: Option<&str>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(word.as_bytes());
    if let Some(next) = next {
        hasher.update(b" ").update(next.as_bytes());
    }
    let mut first = [0u8; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Runs of letters and digits, in any script.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn lower(word: &str) -> Cow<'_, str> {
    let is_lower = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if is_lower { Cow::Borrowed(word) } else { Cow::Owned(word.to_lowercase()) }
}

impl LocalModel for Hash {
    fn embed(&self, texts: &[String], kind: Kind, _pause: Pause) -> Result<Vec<Vec<f32>>> {
        let prefix = self.embedder.prefix(kind);
        let limit = self.max_input_tokens().unwrap_or(usize::MAX);
        texts
            .iter()
            .map(|text| {
                let text = format!("{prefix}{text}");
                let tokens = split(&text).count();
                if tokens > limit && !self.embedder.config.truncate {
                    return Err(Error::InputTooLong { model: self.embedder.model.clone(), tokens, limit });
                }
                let words: Vec<Cow<str>> = split(&text).take(limit).map(lower).collect();
                finish(&self.embedder, self.vector(&words))
            })
            .collect()
    }

    fn max_input_tokens(&self) -> Option<usize> {
        self.embedder.config.max_input_tokens
    }
}
