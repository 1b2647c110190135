//! Tests of the guarantees that hold for every strategy and tokeniser.

use super::*;
use crate::chunk_settings::Unit;
use crate::tokenizer::tests::wordpiece;
use fastrand::Rng;
use kb_types::Limits;
use kb_types::error::Error;

const WORDS: [&str; 16] = [
    "hello",
    "worlds",
    "unbreakable",
    "é",
    "naïve",
    "漢字かな交じり文",
    "🦀🦀👩‍👩‍👧",
    "x_y=z;",
    "a",
    "the",
    "(see",
    "3.14)",
    "end.",
    "Why?",
    "Zürich,",
    "\u{301}combining",
];

/// Splits a text as Markdown or as plain text.
pub fn cut(
    text: &str,
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    markdown: bool,
    bounds: &Bounds,
) -> Result<Vec<Chunk>> {
    chunk(text, chunking, tokenizer, &marks(text, markdown), bounds)
}

pub fn marks(text: &str, markdown: bool) -> Vec<Marked> {
    if markdown { Outline::read(text, &Bounds::none()).unwrap().marks } else { Vec::new() }
}

/// A paragraph of about `words` words.
pub fn paragraph(random: &mut Rng, words: usize) -> String {
    (0..words.max(1)).map(|_| WORDS[random.usize(..WORDS.len())]).collect::<Vec<_>>().join(" ")
}

fn document(random: &mut Rng, blocks: usize) -> String {
    let mut text = "\n ".repeat(random.usize(..2));
    for i in 0..blocks {
        let words = 1 + random.usize(..60);
        let block = paragraph(random, words);
        match random.usize(..8) {
            0 => text += &format!("{} Heading {i}\n\n", "#".repeat(1 + random.usize(..3))),
            1 => text += &format!("```\n{}\n\n# no heading\n```\n\n", block.replace(' ', "\n    ")),
            2 => text += &format!("- {}\n\n", block.replace(' ', "\n- ")),
            3 => text += &format!("{}\u{a0}\n\n\n\n", block.replace(' ', "")),
            _ => text += &format!("{block}\n{}", "\n".repeat(random.usize(..3))),
        }
    }
    text
}

pub fn chunking(strategy: Strategy, size: usize, overlap: usize, unit: Unit) -> Chunking {
    let percentile = (strategy == Strategy::Semantic).then_some(50);
    Chunking { strategy, size, overlap, unit, tokenizer: None, percentile, context: None, context_llm: None }
}

fn blank_before(characters: &[char], at: usize) -> bool {
    characters[..at].iter().all(|c| c.is_whitespace())
}

/// Checks all guarantees for the chunks of a text.
pub fn check(text: &str, chunks: &[Chunk], chunking: &Chunking, tokenizer: &Tokenizer) {
    let characters: Vec<char> = text.chars().collect();
    let mut covered = 0;
    let mut last: Option<Span> = None;
    let row_ends: Option<(Vec<usize>, Vec<usize>)> = (chunking.strategy == Strategy::Rows).then(|| {
        let (mut starts, mut ends) = (Characters::new(text), Characters::new(text));
        rows::ranges(text).map(|row| (starts.before(row.start), ends.before(row.end))).unzip()
    });
    for chunk in chunks {
        let Span { start, end } = chunk.span;
        assert_eq!(chunk.content, characters[start..end].iter().collect::<String>(), "span");
        assert!(!chunk.content.trim().is_empty(), "white space only");
        assert_eq!(chunk.token_count, tokenizer.count(&chunk.content, &Bounds::none()).unwrap(), "tokens");
        if let Some(last) = last {
            assert!(start > last.start && end > last.end, "order: {last:?} {:?}", chunk.span);
        }
        last = Some(chunk.span);
        if start > covered {
            let between: String = characters[covered..start].iter().collect();
            assert!(between.trim().is_empty(), "lost: {between:?}");
        }
        covered = end;
        if let Some((starts, ends)) = &row_ends {
            let is_whole = starts.binary_search(&start).is_ok() && ends.binary_search(&end).is_ok();
            assert!(is_whole, "a part of a row: {:?}", chunk.content);
        }
        let has_header = blank_before(&characters, start);
        let rows = rows::count(&chunk.content).saturating_sub(usize::from(has_header));
        let units = match chunking.unit {
            Unit::Tokens => chunk.token_count,
            Unit::Characters => end - start,
            Unit::Rows => rows,
        };
        let is_one_row = chunking.strategy == Strategy::Rows && rows <= 1;
        let may_be_larger = chunking.strategy == Strategy::None || is_one_row || end - start == 1;
        assert!(units <= chunking.size || may_be_larger, "{units} of {}: {:?}", chunking.size, chunk.content);
    }
    assert!(characters[covered..].iter().all(|c| c.is_whitespace()), "end lost");
}

