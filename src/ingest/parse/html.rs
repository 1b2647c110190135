//! HTML to Markdown (htmd), made for retrieval: text without addresses, markup or page furniture.

use super::{Extracted, nesting};
use crate::error::{Error, Result};
use crate::ingest::chunk::Outline;
use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown};

/// htmd escapes what Markdown could mistake for markup. In text that is embedded and searched,
/// pg\_class is noise and does not match pg_class, so these characters pass the converter in
/// disguise, as private characters that no document has.
const DISGUISED: [(char, char); 10] = [
    ('_', '\u{10fa00}'),
    ('*', '\u{10fa01}'),
    ('[', '\u{10fa02}'),
    (']', '\u{10fa03}'),
    ('`', '\u{10fa04}'),
    ('\\', '\u{10fa05}'),
    ('.', '\u{10fa06}'),
    ('<', '\u{10fa07}'),
    ('>', '\u{10fa08}'),
    ('&', '\u{10fa09}'),
];

/// Markdown of an HTML document. Errors: [`Error::Argument`] when elements nest too deep.
pub fn extract(html: &str) -> Result<Extracted> {
    if let Some(problem) = nesting::problem(html) {
        return Err(Error::Argument { argument: "content", problem });
    }
    let markdown = convert(html)?;
    let title = title(html).or_else(|| Outline::read(&markdown).title().map(str::to_string));
    Ok(Extracted { text: markdown, title, markdown: true })
}

/// What the title element says.
pub fn title(html: &str) -> Option<String> {
    // ASCII lower case keeps every byte's place.
    let lower = html.to_ascii_lowercase();
    let start = lower
        .match_indices("<title")
        .map(|(i, _)| i + 6)
        .find(|&i| lower[i..].starts_with(|c: char| c == '>' || c.is_ascii_whitespace()))?;
    let start = start + lower[start..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    // Entities are the converter's business. There are no elements in a title.
    let text = convert(&html[start..end].replace('<', "&lt;")).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn convert(html: &str) -> Result<String> {
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder()
        .options(options)
        .scripting_enabled(true)
        .skip_tags(vec![
            "head", "title", "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas",
            "audio", "video", "nav", "select", "hr",
        ])
        // Addresses, emphasis and code marks say nothing about what a text means.
        .add_handler(vec!["a", "b", "strong", "i", "em", "code"], inline)
        .add_handler(vec!["img"], image)
        .add_handler(vec!["br"], |_: &dyn Handlers, _: Element| Some("\n".into()))
        .add_handler(vec!["div"], division)
        .add_handler(vec!["pre"], code_block)
        // htmd pads a table's cells to one width: spaces that an edit of one cell changes everywhere.
        .add_handler(vec!["table", "tbody", "thead", "tfoot"], table)
        .add_handler(vec!["tr"], row)
        .add_handler(vec!["td", "th"], cell)
        .build();
    let markdown = converter
        .convert(&disguise(html))
        .map_err(|e| Error::Argument { argument: "content", problem: e.to_string() })?;
    Ok(tidy(&reveal(&markdown)))
}

fn inline(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    Some(handlers.walk_children(element.node))
}

fn image(_: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let alt = element.attrs.iter().find(|a| &*a.name.local == "alt")?;
    Some(alt.value.to_string().into())
}

fn division(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    // DocBook's links to the pages before and after.
    let class = element.attrs.iter().find(|a| &*a.name.local == "class");
    if class.is_some_and(|c| matches!(&*c.value, "navheader" | "navfooter")) {
        return None;
    }
    handlers.fallback(element)
}

fn code_block(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let code = handlers.walk_children(element.node).content;
    let code = code.trim_end().trim_start_matches('\n');
    let longest = code.split(|c| c != '`' && c != DISGUISED[4].1).map(|run| run.chars().count()).max();
    let fence = "`".repeat(3.max(longest.unwrap_or(0) + 1));
    Some(format!("\n\n{fence}\n{code}\n{fence}\n\n").into())
}

fn table(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let rows = handlers.walk_children(element.node).content;
    let around = if element.tag == "table" { "\n\n" } else { "\n" };
    Some(format!("{around}{}{around}", rows.trim_matches('\n')).into())
}

fn row(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let cells = handlers.walk_children(element.node).content;
    let cells = cells.trim();
    let cells = cells.strip_suffix('|').unwrap_or(cells).trim_end();
    Some(if cells.is_empty() { "".into() } else { format!("\n| {cells} |\n").into() })
}

fn cell(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let content = handlers.walk_children(element.node).content;
    Some(format!("{} | ", content.split_whitespace().collect::<Vec<_>>().join(" ")).into())
}

/// Hides the characters of the text between tags from the converter.
fn disguise(html: &str) -> String {
    let mut out = String::with_capacity(html.len() + html.len() / 8);
    let mut rest = html;
    while let Some(c) = rest.chars().next() {
        if c == '<'
            && rest[1..].starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'))
        {
            let end = markup_end(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let entity =
            [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&')].into_iter().find(|(e, _)| rest.starts_with(e));
        let (length, c) = entity.map_or((c.len_utf8(), c), |(e, c)| (e.len(), c));
        // A bare & begins an entity; it is for the converter to read.
        let hidden = DISGUISED.iter().find(|(plain, _)| *plain == c && (c != '&' || length > 1));
        out.push(hidden.map_or(c, |(_, hidden)| *hidden));
        rest = &rest[length..];
    }
    out
}

/// Bytes of the tag or comment that `html` begins with.
fn markup_end(html: &str) -> usize {
    if html.starts_with("<!--") {
        return html.find("-->").map_or(html.len(), |i| i + 3);
    }
    let mut quote = None;
    for (i, byte) in html.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return i + 1,
            (None, b'"' | b'\'') if i > 0 && html.as_bytes()[i - 1] == b'=' => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    html.len()
}

/// Undoes [`disguise`], and the converter's own entities.
fn reveal(markdown: &str) -> String {
    let plain = markdown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    plain.chars().map(|c| DISGUISED.iter().find(|(_, hidden)| *hidden == c).map_or(c, |(p, _)| *p)).collect()
}

/// No white space at line ends, no more than one blank line together, no no-break spaces.
fn tidy(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut blank = 0;
    for line in markdown.replace('\u{a0}', " ").lines().map(str::trim_end) {
        blank = if line.is_empty() { blank + 1 } else { 0 };
        if blank <= 1 {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.trim().to_string()
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
