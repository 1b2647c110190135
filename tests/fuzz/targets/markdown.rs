//! Markdown and plain text: cut into chunks that keep every promise, before and after an edit.

use super::{Target, chunks};
use crate::memory::{Limits, measure};
use crate::random::Random;
use kb_text::parse::ContentType;
use kb_text::parse::check;
use kb_text::parse::extract;
use kb_types::Bounds;
use kb_types::knowledge_base::Preprocess;

pub const TARGET: Target = Target {
    name: "markdown",
    run,
    seeds: Vec::new,
    words: &[
        "# ",
        "## ",
        "###### ",
        "\n\n",
        "\n",
        "- ",
        "* ",
        "1. ",
        "> ",
        "```\n",
        "~~~\n",
        "    ",
        "\t",
        "| a | b |\n",
        "|---|---|\n",
        "---\n",
        "===\n",
        "***",
        "_",
        "`",
        "[a](b)",
        "![a](b)",
        "[a]: b\n",
        "<div>",
        "</div>",
        "<!-- ",
        "-->",
        "\\",
        "&amp;",
        "\u{a0}",
        "\u{2028}",
        "\u{85}",
        "\u{200d}",
        "👩‍👩‍👧",
        "漢字かな交じり文",
        "\u{301}",
        "\u{feff}",
        "\r\n",
        "Title\n---\n",
        "x. Y! Z? ",
        "...",
        "aaaaaaaaaaaaaaaa",
        "title: x\n",
        "\u{1c}",
        "\u{0b}",
    ],
};

const LIMITS: Limits = Limits { bytes: (1 << 18, 100), allocations: (1000, 4) };

fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if check(&text, "d", 1 << 20).is_err() {
        return;
    }
    let mut random = Random::seeded_by(data);
    let content_type = *random.pick(&[ContentType::Markdown, ContentType::Markdown, ContentType::Plain]);
    let (extracted, cost) =
        measure(|| extract(&text, content_type, &Preprocess::default(), &Bounds::none()).unwrap());
    cost.within(&LIMITS, text.len());
    assert!(!extracted.text.contains('\r'), "a line end of another kind");
    chunks::cut(&extracted.text, content_type == ContentType::Markdown, &mut random);
}
