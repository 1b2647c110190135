//! No text costs more than n log n of its size. The tests measure memory and steps of work, which are the
//! same on every machine, of the worst known inputs. `make bench` prints their times (program.rs).

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod inputs;
mod memory;
mod work;

use kb_text::chunk::chunk;
use kb_text::chunk_settings::Chunking;
use kb_text::tokenizer::Tokenizer;
use work::{Work, bounds};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

const BYTES: usize = 16 * 1024;
const TIMES: usize = 4;
/// From 16 kB to 64 kB, n log n grows 4.6-fold and n² 16-fold. A window may grow a few times before it keeps
/// its size.
const GROWTH: usize = 11;
/// A cost of fewer bytes or steps is ignored.
const SMALL: usize = 1024 * 1024;
/// The most bytes held for each byte of text, above a small amount: an encoding takes about 320 for each of
/// the 32 kB that are tokenised at once.
const HELD: usize = 400;

/// The bytes allocated, the most bytes held, and the steps of work for an input at a size.
fn cost(work: &Work, input: &inputs::Input, bytes: usize) -> [usize; 3] {
    let text = input.text(bytes);
    let bounds = bounds();
    // The cost counts whether the text is refused or not.
    let (_, spent) = memory::measure(|| (work.run)(&text, &bounds));
    [spent.allocated, spent.held, bounds.spent() as usize]
}

fn check(is_of: impl Fn(&str) -> bool) {
    let mut missed = Vec::new();
    let mut checked = 0;
    for work in work::all().into_iter().filter(|work| is_of(&work.name)) {
        // Data that is made once, such as the tables of a tokeniser.
        cost(&work, &work.inputs[0], BYTES);
        for input in &work.inputs {
            // A Markdown block may make a window four times as large before it is cut inside.
            let bytes = match &work.name {
                name if name.starts_with("cut again markdown") => 4 * BYTES,
                name if name.starts_with("cut ") => BYTES / 2,
                _ => BYTES,
            };
            let (once, more) = (cost(&work, input, bytes), cost(&work, input, TIMES * bytes));
            for (what, (once, more)) in
                ["allocated", "held", "steps"].into_iter().zip(once.into_iter().zip(more))
            {
                if more > GROWTH * once.max(SMALL) {
                    missed.push(format!("{}: {}: {what} {once} -> {more}", work.name, input.name));
                }
            }
            if more[1] > SMALL + HELD * TIMES * bytes {
                missed.push(format!("{}: {}: held {} bytes", work.name, input.name, more[1]));
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} inputs");
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn extraction_costs_no_more_than_n_log_n() {
    check(|name| ["HTML", "Markdown", "plain text"].contains(&name));
}

#[test]
fn files_of_any_format_cost_no_more_than_n_log_n() {
    check(|name| name.starts_with("file "));
}

#[test]
fn tokenising_costs_no_more_than_n_log_n() {
    check(|name| name.starts_with("tokens:"));
}

#[test]
fn cutting_costs_at_most_n_log_n_under_every_strategy() {
    // Markdown is cut below, and with all settings in the benchmark.
    check(|name| {
        ["cut recursive", "cut fixed", "cut none", "cut by"].iter().any(|cut| name.starts_with(cut))
    });
}

#[test]
fn cutting_where_sentences_differ_costs_no_more_than_n_log_n() {
    // The distances are given, because the models' answers about sentences are no part of cutting.
    check(|name| name.starts_with("cut semantic"));
}

#[test]
fn large_chunks_take_no_more_memory_at_once_than_two_of_them() {
    let brackets = "[".repeat(6_000_000);
    for size in [100_000, 1_000_000] {
        let unit = kb_text::chunk_settings::Unit::Characters;
        let setting = Chunking {
            strategy: kb_text::chunk_settings::Strategy::Markdown,
            size,
            overlap: 0,
            unit,
            tokenizer: None,
            percentile: None,
            context: None,
            context_llm: None,
        };
        let (chunks, spent) =
            memory::measure(|| chunk(&brackets, &setting, &Tokenizer::words(), &[], &bounds()).unwrap());
        assert_eq!(chunks.len(), brackets.len() / size);
        // The parser and the splitter hold about 150 bytes for each byte that they read at once, which is at
        // most a third of the text here.
        assert!(spent.held < 60 * brackets.len(), "{size}: {} bytes a byte", spent.held / brackets.len());
    }
}

#[test]
fn cutting_again_and_comparing_costs_no_more_than_n_log_n() {
    check(|name| name.starts_with("cut again"));
}

#[test]
fn a_title_and_headings_are_read_once_however_many_chunks_have_them() {
    use kb_types::marks::Locator;
    let template = kb_types::chunk_context::ContextTemplate::try_from("title > heading".to_string()).unwrap();
    let cost = |bytes: usize, count: usize| {
        let (title, heading) = ("title ".repeat(bytes / 6), "x".repeat(1_000));
        let chunk = |n: usize| kb_text::chunk_settings::Chunk {
            content: "text".into(),
            context: None,
            span: kb_text::chunk_settings::Span { start: n, end: n + 1 },
            token_count: 1,
            locator: Locator { headings: vec![format!("{n} {heading}")], ..Locator::default() },
        };
        let mut chunks: Vec<_> = (0..count).map(chunk).collect();
        let bounds = bounds();
        let give =
            || kb_text::context::give(&mut chunks, &template, Some(&title), &Tokenizer::words(), &bounds);
        let (given, spent) = memory::measure(give);
        given.unwrap();
        [spent.allocated, bounds.spent() as usize]
    };
    let (once, longer, more) = (cost(1 << 20, 500), cost(2 << 20, 500), cost(1 << 20, 1_000));
    for what in 0..2 {
        assert!(longer[what] <= 2 * once[what], "{once:?} {longer:?}");
        assert!(more[what] <= 2 * once[what] + SMALL, "{once:?} {more:?}");
    }
    // If it were read for each chunk, the title alone would come to 500 MB.
    assert!(once[0] < 20 << 20, "{once:?}");
}

#[test]
fn the_gateways_frames_cost_no_more_than_n_log_n() {
    check(|name| name == "the gateway's frames");
}