#[test]
fn every_strategy_keeps_every_promise_with_every_tokeniser() {
    let mut random = Rng::with_seed(7);
    let tokenizers = [Tokenizer::words(), wordpiece(), Tokenizer::tiktoken("cl100k_base").unwrap()];
    for round in 0..12 {
        let text = document(&mut random, 1 + round * 4);
        for tokenizer in &tokenizers {
            for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::None] {
                for (size, overlap) in [(1, 0), (7, 3), (40, 0), (40, 6), (40, 20), (400, 60)] {
                    for unit in [Unit::Tokens, Unit::Characters] {
                        let setting = chunking(strategy, size, overlap, unit);
                        let chunks =
                            cut(&text, &setting, tokenizer, round % 2 == 0, &Bounds::none()).unwrap();
                        check(&text, &chunks, &setting, tokenizer);
                    }
                }
            }
        }
    }
}

#[test]
fn strategy_rows_keeps_every_promise_and_every_row() {
    let mut random = Rng::with_seed(19);
    let tokenizers = [Tokenizer::words(), wordpiece(), Tokenizer::tiktoken("cl100k_base").unwrap()];
    for round in 0..12 {
        // Any text, and a table.
        let table: String = (0..round * 10)
            .map(|row| {
                let words = 1 + random.usize(..9);
                format!("{row},\"{}\n\"\"x\"\"\"\n", paragraph(&mut random, words).replace('"', ""))
            })
            .collect();
        for text in [document(&mut random, round * 4), table.clone()] {
            for tokenizer in &tokenizers {
                for (size, unit) in
                    [1, 7, 40, 400].into_iter().flat_map(|n| [(n, Unit::Tokens), (n, Unit::Rows)])
                {
                    let setting = chunking(Strategy::Rows, size, 0, unit);
                    let chunks = cut(&text, &setting, tokenizer, false, &Bounds::none()).unwrap();
                    check(&text, &chunks, &setting, tokenizer);
                    if text == table {
                        assert!(chunks.iter().all(|chunk| chunk.content.ends_with("x\"\"\"")));
                        let rows: usize = chunks.iter().map(|chunk| rows::count(&chunk.content)).sum();
                        assert_eq!(rows, round * 10);
                    }
                }
            }
        }
    }
}

#[test]
fn strategy_semantic_keeps_every_promise_whatever_the_distances() {
    let mut random = Rng::with_seed(17);
    let tokenizers = [Tokenizer::words(), wordpiece(), Tokenizer::tiktoken("cl100k_base").unwrap()];
    for round in 0..12 {
        let text = document(&mut random, round * 4);
        for tokenizer in &tokenizers {
            for (size, unit) in
                [1, 7, 40, 400].into_iter().flat_map(|n| [(n, Unit::Tokens), (n, Unit::Characters)])
            {
                let setting = chunking(Strategy::Semantic, size, 0, unit);
                let bounds = Bounds::none();
                let sentences = Sentences::of(&text, &setting, tokenizer, &bounds).unwrap();
                let count = sentences.texts().len();
                let mut distances: Vec<f32> =
                    (1..count).map(|_| random.usize(..2000) as f32 / 1000.0).collect();
                if round % 3 == 0 {
                    distances.fill(f32::NAN);
                }
                let marks = marks(&text, false);
                let chunks =
                    semantic_chunk(&sentences, &distances, &setting, tokenizer, &marks, &bounds).unwrap();
                check(&text, &chunks, &setting, tokenizer);
            }
        }
    }
}

