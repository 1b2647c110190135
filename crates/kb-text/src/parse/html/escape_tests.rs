//! Tests that a reader of Markdown shows the text of a page as a browser does.

use crate::parse::html;
use kb_types::Bounds;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

fn markdown(html: &str) -> String {
    html::extract(html, &Bounds::none()).unwrap().text
}

/// The text that a reader of Markdown shows, with single spaces between words.
fn shown(markdown: &str) -> String {
    let options = Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_TABLES;
    let mut text = String::new();
    for event in Parser::new_ext(markdown, options) {
        match event {
            Event::Text(s) => text.push_str(&s),
            Event::Code(s) => text.push_str(&format!("[code {s}]")),
            Event::Html(s) | Event::InlineHtml(s) => text.push_str(&format!("[html {s}]")),
            Event::SoftBreak => text.push(' '),
            Event::End(TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item) => text.push(' '),
            Event::Start(Tag::List(_)) => text.push(' '),
            Event::Start(_) | Event::End(_) => {}
            other => text.push_str(&format!("[{other:?}]")),
        }
    }
    words(&text)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn as_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Needless escapes would be noise to a model and hide words from search.
#[test]
fn characters_without_a_meaning_in_their_place_are_not_escaped() {
    for (html, expected) in [
        ("<p><b>C</b># is a language</p>", "C# is a language"),
        ("<p><code>f</code>=1</p>", "f=1"),
        ("<table><tr><td>= 3</td><td>> 4</td></tr></table>", "| = 3 | > 4 |"),
        (
            "<p>pg_class.rel_name, 2 * 3, a[1], x-y, 1.5, ~/.pgpass, C:\\dir\\x</p>",
            "pg_class.rel_name, 2 * 3, a[1], x-y, 1.5, ~/.pgpass, C:\\dir\\x",
        ),
        ("<p>*args, **kwargs</p>", "*args, **kwargs"),
        (
            "<p>a &lt; b &amp;&amp; b > c, R&amp;D, #include &lt;stdio.h></p>",
            "a < b && b > c, R&D, #include <stdio.h>",
        ),
        ("<p>one ` tick, #5, -1, +x, ===, 10.5 %</p>", "one ` tick, #5, -1, +x, ===, 10.5 %"),
        ("<p>=== is in the source</p>", "=== is in the source"),
        ("<p>#hash, -x</p>", "#hash, -x"),
        ("<h2>1. Install C#</h2>", "## 1. Install C#"),
        ("<p>a | b</p>", "a | b"),
        ("<pre>~x\n# y\n*z* \\* | `</pre>", "```\n~x\n# y\n*z* \\* | `\n```"),
        ("<p><img alt='fig_a_b'> x</p>", "fig_a_b x"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn characters_that_would_be_parsed_as_markdown_are_escaped() {
    for (text, expected) in [
        ("1. x", "1\\. x"),
        ("1) x", "1\\) x"),
        ("> x", "\\> x"),
        ("---", "\\---"),
        ("# x", "\\# x"),
        ("- x", "\\- x"),
        ("+ x", "\\+ x"),
        ("* x", "\\* x"),
        ("``` x", "\\`\\`\\` x"),
        ("~~~", "\\~~~"),
        ("a *b* c", "a \\*b* c"),
        ("__init__", "\\_\\_init__"),
        ("`a`", "\\`a\\`"),
        ("\\*", "\\\\*"),
        ("[a](b)", "[a\\](b)"),
        ("[a]: b", "\\[a]: b"),
        ("Vec<T> of &amp;", "Vec\\<T> of \\&amp;"),
        ("<https://a.example>", "\\<https://a.example>"),
    ] {
        assert_eq!(markdown(&format!("<p>{}</p>", as_html(text))), expected, "{text}");
        assert_eq!(shown(expected), text, "{text}");
    }
    assert_eq!(markdown("<h1>C #</h1>"), "# C \\#");
    assert_eq!(markdown("<p>a<br>===<br>---<br>- b</p>"), "a\n\\===\n\\---\n\\- b");
    assert_eq!(markdown("<p><img alt='# a\n# b'></p>"), "\\# a # b");
}

#[test]
fn a_bar_in_a_cell_does_not_begin_another_cell() {
    let html = "<table><tr><td>a | b</td><td>c</td></tr><tr><td>---</td><td>--</td></tr></table>";
    assert_eq!(markdown(html), "| a \\| b | c |\n| \\--- | -- |");
}

/// Random texts of characters that have a meaning in Markdown, in all kinds of blocks.
#[test]
#[allow(clippy::too_many_lines)] // most of it is the list of pieces
fn any_text_is_shown_as_a_browser_shows_it() {
    const PIECES: [&str; 60] = [
        "*",
        "**",
        "_",
        "__",
        "`",
        "``",
        "```",
        "\\",
        "[",
        "]",
        "(",
        ")",
        "](",
        "]:",
        "<",
        ">",
        "</",
        "<a>",
        "<!--",
        "-->",
        "<?",
        "&",
        ";",
        "&amp;",
        "&#35;",
        "#",
        "##",
        "-",
        "--",
        "---",
        "+",
        "=",
        "==",
        "~",
        "~~~",
        "|",
        "|-|",
        ":",
        "!",
        "!",
        ".",
        "1.",
        "12)",
        "1",
        "a",
        "b",
        "é",
        "“",
        "ß",
        "€",
        " ",
        " ",
        " ",
        " ",
        "\u{a0}",
        "https://x",
        "a@b.c",
        "\"",
        "'",
        "$",
    ];
    let mut state = 88172645463325252u64;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let mut line = |most: usize| {
        let text: String = (0..1 + next(most)).map(|_| PIECES[next(PIECES.len())]).collect();
        text
    };
    let mut wrong = Vec::new();
    for _ in 0..2_000 {
        let (a, b) = (line(12), line(8));
        let (in_a, in_b) = (as_html(&a), as_html(&b));
        let both = words(&format!("{a} {b}"));
        for (html, expected) in [
            (format!("<p>{in_a}</p>"), words(&a)),
            (format!("<p>{in_a}<br>{in_b}</p>"), both.clone()),
            (format!("<ul><li>{in_a}<li>{in_b}</ul>"), both.clone()),
            (format!("<ol><li>{in_a}<br>{in_b}</ol>"), both.clone()),
            (format!("<blockquote>{in_a}<br>{in_b}</blockquote>"), both.clone()),
            (format!("<h3>{in_a}</h3>{in_b}"), both.clone()),
        ] {
            let made = markdown(&html);
            let text = words(&shown(&made).replace('\u{a0}', " "));
            if text != words(&expected.replace('\u{a0}', " ")) {
                wrong.push(format!("{html:?} became {made:?}"));
            }
        }
        let html = format!("<table><tr><td>x{in_a}<td>{in_b}y</table>");
        let made = markdown(&html);
        let text = shown(&made);
        let cells = text.strip_prefix("| ").and_then(|text| text.strip_suffix(" |")).unwrap_or_default();
        if words(cells) != words(&format!("x{a} | {b}y")) {
            wrong.push(format!("{html:?} became {made:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(12)]);
}

#[test]
fn private_use_characters_of_a_document_are_not_structure() {
    assert_eq!(markdown("<p>a\u{10fa00}b&#x10fa21;c\u{10fa28}</p>"), "a\u{fffd}b\u{fffd}c\u{fffd}");
}
