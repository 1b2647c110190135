//! The targets of tests/fuzz under libFuzzer, which keeps the inputs that reach new code. KB_FUZZ_TARGET says which.

#![no_main]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/fuzz/memory.rs"]
mod memory;
// libFuzzer finds words by itself, and seeds in files.
#[allow(dead_code)]
#[path = "../../tests/fuzz/targets/mod.rs"]
mod targets;

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static RUN: OnceLock<fn(&[u8])> = OnceLock::new();
    let run = RUN.get_or_init(|| {
        let name = std::env::var("KB_FUZZ_TARGET").expect("KB_FUZZ_TARGET names a target");
        targets::TARGETS
            .iter()
            .find(|target| target.name == name)
            .expect("KB_FUZZ_TARGET: no such target")
            .run
    });
    run(data);
});