#[test]
fn a_blank_text_has_no_chunks() {
    for text in ["", " ", "\n\n\u{a0}\t"] {
        for strategy in
            [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::Rows, Strategy::None]
        {
            let setting = chunking(strategy, 10, 0, Unit::Tokens);
            assert_eq!(cut(text, &setting, &Tokenizer::words(), true, &Bounds::none()).unwrap(), []);
        }
    }
}

#[test]
fn cutting_by_windows_gives_the_chunks_of_one_cut() {
    let mut random = Rng::with_seed(11);
    let text = document(&mut random, 1500);
    assert!(text.len() > 300_000, "{}", text.len());
    let (tokenizer, bounds) = (Tokenizer::words(), Bounds::none());
    for strategy in [Strategy::Recursive, Strategy::Fixed] {
        for (size, overlap) in [(60, 0), (60, 9), (60, 30)] {
            let setting = chunking(strategy, size, overlap, Unit::Tokens);
            let by_windows =
                split(&text, 0..text.len(), &setting, &tokenizer, &Outline::default(), &bounds).unwrap();
            let sizer = sizer::WindowSizer::new(&text, Unit::Tokens, &tokenizer, &bounds).unwrap();
            let at_once = match strategy {
                Strategy::Fixed => fixed::cut(&text, &setting, &sizer).unwrap(),
                _ => recursive::cut(&text, &setting, &sizer).unwrap().ranges,
            };
            let by_windows: Vec<_> = by_windows.into_iter().map(|p| p.range).collect();
            assert_eq!(by_windows, at_once);
        }
    }
}

#[test]
fn markdown_sections_stay_whole_and_carry_their_headings() {
    let text = "# Guide\n\nIntro.\n\n## Install\n\nRun it here now.\n\n```sh\n# comment\nmake\n```\n\n## Use\n\nCall it there now.\n";
    let setting = chunking(Strategy::Markdown, 18, 0, Unit::Tokens);
    let chunks = cut(text, &setting, &Tokenizer::words(), true, &Bounds::none()).unwrap();
    let install = chunks.iter().find(|c| c.content.starts_with("## Install")).unwrap();
    assert_eq!(install.locator.headings, ["Guide", "Install"]);
    let last = chunks.last().unwrap();
    assert_eq!(last.locator.headings, ["Guide", "Use"]);
    assert!(last.content.starts_with("## Use"));
    let plain = cut(text, &setting, &Tokenizer::words(), false, &Bounds::none()).unwrap();
    assert!(plain.iter().all(|c| c.locator.headings.is_empty()));
}

#[test]
fn fixed_windows_are_full_and_overlap_as_asked() {
    let text = (0..100).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
    let setting = chunking(Strategy::Fixed, 10, 2, Unit::Tokens);
    let chunks = cut(&text, &setting, &Tokenizer::words(), false, &Bounds::none()).unwrap();
    assert_eq!(chunks[0].content, "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9");
    assert!(chunks[1].content.starts_with("w8 w9 w10"));
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c.token_count == 10));
    let setting = chunking(Strategy::Fixed, 3, 0, Unit::Characters);
    let chunks = cut("äöü🦀éx", &setting, &Tokenizer::words(), false, &Bounds::none()).unwrap();
    assert_eq!(chunks.iter().map(|c| c.content.as_str()).collect::<Vec<_>>(), ["äöü", "🦀éx"]);
}

