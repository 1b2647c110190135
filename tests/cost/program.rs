//! Prints what each input costs at one, two, four and eight times a size, for the benchmark.
//!
//! cost [--only WORDS]
//! Lines of tabs: work, input, seconds at each size, bytes of memory per byte of the text at the last, the exponent,
//! ok or MISSED (with the time at 32 times the size, where eight do not decide), and why it was refused, if it was.

#![allow(clippy::unwrap_used)] // a broken table is no table

mod inputs;
mod memory;
mod time;
mod work;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// From a size to its eightfold n log n grows less than tenfold; what is under twice that is noise, n² is 64-fold.
const MOST: f64 = 20.0;
/// Times below this say nothing.
const SHORTEST: f64 = 0.002;
/// What grows faster up to eight times a size may have a window or a part that grows with the text before it stays: from
/// eight to 32 times n log n grows less than 5-fold, n² 16-fold.
const MOST_BEYOND: f64 = 6.0;
/// Bytes of the smallest text, from and up to.
const SMALLEST: usize = 16 * 1024;
const LARGEST: usize = 128 * 1024;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    let only = option("--only").unwrap_or_default();
    for work in work::all() {
        for input in &work.inputs {
            if format!("{}: {}", work.name, input.name).contains(&only) {
                measure(&work, input);
            }
        }
    }
}

/// Processor time (the shortest of `runs`), bytes held at most for each of the text, and why the text was refused, if it
/// was.
fn cost(work: &work::Work, input: &inputs::Input, bytes: usize, runs: usize) -> (f64, f64, String) {
    let text = input.text(bytes);
    let mut cost = (f64::MAX, 0.0, String::new());
    for _ in 0..runs {
        let bounds = work::bounds();
        let begun = time::spent();
        let (result, _, most) = memory::of(|| (work.run)(&text, &bounds));
        let seconds = (time::spent() - begun).as_secs_f64();
        let refused = result.err().map_or(String::new(), |error| error.to_string());
        cost = (seconds.min(cost.0), most as f64 / text.len() as f64, refused);
    }
    cost
}

fn measure(work: &work::Work, input: &inputs::Input) {
    // The size from which on its time says something.
    let mut bytes = SMALLEST;
    while bytes < LARGEST && cost(work, input, bytes, 1).0 < SHORTEST {
        bytes *= 2;
    }
    let at = |times: usize, runs| cost(work, input, bytes * times, runs);
    let growth = |costs: &[(f64, f64, String)]| costs[3].0 / costs[0].0.max(SHORTEST);
    let mut costs = [1, 2, 4, 8].map(|times| at(times, 1));
    if growth(&costs) > MOST {
        // Once more, against noise.
        costs = [1, 2, 4, 8].map(|times| at(times, 3));
    }
    let verdict = if growth(&costs) <= MOST {
        "ok".to_string()
    } else {
        let beyond = at(32, 1).0;
        match beyond <= MOST_BEYOND * costs[3].0 {
            true => format!("ok beyond: 32 n {beyond:.3}"),
            false => format!("MISSED: 32 n {beyond:.3}"),
        }
    };
    let times: Vec<String> = costs.iter().map(|(seconds, ..)| format!("{seconds:.4}")).collect();
    let (seconds, memory, refused) = &costs[3];
    println!(
        "{}\t{} ({} kB)\t{}\t{memory:.0}\t{:.2}\t{verdict}\t{refused}",
        work.name,
        input.name,
        bytes / 1024,
        times.join("\t"),
        (seconds / costs[0].0.max(1e-6)).log2() / 3.0
    );
}
