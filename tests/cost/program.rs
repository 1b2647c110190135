//! Prints what each input costs at one, two, four and eight times a size, for the benchmark.
//!
//! cost [--only WORDS] [--bytes N]
//! Lines of tabs: work, input, seconds at each size, bytes of memory per byte of the text at the last, the exponent,
//! ok or MISSED, and why it was refused, if it was.

#![allow(clippy::unwrap_used)] // a broken table is no table

mod inputs;
mod memory;
mod work;

use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// From a size to its eightfold n log n grows less than tenfold; what is under twice that is noise, n² is 64-fold.
const MOST: f64 = 20.0;
/// Times below this say nothing.
const SHORTEST: f64 = 0.002;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    let only = option("--only").unwrap_or_default();
    let bytes: usize = option("--bytes").map_or(64 * 1024, |bytes| bytes.parse().unwrap());
    for work in work::all() {
        for input in &work.inputs {
            if !format!("{}: {}", work.name, input.name).contains(&only) {
                continue;
            }
            measure(&work, input, bytes);
        }
    }
}

fn measure(work: &work::Work, input: &inputs::Input, bytes: usize) {
    let (mut seconds, mut memory, mut refused) = (Vec::new(), 0.0, String::new());
    for times in [1, 2, 4, 8] {
        let text = input.text(bytes * times);
        let mut best = Duration::MAX;
        for _ in 0..2 {
            let bounds = work::bounds();
            let begun = Instant::now();
            let (result, _, most) = memory::of(|| (work.run)(&text, &bounds));
            best = best.min(begun.elapsed());
            memory = most as f64 / text.len() as f64;
            refused = result.err().map_or(String::new(), |error| error.to_string());
        }
        seconds.push(best.as_secs_f64());
    }
    let growth = seconds[3] / seconds[0].max(SHORTEST);
    let verdict = if growth <= MOST { "ok" } else { "MISSED" };
    let times: Vec<String> = seconds.iter().map(|s| format!("{s:.4}")).collect();
    println!(
        "{}\t{}\t{}\t{memory:.0}\t{:.2}\t{verdict}\t{refused}",
        work.name,
        input.name,
        times.join("\t"),
        (seconds[3] / seconds[0].max(1e-6)).log2() / 3.0
    );
}