#[test]
fn a_fixed_chunk_is_bounded_whatever_the_tokeniser_drops_or_does_not_know() {
    let tokenizer = wordpiece();
    let setting = chunking(Strategy::Fixed, 20, 5, Unit::Tokens);
    // One unknown word for each piece that is tokenised, nothing at all, and no more than a unit of nothing.
    // White space between dropped characters does not end a unit.
    let dropped = "hello".to_string() + &"\u{200b}\n".repeat(60_000);
    for text in
        ["x".repeat(200_000), "é".repeat(100_000), "\u{200b}".repeat(60_000), dropped, "\u{200b}".into()]
    {
        let chunks = cut(&text, &setting, &tokenizer, false, &Bounds::none()).unwrap();
        check(&text, &chunks, &setting, &tokenizer);
        let longest = chunks.iter().map(|chunk| chunk.content.len()).max();
        assert!(longest.is_some_and(|longest| longest <= 20 * sizer::LONGEST_TOKEN), "{longest:?}");
    }
    // A gap between words is not a unit.
    let gaps = "hello".to_string() + &format!("{}world", " ".repeat(200)).repeat(100);
    let chunks = cut(&gaps, &setting, &tokenizer, false, &Bounds::none()).unwrap();
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk.token_count == 20));
}

#[test]
fn overlap_repeats_the_end_of_the_chunk_before() {
    let mut random = Rng::with_seed(3);
    let text = (0..50).map(|_| paragraph(&mut random, 8)).collect::<Vec<_>>().join("\n\n");
    let setting = chunking(Strategy::Recursive, 100, 40, Unit::Tokens);
    let chunks = cut(&text, &setting, &Tokenizer::words(), false, &Bounds::none()).unwrap();
    let overlapping = chunks.windows(2).filter(|w| w[1].span.start < w[0].span.end).count();
    assert!(overlapping * 10 >= (chunks.len() - 1) * 9, "{overlapping} of {}", chunks.len());
}

#[test]
fn work_grows_with_the_length_of_the_text_only() {
    let mut random = Rng::with_seed(5);
    let part = document(&mut random, 400);
    let work = |text: &str, strategy| {
        let setting = chunking(strategy, 200, 30, Unit::Tokens);
        let (chunks, spent) = spent(text, &setting, &Tokenizer::words(), Limits::none());
        chunks.unwrap();
        spent
    };
    for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::Rows] {
        let (short, long) = (part.repeat(4), part.repeat(40));
        let (one, ten) = (work(&short, strategy), work(&long, strategy));
        assert!(ten < one * 13, "{strategy:?}: {one}, ten times the text {ten}");
    }
    // One endless line, one endless word, nothing but line breaks, one endless code block.
    for text in [
        "word ".repeat(400_000),
        "x".repeat(1_000_000),
        "\n \n".repeat(300_000),
        format!("```\n{}", "a = b\n".repeat(200_000)),
    ] {
        for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::Rows] {
            let each = work(&text, strategy) / text.len() as u64;
            assert!(each <= 60, "{strategy:?} {:?}: {each} a byte", &text[..8]);
        }
    }
}

/// The work spent on a text, whether it gives chunks or an error.
fn spent(text: &str, setting: &Chunking, tokenizer: &Tokenizer, limits: Limits) -> (Result<Vec<Chunk>>, u64) {
    let bounds = Bounds::begin(limits);
    let result = cut(text, setting, tokenizer, true, &bounds);
    (result, bounds.spent())
}

#[test]
fn a_text_that_becomes_too_many_chunks_is_refused_before_they_are_made() {
    let text = "word ".repeat(200_000);
    let limits = Limits { chunks: 100, ..Limits::none() };
    for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed] {
        for (size, overlap) in [(1, 0), (20, 10)] {
            let setting = chunking(strategy, size, overlap, Unit::Tokens);
            let (result, cost) = spent(&text, &setting, &Tokenizer::words(), limits);
            assert!(matches!(result, Err(Error::Limit { setting: "kb.max_chunks_per_document", .. })));
            let (short, _) = spent(&text[..400], &setting, &Tokenizer::words(), limits);
            assert!(short.is_ok());
            // Besides the outline and the first windows, less than reading the text once more.
            assert!(cost < 3 * text.len() as u64, "{strategy:?} {size}: {cost}");
        }
    }
}

