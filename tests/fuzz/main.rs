//! Random inputs: each target gets mutations of its seeds for its part of a minute. targets/ has the
//! assertions. `make fuzz` runs the same targets for half an hour, guided by the code that an input reaches.
//!
//! KB_FUZZ_SECONDS is the time for all targets together. KB_FUZZ_SEED selects another sequence of inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod memory;
mod mutate;
mod random;
mod targets;

use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

const SECONDS: u64 = 60;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = (target.seeds)();
    let dir = Path::new("tests/fuzz/seeds").join(target.name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    seeds.extend(files.iter().map(|file| std::fs::read(file).unwrap()));
    seeds
}

/// Runs one input. If it fails, keeps it in a file and prints the name of the file.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let dir = std::env::temp_dir();
        let file =
            dir.join(format!("kb-fuzz-{}-{:08x}", target.name, Random::seeded_by(input).below(usize::MAX)));
        std::fs::write(&file, input).unwrap();
        eprintln!(
            "the input is in {}; keep it in tests/fuzz/seeds/{}: {:?}",
            file.display(),
            target.name,
            String::from_utf8_lossy(&input[..input.len().min(300)])
        );
        std::panic::resume_unwind(panic);
    }
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let time = Duration::from_secs(variable("KB_FUZZ_SECONDS", SECONDS)) / TARGETS.len() as u32;
    let seed = variable("KB_FUZZ_SEED", 1);
    let mut inputs = seeds(target);
    assert!(!inputs.is_empty());
    for input in &inputs {
        run(target, input);
    }
    let mut random = Random::new(seed);
    let (begun, known, mut count) = (Instant::now(), inputs.len(), 0);
    while begun.elapsed() < time {
        let input = mutate::mutate(&mut random, &inputs, target.words);
        run(target, &input);
        count += 1;
        // Some are mutated further; the seeds always stay.
        if random.below(20) == 0 {
            if inputs.len() < known + 200 {
                inputs.push(input);
            } else {
                let at = known + random.below(200);
                inputs[at] = input;
            }
        }
    }
    println!("{name}: {count} inputs, KB_FUZZ_SEED={seed}");
    assert!(count > 0);
}

#[test]
fn html_of_any_kind_becomes_text_within_its_bounds() {
    fuzz("html");
}

#[test]
fn markdown_of_any_kind_is_cut_as_promised() {
    fuzz("markdown");
}

#[test]
fn chunking_settings_are_refused_or_kept() {
    fuzz("chunking");
}

#[test]
fn configurations_are_refused_or_kept() {
    fuzz("config");
}

#[test]
fn filters_are_handed_on_as_they_are() {
    fuzz("filters");
}

#[test]
fn frames_of_the_gateway_are_read_or_refused_in_memory_of_their_own_size() {
    fuzz("protocol");
}

#[test]
fn answers_of_providers_are_refused_or_have_a_number_for_each_place() {
    fuzz("answers");
}

#[test]
fn every_target_is_run() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, ["html", "markdown", "chunking", "config", "filters", "protocol", "answers"]);
}
