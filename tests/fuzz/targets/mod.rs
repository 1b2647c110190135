//! What is fuzzed. Each target takes any bytes, and panics when something that is promised does not hold.

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
    /// Seeds that are made, beside those in files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What its language is made of.
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
