//! Signed feature hashing of words and word pairs: vectors without a model, for tests and trials.
//!
//! Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009: a feature's
//! hash picks its axis and its sign, so that collisions cancel in expectation and inner products of
//! hashed vectors estimate those of the full bags of words. Terms are weighted 1 + ln(count), and
//! function words count little, which a model would have learned.

use super::{LocalModel, Pause, finish, or_first_axis};
use foldhash::HashMap;
use kb_types::error::{Error, Result};
use kb_types::sync::lock;
use kb_types::{Embedder, Kind};
use std::borrow::Cow;
use std::sync::Mutex;

pub struct Hash {
    embedder: Embedder,
    /// The hashes of frequent words. They are taken out while texts are embedded, so that of two concurrent
    /// calls one begins without them.
    known: Mutex<HashMap<String, u64>>,
}

/// The most words whose hashes are kept between calls, and their most bytes. Longer words rarely occur again.
const MOST_KNOWN: usize = 50_000;
const LONGEST_KNOWN: usize = 32;

/// The weight of a pair of words, compared with 1 for a word, and the weight of words of up to three letters
/// (mostly function words).
const PAIR: f32 = 0.25;
const SHORT_WORD: f32 = 0.25;

impl Hash {
    pub fn new(embedder: &Embedder) -> Hash {
        Hash { embedder: embedder.clone(), known: Mutex::default() }
    }

    /// Adds missing hashes of short words to `known`.
    fn vector(&self, words: &[Cow<str>], known: &mut HashMap<String, u64>) -> Vec<f32> {
        let mut features: Vec<(u64, f32)> = Vec::with_capacity(2 * words.len());
        for word in words {
            let weight = if word.chars().nth(3).is_none() { SHORT_WORD } else { 1.0 };
            let hash = known.get(&**word).copied().unwrap_or_else(|| {
                let hash = hash_of(word);
                if word.len() <= LONGEST_KNOWN {
                    known.insert(word.to_string(), hash);
                }
                hash
            });
            features.push((hash, weight));
        }
        let of_words = 0..words.len();
        for (one, next) in of_words.clone().zip(of_words.skip(1)) {
            features.push((hash_of_pair(features[one].0, features[next].0), PAIR));
        }
        // Sorted, so that sums and their rounding are the same on every run and platform.
        features.sort_unstable_by_key(|(hash, _)| *hash);
        let mut vector = vec![0f32; self.embedder.dimension];
        for same in features.chunk_by(|(one, _), (other, _)| one == other) {
            let (hash, weight) = same[0];
            // The low bits give the axis and the highest bit gives the sign, so that they are independent.
            let axis = (hash % self.embedder.dimension as u64) as usize;
            let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
            vector[axis] += sign * weight * (1.0 + (same.len() as f32).ln());
        }
        or_first_axis(vector)
    }
}

/// The first eight bytes of BLAKE3, which are the same on every platform and in every version of Rust.
fn hash_of(word: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(word.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The hash of two words in this order, mixed from their hashes like in SplitMix64 (Steele, Lea and Flood,
/// OOPSLA 2014), so that each bit of either changes about half of the bits.
fn hash_of_pair(one: u64, next: u64) -> u64 {
    let mut mixed = one.wrapping_add(next.rotate_left(1));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
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
        let mut known = std::mem::take(&mut *lock(&self.known));
        let vectors = texts
            .iter()
            .map(|text| {
                let text = format!("{prefix}{text}");
                let mut words: Vec<Cow<str>> = split(&text).map(lower).collect();
                let tokens = words.len();
                if tokens > limit && !self.embedder.config.truncate {
                    return Err(Error::InputTooLong { model: self.embedder.model.clone(), tokens, limit });
                }
                words.truncate(limit);
                finish(&self.embedder, self.vector(&words, &mut known))
            })
            .collect();
        if known.len() <= MOST_KNOWN {
            *lock(&self.known) = known;
        }
        vectors
    }

    fn max_input_tokens(&self) -> Option<usize> {
        self.embedder.config.max_input_tokens
    }
}
