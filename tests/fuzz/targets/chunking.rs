//! Chunking settings: refused with every problem named, or kept as they are and good for a text.

use super::{Target, choices, chunks};
use kb_text::chunk::chunk;
use kb_text::chunk_settings::{Chunking, Strategy};
use kb_text::tokenizer::Tokenizer;
use kb_types::Bounds;

pub const TARGET: Target = Target {
    name: "chunking",
    run,
    seeds: Vec::new,
    words: r##"
        "strategy": "size": "overlap": "unit": "tokenizer": "recursive" "markdown" "fixed" "none" "tokens"
        "characters" "cl100k_base" "recursive_text_splitter" null true { } [ ] , : 1000000 1000001 \u0000
        "\ud800" 1.0 1e2
    "##,
};

const TEXT: &str = "# Leave\n\nFull-time staff have 28 days of paid leave a year.\n\n- one\n- two\n\n```\ncode  here\n```\n\nÉté 漢字. End.\n";

fn run(data: &[u8]) {
    let Ok(value) = serde_json::from_slice(data) else { return };
    let mut random = choices(data);
    let reads = *random.choice(&[None, Some(1), Some(254), Some(8190)]).unwrap();
    let chunking = match Chunking::parse(&value, reads) {
        Ok(chunking) => chunking,
        Err(problems) => {
            assert!(!problems.is_empty() && problems.iter().all(|problem| problem.starts_with("chunking")));
            return;
        }
    };
    assert_eq!(Chunking::parse(&chunking.to_json(), reads).as_ref(), Ok(&chunking), "not what it prints");
    assert!(chunking.size >= 1 && chunking.overlap <= chunking.size / 2);
    let counts_own_tokens =
        chunking.tokenizer.is_none() && chunking.unit == kb_text::chunk_settings::Unit::Tokens;
    if let Some(reads) = reads.filter(|_| counts_own_tokens && chunking.strategy != Strategy::None) {
        assert!(chunking.size <= reads);
    }
    let words = Tokenizer::words();
    chunks::check(TEXT, &chunk(TEXT, &chunking, &words, &[], &Bounds::none()).unwrap(), &chunking, &words);
}
