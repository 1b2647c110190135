//! Random inputs: each target gets inputs near its seeds for its part of a minute. targets/ has the
//! assertions. `make fuzz` runs the same targets for half an hour, guided by the code that an input reaches.
//!
//! KB_FUZZ_SECONDS is the time for all targets together. KB_FUZZ_SEED selects another sequence of inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod inputs;
mod memory;
mod targets;

use proptest::test_runner::{Config, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

const SECONDS: u64 = 60;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(Path::new("tests/fuzz/seeds").join(target.name)).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let kept = files.iter().map(|file| std::fs::read(file).unwrap());
    (target.seeds)().into_iter().chain(kept).collect()
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let time = Duration::from_secs(variable("KB_FUZZ_SECONDS", SECONDS)) / TARGETS.len() as u32;
    let seed = variable("KB_FUZZ_SEED", 1);
    let seeds = seeds(target);
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|input| (target.run)(input));
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let mut random = [0; 32];
    random[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(Default::default(), &random);
    let mut source = TestRunner::new_with_rng(config.clone(), random);
    let inputs = inputs::near(seeds, target);
    let (begun, count) = (Instant::now(), Cell::new(0));
    while begun.elapsed() < time {
        let run = |input: Vec<u8>| {
            (target.run)(&input);
            count.set(count.get() + 1);
            Ok(())
        };
        // A runner is done after its cases.
        let failed = TestRunner::new_with_rng(config.clone(), source.new_rng()).run(&inputs, run);
        if let Err(TestError::Fail(reason, input)) = failed {
            let file = std::env::temp_dir().join(format!("kb-fuzz-{name}"));
            std::fs::write(&file, &input).unwrap();
            let text = String::from_utf8_lossy(&input[..input.len().min(300)]);
            panic!(
                "{reason}\n{} has the input; keep it in tests/fuzz/seeds/{name}: {text:?}",
                file.display()
            );
        }
    }
    println!("{name}: {} inputs, KB_FUZZ_SEED={seed}", count.get());
    assert!(count.get() >= 100);
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
fn files_of_any_kind_have_text_that_can_be_stored_or_fail_by_name() {
    fuzz("files");
}

#[test]
fn every_target_is_run() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, ["html", "markdown", "chunking", "config", "filters", "protocol", "answers", "files"]);
}
