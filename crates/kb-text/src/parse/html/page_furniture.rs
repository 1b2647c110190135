//! Removes what is not part of the text of a page: navigation, the header and footer of the site, hidden
//! elements, permalinks and line numbers.

use super::tree::{NODE, is_blank, name_of, text_of};
use crate::parse::html::element_role::Role;
use html5ever::ns;
use kb_types::Bounds;
use kb_types::error::Result;
use markup5ever_rcdom::{Handle, NodeData};

/// Elements whose content is not text of the page.
const NO_TEXT: [&str; 13] = [
    "head", "title", "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "audio",
    "video", "select",
];
/// The texts of permalinks.
const PERMALINKS: [&str; 6] = ["¶", "§", "#", "🔗", "⚓", "\u{200b}"];

/// Removes what is not the text of the page, unless the page has nothing else.
pub fn clear(document: &Handle, bounds: &Bounds) -> Result<()> {
    let keeps_header = keeps_header(document, bounds)?;
    sweep(document, bounds, true, |node, _| is_noise(node))?;
    let is_around = |node: &Handle, within: Within| is_around(node, within, keeps_header);
    if sweep(document, bounds, false, is_around)? {
        sweep(document, bounds, true, is_around)?;
    }
    Ok(())
}

/// What surrounds an element.
#[derive(Debug, Clone, Copy, Default)]
struct Within {
    /// An article or a section, to which its own header and footer belong.
    article: bool,
    /// An article, a section, the main part of the page or an aside, whose header is not the header of the
    /// page.
    part: bool,
}

impl Within {
    fn and(self, node: &Handle) -> Within {
        let name = name_of(node).unwrap_or_default();
        let article = self.article || matches!(name, "article" | "section");
        let part = article || self.part || matches!(name, "main" | "aside" | "nav");
        Within { article, part: part || Role::of_node(node) == Some(Role::Main) }
    }
}

/// Visits everything that is kept and returns whether it contains text. With `remove`, takes the rest out of
/// the tree.
fn sweep(
    document: &Handle,
    bounds: &Bounds,
    remove: bool,
    is_left_out: impl Fn(&Handle, Within) -> bool,
) -> Result<bool> {
    let mut has_text = false;
    let mut open = vec![(document.clone(), Within::default())];
    while let Some((node, within)) = open.pop() {
        let within = within.and(&node);
        let mut children = node.children.borrow_mut();
        bounds.spend(NODE * (children.len() + 1))?;
        let kept: Vec<Handle> =
            children.iter().filter(|child| !is_left_out(child, within)).cloned().collect();
        has_text |= kept.iter().any(|child| !is_blank(child));
        open.extend(kept.iter().rev().map(|child| (child.clone(), within)));
        if remove && kept.len() < children.len() {
            *children = kept;
        }
    }
    Ok(has_text)
}

/// Whether an element is removed from every page.
fn is_noise(node: &Handle) -> bool {
    let NodeData::Element { name, .. } = &node.data else { return false };
    if NO_TEXT.contains(&&*name.local) {
        return true;
    }
    match Role::of_node(node) {
        Some(Role::Permalink) => true,
        // A permalink is short and has few elements, so only the first ones are read.
        part if &*name.local == "a" => {
            let text = text_of(node, PERMALINK_NODES);
            let text = text.trim().trim_end_matches('\u{fe0e}');
            PERMALINKS.contains(&text) && (text != "#" || part == Some(Role::Fragment))
        }
        Some(Role::LineNumbers) => {
            text_of(node, usize::MAX).chars().all(|c| c.is_ascii_digit() || c.is_whitespace())
        }
        _ => false,
    }
}

const PERMALINK_NODES: usize = 8;

/// Whether an element surrounds the text of a page instead of being a part of it, by the rules of browsers
/// for assistive technology (HTML Accessibility API Mappings): a header, footer or aside inside an article or
/// a section belongs to that.
fn is_around(node: &Handle, within: Within, keeps_header: bool) -> bool {
    let NodeData::Element { name, .. } = &node.data else { return false };
    if name.ns != ns!(html) {
        return false;
    }
    let part = Role::of_node(node);
    match (part, &*name.local) {
        (Some(Role::Navigation | Role::Hidden), _) | (_, "nav" | "search") => true,
        (Some(Role::Note), _) => false,
        (_, "aside") => !within.article,
        (Some(Role::Banner), _) | (_, "header" | "footer") => {
            let keeps_this = keeps_header && &*name.local == "header";
            !within.part && !keeps_this
        }
        _ => false,
    }
}

/// Whether the header of the page contains the title of its text, as in pages of pandoc: there is no other
/// heading of the first level, and no element is marked as the main part of the page.
fn keeps_header(document: &Handle, bounds: &Bounds) -> Result<bool> {
    let (mut in_header, mut elsewhere) = (false, false);
    let mut open = vec![(document.clone(), false)];
    while let Some((node, is_header)) = open.pop() {
        let name = name_of(&node).unwrap_or_default();
        match name {
            "h1" if is_header => in_header = true,
            "h1" | "main" | "article" => elsewhere = true,
            _ => elsewhere |= Role::of_node(&node) == Some(Role::Main),
        }
        let is_header = is_header || name == "header";
        let children = node.children.borrow();
        bounds.spend(NODE * (children.len() + 1))?;
        open.extend(children.iter().map(|child| (child.clone(), is_header)));
    }
    Ok(in_header && !elsewhere)
}
