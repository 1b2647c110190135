//! The targets of fuzzing. Each takes any bytes, and panics if something that is promised does not hold.

mod answers;
mod chunking;
mod chunks;
mod config;
mod files;
mod filters;
mod html;
mod markdown;
mod protocol;

use fastrand::Rng;
use std::hash::{DefaultHasher, Hasher};

pub struct Target {
    /// The name, which is also that of the folder of its seeds, tests/fuzz/seeds/NAME.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Generated seeds, in addition to those in files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The words of its language, separated by blanks: ␣ stands for a blank in a word, ⏎ for the end of a
    /// line, and ‹feff› for the character of that number.
    pub words: &'static str,
}

/// Choices that depend only on the input: the same input makes the same choices.
fn choices(input: &[u8]) -> Rng {
    let mut hasher = DefaultHasher::new();
    hasher.write(input);
    Rng::with_seed(hasher.finish())
}

pub const TARGETS: [Target; 8] = [
    html::TARGET,
    markdown::TARGET,
    chunking::TARGET,
    config::TARGET,
    filters::TARGET,
    protocol::TARGET,
    answers::TARGET,
    files::TARGET,
];
