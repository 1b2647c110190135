//! Reads and changes the tree of an HTML document, without recursion.

use super::disguise::is_space;
use html5ever::tendril::StrTendril;
use html5ever::{local_name, ns};
use kb_types::Bounds;
use kb_types::error::Result;
use markup5ever_rcdom::{Handle, NodeData};

/// The work counted for visiting a node, in bytes.
pub const NODE: usize = 16;
/// The converter also joins neighbours with different names of the same group.
const SAME: [&[&str]; 2] = [&["i", "em"], &["b", "strong"]];

/// The content of the first title element, on one line.
pub fn title(document: &Handle, bounds: &Bounds) -> Result<Option<String>> {
    let mut title: Option<String> = None;
    walk(document, bounds, |node, _| {
        if title.is_none()
            && let NodeData::Element { name, .. } = &node.data
            && name.ns == ns!(html)
            && name.local == local_name!("title")
        {
            let mut text = String::new();
            for child in node.children.borrow().iter() {
                if let NodeData::Text { contents } = &child.data {
                    text.push_str(&contents.borrow());
                }
            }
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            title = (!line.is_empty()).then_some(line);
        }
    })?;
    Ok(title)
}

/// Replaces characters in all texts of a tree.
pub fn replace(document: &Handle, bounds: &Bounds, replacement: impl Fn(char) -> char) -> Result<()> {
    walk(document, bounds, |node, _| {
        if let NodeData::Text { contents } = &node.data {
            let replaced: String = contents.borrow().chars().map(&replacement).collect();
            contents.replace(StrTendril::from(replaced));
        }
    })
}

/// Joins neighbouring inline elements that are alike and contain only text. The converter would join them,
/// too, but for each it copies all that it has joined and moves all that follow.
pub fn join(document: &Handle, bounds: &Bounds) -> Result<()> {
    walk(document, bounds, |node, _| {
        let mut children = node.children.borrow_mut();
        if children.len() < 2 {
            return;
        }
        let mut kept: Vec<Handle> = Vec::with_capacity(children.len());
        for child in children.drain(..) {
            if !kept.last().is_some_and(|last| take_in(last, &child)) {
                kept.push(child);
            }
        }
        *children = kept;
    })
}

/// Moves the text of `second` into `first`, if it can, and returns whether it did.
fn take_in(first: &Handle, second: &Handle) -> bool {
    let (NodeData::Element { name, attrs, .. }, NodeData::Element { name: name_2, attrs: attrs_2, .. }) =
        (&first.data, &second.data)
    else {
        return false;
    };
    let alike = name == name_2
        || SAME.iter().any(|group| group.contains(&&*name.local) && group.contains(&&*name_2.local));
    if !alike || !is_inline(&name.local) || *attrs.borrow() != *attrs_2.borrow() {
        return false;
    }
    let (texts, texts_2) = (first.children.borrow(), second.children.borrow());
    let ([text], [text_2]) = (&texts[..], &texts_2[..]) else { return false };
    let (NodeData::Text { contents }, NodeData::Text { contents: contents_2 }) = (&text.data, &text_2.data)
    else {
        return false;
    };
    contents.borrow_mut().push_tendril(&contents_2.borrow());
    true
}

/// Whether the converter joins neighbours of this name. It does not join blocks and links.
fn is_inline(name: &str) -> bool {
    !matches!(
        name,
        "a" | "address"
            | "article"
            | "aside"
            | "base"
            | "basefont"
            | "blockquote"
            | "body"
            | "caption"
            | "center"
            | "col"
            | "colgroup"
            | "dd"
            | "details"
            | "dialog"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "frame"
            | "frameset"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "head"
            | "header"
            | "hr"
            | "html"
            | "iframe"
            | "legend"
            | "li"
            | "link"
            | "main"
            | "menu"
            | "menuitem"
            | "nav"
            | "noframes"
            | "ol"
            | "optgroup"
            | "option"
            | "p"
            | "param"
            | "pre"
            | "script"
            | "search"
            | "section"
            | "style"
            | "summary"
            | "table"
            | "tbody"
            | "td"
            | "textarea"
            | "tfoot"
            | "th"
            | "thead"
            | "title"
            | "tr"
            | "track"
            | "ul"
            | "template"
    )
}

/// The name of an HTML element.
pub fn name_of(node: &Handle) -> Option<&str> {
    match &node.data {
        NodeData::Element { name, .. } if name.ns == ns!(html) => Some(&name.local),
        _ => None,
    }
}

/// Whether a node shows nothing itself.
pub fn is_blank(node: &Handle) -> bool {
    match &node.data {
        NodeData::Text { contents } => contents.borrow().chars().all(is_space),
        NodeData::Element { name, attrs, .. } => {
            &*name.local != "img" || attrs.borrow().iter().all(|attribute| attribute.value.trim().is_empty())
        }
        _ => true,
    }
}

/// The texts inside a node, separated by spaces. Reads only the first `most` nodes.
pub fn text_of(node: &Handle, most: usize) -> String {
    let mut text = String::new();
    let mut open = vec![node.clone()];
    for _ in 0..most {
        let Some(node) = open.pop() else { break };
        if let NodeData::Text { contents } = &node.data {
            text.push_str(&contents.borrow());
            text.push(' ');
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    text
}

/// Visits every node in document order, with its depth.
pub fn walk(document: &Handle, bounds: &Bounds, mut visit: impl FnMut(&Handle, usize)) -> Result<()> {
    let mut open: Vec<(Handle, usize)> = vec![(document.clone(), 0)];
    while let Some((node, depth)) = open.pop() {
        let text = match &node.data {
            NodeData::Text { contents } => contents.borrow().len(),
            _ => 0,
        };
        bounds.spend(NODE + text)?;
        visit(&node, depth);
        open.extend(node.children.borrow().iter().rev().map(|child| (child.clone(), depth + 1)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::dom::parse;
    use super::*;

    /// Names and texts of the elements in the body.
    fn joined(html: &str) -> Vec<(String, String)> {
        let bounds = Bounds::none();
        let document = parse(html, &bounds).unwrap();
        join(&document, &bounds).unwrap();
        let mut found = Vec::new();
        walk(&document, &bounds, |node, depth| match &node.data {
            NodeData::Element { name, .. } if depth > 2 => {
                found.push((name.local.to_string(), String::new()))
            }
            NodeData::Text { contents } => match found.last_mut() {
                Some((_, text)) => text.push_str(&contents.borrow()),
                None => found.push((String::new(), contents.borrow().to_string())),
            },
            _ => {}
        })
        .unwrap();
        found
    }

    #[test]
    fn neighbours_that_the_converter_would_join_one_by_one_are_joined_first() {
        assert_eq!(joined(&"<b>x</b>".repeat(50_000)), [("b".into(), "x".repeat(50_000))]);
        assert_eq!(joined("<i>a</i><em>b</em><i>c</i>"), [("i".into(), "abc".into())]);
        for apart in [
            "<b>a</b><i>b</i>",
            "<a>a</a><a>b</a>",
            "<b>a</b> <b>b</b>",
            "<p>a</p><p>b</p>",
            "<b><u>a</u></b><b>b</b>",
        ] {
            assert!(joined(apart).len() > 1, "{apart}");
        }
    }
}
