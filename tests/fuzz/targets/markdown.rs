//! Markdown and plain text: cut into chunks that keep every promise, before and after an edit.

use super::{Target, choices, chunks};
use crate::memory::{Limits, measure};
use kb_text::parse::{ContentType, check, extract};
use kb_types::Bounds;
use kb_types::preprocess::Preprocess;

pub const TARGET: Target = Target {
    name: "markdown",
    run,
    seeds: Vec::new,
    words: r##"
        #␣ ##␣ ######␣ ⏎⏎ ⏎ -␣ *␣ 1.␣ >␣ ```⏎ ~~~⏎ ␣␣␣␣ ‹9› |␣a␣|␣b␣|⏎ |---|---|⏎ ---⏎ ===⏎ *** _ ` [a](b)
        ![a](b) [a]:␣b⏎ <div> </div> <!--␣ --> \ &amp; ‹a0› ‹2028› ‹85› ‹200d› 👩‹200d›👩‹200d›👧 漢字かな交じり文
        ‹301› ‹feff› ‹d›⏎ Title⏎---⏎ x.␣Y!␣Z?␣ ... aaaaaaaaaaaaaaaa title:␣x⏎ ‹1c› ‹b›
    "##,
};

const LIMITS: Limits = Limits { bytes: (1 << 18, 100), allocations: (1000, 4) };

fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if check(&text, "d", 1 << 20).is_err() {
        return;
    }
    let mut random = choices(data);
    let content_type =
        *random.choice(&[ContentType::Markdown, ContentType::Markdown, ContentType::Plain]).unwrap();
    let (extracted, cost) =
        measure(|| extract(&text, content_type, &Preprocess::default(), &Bounds::none()).unwrap());
    cost.within(&LIMITS, text.len());
    assert!(!extracted.text.contains('\r'), "a line end of another kind");
    chunks::cut(&extracted.text, content_type == ContentType::Markdown, &mut random);
}
