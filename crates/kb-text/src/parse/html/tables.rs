//! Prepares tables for the converter: tables of code with line numbers become code, and white space between
//! rows and cells is removed.

use super::tree::{NODE, is_blank, name_of, text_of};
use crate::parse::html::element_role::Role;
use html5ever::tendril::StrTendril;
use html5ever::{QualName, local_name, ns};
use kb_types::Bounds;
use kb_types::error::Result;
use markup5ever_rcdom::{Handle, Node, NodeData};
use std::rc::Rc;

/// Elements that do not occur in cells of tables of values.
const BLOCKS: [&str; 14] =
    ["pre", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "menu", "dir", "table", "blockquote"];

/// Prepares all tables of a tree.
pub fn prepare(document: &Handle, bounds: &Bounds) -> Result<()> {
    let mut open = vec![document.clone()];
    while let Some(node) = open.pop() {
        match name_of(&node) {
            Some("table") => {
                if let Some(code) = listing(&node, bounds)? {
                    *node.children.borrow_mut() = vec![preformatted(&node, code)];
                    continue;
                }
                drop_blanks(&node);
            }
            Some("tbody" | "thead" | "tfoot") => drop_blanks(&node),
            Some("tr") => {
                drop_blanks(&node);
                drop_line_numbers(&node, bounds)?;
            }
            _ => {}
        }
        let children = node.children.borrow();
        bounds.spend(NODE * (children.len() + 1))?;
        open.extend(children.iter().cloned());
    }
    Ok(())
}

/// Whether a cell contains blocks, so that its table is used for layout.
pub fn is_layout(cell: &Handle) -> bool {
    let mut paragraphs = 0;
    let mut open = vec![cell.clone()];
    while let Some(node) = open.pop() {
        match name_of(&node) {
            // A table in a cell decides at once, so that no cell is scanned again for each cell around it.
            Some(name) if BLOCKS.contains(&name) => return true,
            Some("p") if !text_of(&node, 16).trim().is_empty() => paragraphs += 1,
            _ => {}
        }
        open.extend(node.children.borrow().iter().cloned());
    }
    paragraphs > 1
}

/// The code of a table that has a row for each line, with the line's number in the first cell.
fn listing(table: &Handle, bounds: &Bounds) -> Result<Option<String>> {
    let mut code = String::new();
    for part in table.children.borrow().iter() {
        let rows: Vec<Handle> = match name_of(part) {
            Some("tbody") => {
                part.children.borrow().iter().filter(|row| !is_blank_text(row)).cloned().collect()
            }
            _ if is_blank_text(part) => Vec::new(),
            Some("colgroup") => Vec::new(),
            _ => return Ok(None),
        };
        for row in rows {
            bounds.spend(NODE)?;
            let cells: Vec<Handle> =
                row.children.borrow().iter().filter(|cell| !is_blank_text(cell)).cloned().collect();
            let [number, line] = &cells[..] else { return Ok(None) };
            let is_number = Role::of_node(number) == Some(Role::LineNumbers) && is_numbers(number, bounds)?;
            if !is_number || is_layout(line) {
                return Ok(None);
            }
            let text: String = text_of_line(line);
            bounds.spend(text.len())?;
            code.push_str(text.trim_end());
            code.push('\n');
        }
    }
    Ok((!code.trim().is_empty()).then_some(code))
}

/// The text of a line of code, unchanged.
fn text_of_line(cell: &Handle) -> String {
    let mut text = String::new();
    let mut open = vec![cell.clone()];
    while let Some(node) = open.pop() {
        if let NodeData::Text { contents } = &node.data {
            text.push_str(contents.borrow().trim_matches(['\n', '\r']));
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    text
}

/// Replaces the content of a table by a `pre` element.
fn preformatted(table: &Handle, code: String) -> Handle {
    let text = Node::new(NodeData::Text { contents: StrTendril::from(code).into() });
    let pre = Node::new(NodeData::Element {
        name: QualName::new(None, ns!(html), local_name!("pre")),
        attrs: Vec::new().into(),
        template_contents: None.into(),
        mathml_annotation_xml_integration_point: false,
    });
    text.parent.set(Some(Rc::downgrade(&pre)));
    pre.parent.set(Some(Rc::downgrade(table)));
    pre.children.borrow_mut().push(text);
    pre
}

fn is_blank_text(node: &Handle) -> bool {
    !matches!(node.data, NodeData::Element { .. }) && is_blank(node)
}

/// Removes the white space between rows and between cells.
fn drop_blanks(node: &Handle) {
    node.children.borrow_mut().retain(|child| !is_blank_text(child));
}

/// Removes the cells of a row that contain only the line numbers of another cell.
fn drop_line_numbers(row: &Handle, bounds: &Bounds) -> Result<()> {
    let mut cells = row.children.borrow_mut();
    let mut numbers = Vec::with_capacity(cells.len());
    for cell in cells.iter() {
        numbers.push(is_numbers(cell, bounds)?);
    }
    let holds_code = |(cell, is_numbers): (&Handle, &bool)| !is_numbers && holds_code(cell);
    if numbers.contains(&true) && cells.iter().zip(&numbers).any(holds_code) {
        let mut numbers = numbers.into_iter();
        cells.retain(|_| numbers.next() != Some(true));
    }
    Ok(())
}

/// Whether a cell contains at least two consecutive numbers and nothing else, or is marked as line numbers.
fn is_numbers(cell: &Handle, bounds: &Bounds) -> Result<bool> {
    let mut open = vec![cell.clone()];
    let (mut last, mut count): (Option<u64>, usize) = (None, 0);
    while let Some(node) = open.pop() {
        bounds.spend(NODE)?;
        if let NodeData::Text { contents } = &node.data {
            bounds.spend(contents.borrow().len())?;
            for word in contents.borrow().split_whitespace() {
                let number = word.parse::<u64>().ok();
                if number.is_none() || last.is_some_and(|last| number != last.checked_add(1)) {
                    return Ok(false);
                }
                (last, count) = (number, count + 1);
            }
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    Ok(count > 1 || Role::of_node(cell) == Some(Role::LineNumbers))
}

fn holds_code(cell: &Handle) -> bool {
    let mut open = vec![cell.clone()];
    while let Some(node) = open.pop() {
        match name_of(&node) {
            Some("pre") => return true,
            Some("table") => continue,
            _ => open.extend(node.children.borrow().iter().cloned()),
        }
    }
    false
}
