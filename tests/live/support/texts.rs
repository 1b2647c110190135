//! Texts: plain English words in sentences and paragraphs, the same for the same seed.

use super::db::Document;
use std::ops::Range;

const WORDS: &[&str] = &[
    "river", "mountain", "engine", "garden", "letter", "winter", "summer", "market", "doctor", "teacher",
    "window", "bridge", "forest", "harbor", "island", "kitchen", "library", "machine", "museum", "office",
    "paper", "planet", "police", "school", "silver", "station", "stone", "storm", "street", "table",
    "theater", "ticket", "tower", "train", "travel", "valley", "village", "weather", "wheel", "wood",
    "yellow", "animal", "answer", "apple", "balance", "battle", "beauty", "bottle", "branch", "butter",
    "camera", "castle", "cattle", "center", "chance", "change", "cheese", "church", "circle", "coffee",
    "color", "copper", "corner", "cotton", "country", "courage", "danger", "desert", "dinner", "dollar",
    "dragon", "driver", "effort", "energy", "family", "farmer", "father", "feather", "figure", "finger",
    "flower", "friend", "future", "glass", "ground", "guitar", "hammer", "health", "history", "horse",
    "hotel", "hunter", "iron", "journey", "judge", "justice", "knife", "ladder", "language", "leader",
    "leather", "lesson", "magic", "matter", "memory", "metal", "middle", "mirror", "moment", "money",
];

/// Pseudo-random numbers by Steele, Lea and Flood's SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A paragraph of about this many words, in sentences of ten.
pub fn paragraph(seed: u64, words: usize) -> String {
    let mut state = seed;
    let mut text = String::new();
    for i in 0..words {
        let word = WORDS[(next(&mut state) % WORDS.len() as u64) as usize];
        match i % 10 {
            0 => text.push_str(&(word[..1].to_uppercase() + &word[1..])),
            _ => text.push_str(word),
        }
        text.push_str(if i % 10 == 9 || i + 1 == words { ". " } else { " " });
    }
    text.trim_end().to_string()
}

/// Paragraphs with a blank line between them.
pub fn paragraphs(seed: u64, count: usize, words: usize) -> Vec<String> {
    (0..count as u64).map(|i| paragraph(seed.wrapping_mul(1_000_003).wrapping_add(i), words)).collect()
}

pub fn text(seed: u64, count: usize, words: usize) -> String {
    paragraphs(seed, count, words).join("\n\n")
}

/// Documents "d0", "d1", … of a paragraph each, with this many words; a number always gives the same text.
pub fn documents(numbers: Range<u64>, words: usize) -> Vec<Document> {
    Document::numbered(numbers, |i| paragraph(i, words))
}
