//! Prints what each input costs at one, two, four and eight times a size, for the benchmark.
//!
//!     cost [--only WORDS] [--part K/N]
//!
//! Of N parts, the K-th has every N-th line from the K-th on. The lines have these columns, separated by
//! tabs: work, input, seconds at each size, bytes of memory per byte of the last text, the exponent, ok or
//! MISSED (with the time at a larger size, if eight times the size do not decide), and the reason if the text
//! was refused.

#![allow(clippy::unwrap_used)] // a broken table is no table

mod inputs;
mod memory;
mod time;
mod work;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// From a size to its eightfold, n log n grows less than tenfold and n² 64-fold. Growth of less than twice
/// the former is noise.
const MOST: f64 = 20.0;
/// Times below this are ignored.
const SHORTEST: f64 = 0.002;
/// An input that grows faster up to eight times a size may have windows that grow with the text before they
/// keep their size. It is measured at four times the size again, until it grows less than this or all windows
/// are full. n log n grows less than 5-fold, n² 16-fold; a text of a few windows may have one more than its
/// share.
const MOST_BEYOND: f64 = 7.0;
/// The size from which on a text of a quarter of it fills all windows, including the longest: the 2 MB of
/// Markdown that `Outline` reads at once.
const FULL: usize = 8 * 1024 * 1024;
/// After this many seconds no larger text is tried.
const TOO_LONG: f64 = 20.0;
/// The least and the greatest size of the smallest text.
const SMALLEST: usize = 2 * 1024;
const LARGEST: usize = 128 * 1024;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    let only = option("--only").unwrap_or_default();
    let part = option("--part").unwrap_or("1/1".into());
    let (part, parts) = part.split_once('/').unwrap();
    let (part, parts): (usize, usize) = (part.parse().unwrap(), parts.parse().unwrap());
    let mut line = 0;
    for work in work::all() {
        for input in &work.inputs {
            if format!("{}: {}", work.name, input.name).contains(&only) {
                if line % parts == part - 1 {
                    measure(&work, input);
                }
                line += 1;
            }
        }
    }
}

/// The processor time, the most bytes held for each byte of the text, and the reason if the text was refused.
fn cost(work: &work::Work, input: &inputs::Input, bytes: usize) -> (f64, f64, String) {
    let text = input.text(bytes);
    let bounds = work::bounds();
    let begun = time::spent();
    let (result, memory) = memory::measure(|| (work.run)(&text, &bounds));
    let seconds = (time::spent() - begun).as_secs_f64();
    let refused = result.err().map_or(String::new(), |error| error.to_string());
    (seconds, memory.held as f64 / text.len() as f64, refused)
}

fn measure(work: &work::Work, input: &inputs::Input) {
    // The size from which on its time can be measured.
    let mut bytes = SMALLEST;
    while bytes < LARGEST && cost(work, input, bytes).0 < SHORTEST {
        bytes *= 2;
    }
    let cost_at = |times: usize| cost(work, input, bytes * times);
    let growth = |costs: &[(f64, f64, String)]| costs[3].0 / costs[0].0.max(SHORTEST);
    let costs = [1, 2, 4, 8].map(cost_at);
    let mut verdict = "ok".to_string();
    if growth(&costs) > MOST {
        let (mut times, mut before) = (8, costs[3].0);
        verdict = loop {
            times *= 4;
            let beyond = cost_at(times).0;
            if beyond <= MOST_BEYOND * before {
                break format!("ok beyond: {times} n {beyond:.3}");
            }
            if bytes * times >= FULL || beyond > TOO_LONG {
                break format!("MISSED: {times} n {beyond:.3}");
            }
            before = beyond;
        };
    }
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
