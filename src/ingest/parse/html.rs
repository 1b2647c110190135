//! HTML to Markdown (htmd), made for retrieval: text without addresses, markup or navigation.

use super::{Extracted, dom, markdown, tree};
use crate::error::{Error, Result};
use crate::model::Bounds;
use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown};
use std::sync::{Arc, OnceLock};

/// htmd escapes what Markdown could mistake for markup. In text that is embedded and searched,
/// pg\_class is noise and does not match pg_class, so these characters pass the converter
/// disguised as private characters, which documents do not have.
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
/// Ends a cell until its row is made.
const CELL_END: char = '\u{10fa0a}';

/// Elements at which the converter can be stopped.
const BLOCKS: [&str; 56] = [
    "html",
    "body",
    "p",
    "ul",
    "ol",
    "li",
    "blockquote",
    "pre",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "table",
    "tbody",
    "thead",
    "tfoot",
    "tr",
    "td",
    "th",
    "caption",
    "div",
    "a",
    "b",
    "strong",
    "i",
    "em",
    "code",
    "img",
    "br",
    "address",
    "article",
    "aside",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "legend",
    "main",
    "menu",
    "optgroup",
    "option",
    "search",
    "section",
    "summary",
    "textarea",
];

/// The Markdown of an HTML document. Errors: [`Error::Argument`] when elements nest too deep or the like;
/// [`Error::Limit`].
pub fn extract(html: &str, bounds: &Bounds) -> Result<Extracted> {
    let document = dom::parse(html, bounds)?;
    let title = tree::title(&document, bounds)?;
    let disguise = |c| DISGUISED.iter().find(|(plain, _)| *plain == c).map_or(c, |(_, d)| *d);
    tree::replace(&document, bounds, disguise)?;
    tree::join(&document, bounds)?;
    let problem = Arc::new(OnceLock::new());
    let markdown = converter(bounds.clone(), problem.clone()).tree_to_markdown(&document);
    if let Some(problem) = problem.get() {
        return Err(problem.clone());
    }
    let markdown = tidy(&reveal(&markdown));
    let extracted = markdown::extract(markdown, bounds)?;
    Ok(Extracted { title: title.or(extracted.title), ..extracted })
}

/// What the title element says, where the document can be parsed. Errors: [`Error::Limit`].
pub fn title(html: &str, bounds: &Bounds) -> Result<Option<String>> {
    match dom::parse(html, bounds) {
        Ok(document) => tree::title(&document, bounds),
        Err(Error::Argument { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The converter; it stops once there is a `problem`.
fn converter(bounds: Bounds, problem: Arc<OnceLock<Error>>) -> HtmlToMarkdown {
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    HtmlToMarkdown::builder()
        .options(options)
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
        .add_handler(BLOCKS.to_vec(), move |handlers: &dyn Handlers, element: Element| {
            guarded(handlers, element, &bounds, &problem)
        })
        .build()
}

/// Converts an element if there is no problem yet. The work is counted, because an element's text is copied once for
/// each element around it, and list items and quotes add to every line.
fn guarded(
    handlers: &dyn Handlers,
    element: Element,
    bounds: &Bounds,
    problem: &OnceLock<Error>,
) -> Option<HandlerResult> {
    if problem.get().is_some() {
        return None;
    }
    let result = handlers.fallback(element);
    let made = result.as_ref().map_or("", |result| result.content.as_str());
    // Half of the text may be white space that is removed in the end.
    let check = || bounds.check_bytes(made.len() / 2).or_else(|_| bounds.check_bytes(revealed_len(made) / 2));
    if let Err(error) = bounds.spend(64 + made.len() / 16).and_then(|()| check()) {
        let _ = problem.set(error);
        return None;
    }
    result
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
    // The white space between the source's rows is not theirs.
    let line =
        |line: &str| line.trim_start().strip_prefix("| ").map_or(line.into(), |row| format!("| {row}"));
    let rows = rows.trim_matches('\n').lines().map(line).collect::<Vec<String>>().join("\n");
    Some(if element.tag == "table" { format!("\n\n{rows}\n\n").into() } else { format!("{rows}\n").into() })
}

fn row(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let content = handlers.walk_children(element.node).content;
    let cells: Vec<&str> = content.split(CELL_END).map(str::trim).collect();
    Some(match cells.split_last() {
        Some((_, [])) | None => "".into(),
        // A table of one column lays a page out: what is in it stays paragraphs and code.
        Some((_, [only])) => format!("\n\n{only}\n\n").into(),
        Some((_, cells)) if cells.iter().all(|c| c.is_empty()) => "".into(),
        Some((_, cells)) => {
            let flat = cells.iter().map(|c| c.split_whitespace().collect::<Vec<_>>().join(" "));
            format!("| {} |\n", flat.collect::<Vec<_>>().join(" | ")).into()
        }
    })
}

fn cell(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    Some(format!("{}{CELL_END}", handlers.walk_children(element.node).content).into())
}

/// Undoes the disguise. Text of attributes (alt) was not disguised and needs nothing.
fn reveal(markdown: &str) -> String {
    markdown.chars().map(revealed).collect()
}

fn revealed(c: char) -> char {
    DISGUISED.iter().find(|(_, hidden)| *hidden == c).map_or(c, |(plain, _)| *plain)
}

/// Bytes of a text without its disguise.
fn revealed_len(markdown: &str) -> usize {
    markdown.chars().map(|c| revealed(c).len_utf8()).sum()
}

/// No white space at line ends, no more than one blank line together, no no-break spaces, no line ends but \n (`&#13;`).
fn tidy(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut blank = 0;
    for line in markdown.replace(['\u{a0}', '\r'], " ").lines().map(str::trim_end) {
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
