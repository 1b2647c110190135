//! Finds where the sections of headings end. In Markdown a section ends at the next heading. In HTML it ends
//! with the element that has the heading, so that the text after a note belongs to the heading around the
//! note.

use super::tree::{NODE, is_blank, name_of};
use crate::parse::html::element_role::Role;
use html5ever::tendril::StrTendril;
use kb_types::Bounds;
use kb_types::error::Result;
use markup5ever_rcdom::{Handle, NodeData};

/// A heading whose end has not been found yet. Pieces are the texts and images of a page, in order.
struct Open {
    node: Handle,
    level: usize,
    /// The pieces of the heading itself.
    first: usize,
    end: usize,
    /// The end of the element with which the section ends, unless the heading belongs to a larger element.
    scope: Option<usize>,
    is_note: bool,
}

/// Puts a mark, which `mark` makes of the heading's level, before each text that follows the end of a section
/// within another section. Headings of notes do not open a section and become captions.
pub fn mark_ends(document: &Handle, bounds: &Bounds, mark: impl Fn(usize) -> char) -> Result<()> {
    let ends = ends(document, bounds)?;
    if ends.is_empty() {
        return Ok(());
    }
    let mut ends = ends.into_iter().peekable();
    let mut open: Vec<usize> = Vec::new();
    let mut piece = 0;
    // A mark waits for the next text, because an image may come first.
    let mut waiting: Option<usize> = None;
    let mut nodes = vec![document.clone()];
    while let Some(node) = nodes.pop() {
        bounds.spend(NODE)?;
        if let Some(level) = level_of(&node) {
            close(&mut ends, piece, &mut open, &mut waiting);
            open.retain(|above| *above < level);
            open.push(level);
        }
        if !is_blank(&node) {
            close(&mut ends, piece, &mut open, &mut waiting);
            piece += 1;
            if let (NodeData::Text { contents }, Some(level)) = (&node.data, waiting) {
                waiting = None;
                let text = contents.borrow().to_string();
                let begins = text.len() - text.trim_start().len();
                let marked = format!("{}{}{}", &text[..begins], mark(level), &text[begins..]);
                contents.replace(StrTendril::from(marked));
            }
        }
        nodes.extend(node.children.borrow().iter().rev().cloned());
    }
    Ok(())
}

/// Closes the sections that end before a piece, where other sections are open around them. A section without
/// another around it stays open, because its heading is better than none.
fn close(
    ends: &mut std::iter::Peekable<impl Iterator<Item = (usize, usize)>>,
    piece: usize,
    open: &mut Vec<usize>,
    waiting: &mut Option<usize>,
) {
    while let Some((_, level)) = ends.next_if(|(end, _)| *end <= piece) {
        if open.iter().any(|above| *above < level) && open.iter().any(|inner| *inner >= level) {
            open.retain(|above| *above < level);
            *waiting = Some(waiting.map_or(level, |other| other.min(level)));
        }
    }
}

/// The next piece and the level of each section that ends, in the order of the pieces.
fn ends(document: &Handle, bounds: &Bounds) -> Result<Vec<(usize, usize)>> {
    let mut ends = Vec::new();
    let mut pieces = 0;
    // The elements being visited: (node, its next child, its first piece, headings inside).
    let mut path: Vec<(Handle, usize, usize, Vec<Open>)> = vec![(document.clone(), 0, 0, Vec::new())];
    while let Some((node, next, first, _)) = path.last_mut() {
        let child = node.children.borrow().get(*next).cloned();
        *next += 1;
        if let Some(child) = child {
            bounds.spend(NODE)?;
            let begins = pieces;
            pieces += usize::from(!is_blank(&child));
            path.push((child, 0, begins, Vec::new()));
            continue;
        }
        let first = *first;
        let Some((node, _, _, mut headings)) = path.pop() else { break };
        bounds.spend(NODE * headings.len())?;
        let is_note = headings.len() == 1 && Role::of_node(&node) == Some(Role::Note);
        headings.retain_mut(|heading| {
            heading.is_note |= is_note;
            is_open(heading, &node, first, pieces, &mut ends)
        });
        if let Some(level) = level_of(&node) {
            headings = vec![Open { node, level, first, end: pieces, scope: None, is_note: false }];
        }
        if let Some((.., around)) = path.last_mut() {
            around.append(&mut headings);
        }
    }
    ends.sort_unstable();
    Ok(ends)
}

/// Whether a section may continue after the element `node`, of the pieces from `first` to `end`, which
/// contains its heading. If not, records where the section ends.
fn is_open(
    heading: &mut Open,
    node: &Handle,
    first: usize,
    end: usize,
    ends: &mut Vec<(usize, usize)>,
) -> bool {
    let name = name_of(node).unwrap_or_default();
    let is_title_block = heading.end == end || matches!(name, "header" | "hgroup");
    let heads_more = heading.first == first;
    match heading.scope {
        // The heading is the last piece of its title block.
        None if is_title_block => return true,
        None => heading.scope = Some(end),
        Some(_) if heads_more && !heading.is_note => heading.scope = Some(end),
        Some(scope) => {
            ends.push((scope, heading.level));
            return false;
        }
    }
    if heading.is_note {
        caption(&heading.node);
        return false;
    }
    // The heading does not belong to a larger element.
    if !heads_more {
        ends.push((end, heading.level));
    }
    heads_more
}

/// Turns a heading into a caption.
fn caption(heading: &Handle) {
    if let NodeData::Element { attrs, .. } = &heading.data {
        attrs.replace(vec![Role::Caption.attribute()]);
    }
}

/// The level of a heading that opens a section.
fn level_of(node: &Handle) -> Option<usize> {
    let name = name_of(node)?;
    let level = ["h1", "h2", "h3", "h4", "h5", "h6"].iter().position(|heading| *heading == name)?;
    (Role::of_node(node) != Some(Role::Caption)).then_some(level + 1)
}
