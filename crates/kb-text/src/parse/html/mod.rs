//! Converts HTML to Markdown (htmd) for retrieval: text without addresses, inline markup or navigation.

use super::{Extracted, markdown};
use crate::parse::html::disguise::{BLOCK_CELL_END, CELL_END, disguise, is_space, plain, section_end};
use crate::parse::html::element_role::Role;
use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown};
use kb_types::Bounds;
use kb_types::error::{Error, Result};
use std::sync::{Arc, OnceLock};

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

/// The Markdown of an HTML document. Errors: [`Error::Argument`] where elements are nested too deep or a
/// similar limit is exceeded, and [`Error::Limit`].
pub fn extract(html: &str, bounds: &Bounds) -> Result<Extracted> {
    let document = dom::parse(html, bounds)?;
    let title = tree::title(&document, bounds)?;
    tables::prepare(&document, bounds)?;
    page_furniture::clear(&document, bounds)?;
    tree::replace(&document, bounds, disguise)?;
    sections::mark_ends(&document, bounds, section_end)?;
    tree::join(&document, bounds)?;
    let problem = Arc::new(OnceLock::new());
    let converted = converter(bounds.clone(), problem.clone()).tree_to_markdown(&document);
    if let Some(problem) = problem.get() {
        return Err(problem.clone());
    }
    let (text, ends) = escape::reveal(&converted);
    let mut extracted = markdown::extract(text, bounds)?;
    // A section ends before the heading at the same place begins the next one.
    extracted.marks.splice(0..0, ends);
    extracted.marks.sort_by_key(|marked| marked.offset);
    Ok(Extracted { title: title.or(extracted.title), ..extracted })
}

/// The content of the title element, where the document can be parsed. Errors: [`Error::Limit`].
pub fn title(html: &str, bounds: &Bounds) -> Result<Option<String>> {
    match dom::parse(html, bounds) {
        Ok(document) => tree::title(&document, bounds),
        Err(Error::Argument { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The converter, which stops once there is a `problem`.
fn converter(bounds: Bounds, problem: Arc<OnceLock<Error>>) -> HtmlToMarkdown {
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    HtmlToMarkdown::builder()
        .options(options)
        // Addresses, emphasis and marks of code add nothing to the meaning of a text.
        .add_handler(vec!["a", "b", "strong", "i", "em", "code"], inline)
        .add_handler(vec!["img"], image)
        .add_handler(vec!["br"], |_: &dyn Handlers, _: Element| Some("\n".into()))
        .add_handler(vec!["hr"], |_: &dyn Handlers, _: Element| Some("\n\n".into()))
        .add_handler(vec!["h1", "h2", "h3", "h4", "h5", "h6"], heading)
        .add_handler(vec!["pre"], code_block)
        // htmd pads the cells of a table to one width, so that an edit of one cell would change all rows.
        .add_handler(vec!["table", "tbody", "thead", "tfoot"], table)
        .add_handler(vec!["tr"], row)
        .add_handler(vec!["td", "th"], cell)
        .add_handler(BLOCKS.to_vec(), move |handlers: &dyn Handlers, element: Element| {
            guarded(handlers, element, &bounds, &problem)
        })
        .build()
}

/// Converts an element unless there is a problem already. The work is counted, because the text of an element
/// is copied once for each element around it, and list items and quotes add to every line.
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
    // Half of the text may be white space that is removed at the end.
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
    Some(on_one_line(&alt.value).chars().map(disguise).collect::<String>().into())
}

fn heading(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let title = on_one_line(&handlers.walk_children(element.node).content);
    let level = element.tag.bytes().filter(u8::is_ascii_digit).map(|digit| usize::from(digit - b'0')).sum();
    Some(match Role::of_attributes(element.attrs) {
        _ if title.is_empty() => "".into(),
        Some(Role::Caption) => format!("\n\n{title}\n\n").into(),
        _ => format!("\n\n{} {title}\n\n", "#".repeat(level)).into(),
    })
}

fn on_one_line(text: &str) -> String {
    text.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn code_block(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let code = handlers.walk_children(element.node).content;
    let code = code.trim_end().trim_start_matches('\n');
    let longest = code.split(|c| plain(c) != '`').map(|run| run.chars().count()).max();
    let fence = "`".repeat(3.max(longest.unwrap_or(0) + 1));
    Some(format!("\n\n{fence}\n{code}\n{fence}\n\n").into())
}

fn table(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let rows = handlers.walk_children(element.node).content;
    Some(if element.tag == "table" { format!("\n\n{}\n\n", rows.trim_matches('\n')) } else { rows }.into())
}

fn row(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let content = handlers.walk_children(element.node).content;
    let cells: Vec<&str> = content.split([CELL_END, BLOCK_CELL_END]).map(str::trim).collect();
    let (_, cells) = cells.split_last()?;
    // Such a row, and a table with one column, are used for layout, so their content stays paragraphs, lists
    // and code.
    let is_layout = cells.len() < 2 || content.contains(BLOCK_CELL_END);
    Some(if cells.iter().all(|cell| cell.is_empty()) {
        "".into()
    } else if is_layout {
        let blocks: Vec<&str> = cells.iter().copied().filter(|cell| !cell.is_empty()).collect();
        format!("\n\n{}\n\n", blocks.join("\n\n")).into()
    } else {
        let flat: Vec<String> = cells.iter().map(|cell| on_one_line(cell)).collect();
        format!("| {} |\n", flat.join(" | ")).into()
    })
}

fn cell(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let end = if tables::is_layout(element.node) { BLOCK_CELL_END } else { CELL_END };
    Some(format!("{}{end}", handlers.walk_children(element.node).content).into())
}

/// How many bytes a text has once its disguise is removed.
fn revealed_len(markdown: &str) -> usize {
    markdown.chars().map(|c| plain(c).len_utf8()).sum()
}

mod attribute_count;
mod disguise;
mod dom;
mod element_role;
mod escape;
mod markdown_marks;
mod page_furniture;
mod sections;
mod tables;
#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
mod tree;
