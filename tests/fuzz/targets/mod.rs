//! The targets of fuzzing. Each takes any bytes, and panics if something that is promised does not hold.

mod answers;
mod chunking;
mod chunks;
mod config;
mod filters;
mod html;
mod markdown;
mod protocol;

pub struct Target {
    /// Also the folder of its seeds, tests/fuzz/seeds/NAME.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Generated seeds, in addition to those in files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The words of its language.
    pub words: &'static [&'static str],
}

pub const TARGETS: [Target; 7] = [
    html::TARGET,
    markdown::TARGET,
    chunking::TARGET,
    config::TARGET,
    filters::TARGET,
    protocol::TARGET,
    answers::TARGET,
];