#[test]
fn headings_above_chunks_count_as_their_text() {
    let text = format!("# {}\n\n{}", "long ".repeat(200), "word ".repeat(1000));
    let setting = chunking(Strategy::Recursive, 10, 0, Unit::Tokens);
    let cut = |bytes| spent(&text, &setting, &Tokenizer::words(), Limits { bytes, ..Limits::none() }).0;
    assert!(matches!(cut(50_000), Err(Error::Limit { setting: "kb.max_extracted_size", .. })));
    assert!(cut(200_000).is_ok());
}

#[test]
fn chunking_stops_when_the_time_of_the_document_is_used_up() {
    let limits = Limits { time: Some(std::time::Duration::ZERO), ..Limits::none() };
    for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed, Strategy::Rows, Strategy::None]
    {
        let setting = chunking(strategy, 20, 10, Unit::Tokens);
        let (result, cost) = spent(&"word ".repeat(200_000), &setting, &Tokenizer::words(), limits);
        assert!(matches!(result, Err(Error::Limit { setting: "kb.extract_timeout", .. })), "{strategy:?}");
        assert!(cost < 3_000_000, "{strategy:?}: {cost}");
    }
}

#[test]
fn text_without_a_size_does_not_stall_an_overlap() {
    // Advancing over it one part at a time would cost as much as a chunk each time.
    let words = Tokenizer::words();
    for (name, unit, tokenizer) in [
        ("tabs", "\t", &words),
        ("no-break spaces", "\u{a0}", &words),
        ("zero-width spaces", "\u{200b}", &wordpiece()),
        ("lines of a control character", "\u{1}\n", &wordpiece()),
        (
            "a long word behind short ones",
            &format!("{}{}\n", "a\n".repeat(19), "hello ".repeat(30)),
            &wordpiece(),
        ),
    ] {
        for strategy in [Strategy::Recursive, Strategy::Markdown] {
            let setting = chunking(strategy, 20, 10, Unit::Tokens);
            let cost = |bytes: usize| {
                let text = format!("hello {} world", unit.repeat(bytes / unit.len()));
                let (result, cost) = spent(&text, &setting, tokenizer, Limits::none());
                check(&text, &result.unwrap(), &setting, tokenizer);
                cost
            };
            let (once, more) = (cost(10_000), cost(80_000));
            assert!(more < 12 * once.max(100_000), "{strategy:?} {name}: {once} -> {more}");
        }
    }
}

/// Not a test: prints MB/s.
/// `KB_TOKENIZER=/path/tokenizer.json cargo test --release -- --ignored speed --nocapture`
#[test]
#[ignore = "measures, checks nothing"]
fn speed() {
    let english = "The server process reads the configuration file once at start and again when it gets a \
        signal; parameters that cannot change are left alone (a line in the log says so). ";
    let mut random = Rng::with_seed(9);
    let mut text = String::new();
    while text.len() < 8_000_000 {
        text += &english[..40 + random.usize(..english.len() - 40)];
        text += [" ", "\n", "\n\n", ". "][random.usize(..4)];
    }
    let mut tokenizers =
        vec![("words", Tokenizer::words()), ("tiktoken", Tokenizer::tiktoken("cl100k_base").unwrap())];
    if let Ok(path) = std::env::var("KB_TOKENIZER") {
        tokenizers.push(("wordpiece", Tokenizer::from_file(std::path::Path::new(&path), "m").unwrap()));
    }
    for (name, tokenizer) in &tokenizers {
        let began = std::time::Instant::now();
        let count = tokenizer.count(&text, &Bounds::none()).unwrap();
        println!(
            "{name}: count {:.1} MB/s, {count} tokens",
            text.len() as f64 / 1e6 / began.elapsed().as_secs_f64()
        );
        for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed] {
            let began = std::time::Instant::now();
            let chunks =
                cut(&text, &chunking(strategy, 254, 38, Unit::Tokens), tokenizer, true, &Bounds::none())
                    .unwrap();
            let rate = text.len() as f64 / 1e6 / began.elapsed().as_secs_f64();
            println!("{name} {strategy:?}: {rate:.1} MB/s, {} chunks", chunks.len());
        }
    }
}
