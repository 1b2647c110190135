//! OpenDocument (ODF 1.3): text, sheets and presentations. Headers and footers, comments, deleted text, the
//! table of contents and charts are left out.

use super::blocks::{Blocks, Inline, List, push_cell, push_image, push_text};
use super::excel;
use super::grid::Grid;
use super::package::Package;
use super::properties::{Properties, clean};
use super::xml::{Element, Node, Xml};
use crate::formats::Format;
use kb_types::extraction::{Extraction, Fault, File};
use std::collections::{HashMap, HashSet};

pub const ODT: Format = Format {
    content_types: &[
        "application/vnd.oasis.opendocument.text",
        "application/vnd.oasis.opendocument.text-template",
        "application/vnd.oasis.opendocument.text-master",
    ],
    extensions: &["odt", "ott", "odm"],
    is_text: false,
    read,
};

pub const ODS: Format = Format {
    content_types: &[
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.spreadsheet-template",
    ],
    extensions: &["ods", "ots"],
    is_text: false,
    read,
};

pub const ODP: Format = Format {
    content_types: &[
        "application/vnd.oasis.opendocument.presentation",
        "application/vnd.oasis.opendocument.presentation-template",
    ],
    extensions: &["odp", "otp"],
    is_text: false,
    read,
};

/// The deepest level of a list, counted from 0.
const MAX_LEVEL: usize = 8;
/// The most times that a row or cell of a table of text is repeated.
const MAX_REPEATED: usize = 64;
/// The most columns of a sheet.
const MAX_COLUMNS: u32 = 16_384;

fn read(file: &File) -> Result<Extraction, Fault> {
    let mut package = Package::open(&file.bytes)?;
    if package.text("META-INF/manifest.xml")?.is_some_and(|manifest| manifest.contains("encryption-data")) {
        return Err(Fault::Encrypted);
    }
    let mut properties = Properties::of_open_document(&mut package)?;
    let styles = package.text("styles.xml")?.unwrap_or_default();
    let content = package.needed("content.xml")?;
    let mut reader = Reader { max_text: file.max_text, ..Reader::default() };
    reader.styles(&mut Xml::new(&styles))?;
    let mut blocks = Blocks::of_document(file.max_text);
    let mut xml = Xml::new(&content);
    xml.child()?;
    while let Some(element) = xml.child()? {
        match element.name() {
            "automatic-styles" => reader.styles(&mut xml)?,
            "body" => reader.body(&mut xml, &mut blocks)?,
            _ => xml.skip()?,
        }
    }
    if !reader.hidden_sheets.is_empty() {
        properties.metadata.insert("hidden_sheets".into(), reader.hidden_sheets.into());
    }
    blocks.into_extraction(properties.title, properties.metadata, package.has("Pictures/"))
}

#[derive(Default)]
struct Reader {
    /// The styles that styles are made from.
    parents: HashMap<String, String>,
    /// Whether each level of a list has numbers, by the style of the list.
    lists: HashMap<String, [bool; MAX_LEVEL + 1]>,
    /// The last number of each level.
    counters: [u64; MAX_LEVEL + 1],
    /// Styles of sheets that are not shown.
    hidden: HashSet<String>,
    hidden_sheets: Vec<String>,
    notes: usize,
    slides: u32,
    max_text: usize,
}

impl Reader {
    /// Reads the styles in the element that is open.
    fn styles(&mut self, xml: &mut Xml) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            let name = element.attribute("style:name").unwrap_or_default();
            match element.name() {
                "style" => {
                    let parent = element.attribute("parent-style-name");
                    self.parents.extend(parent.map(|parent| (name.clone(), parent)));
                    while let Some(property) = xml.child()? {
                        if property.attribute("table:display").is_some_and(|shown| shown == "false") {
                            self.hidden.insert(name.clone());
                        }
                        xml.skip()?;
                    }
                }
                "list-style" => {
                    let mut numbered = [false; MAX_LEVEL + 1];
                    while let Some(level) = xml.child()? {
                        let place: usize = level.number("level").unwrap_or(1);
                        // A number without a format is not shown.
                        let is_numbered = level.name() == "list-level-style-number"
                            && level.attribute("num-format").is_some_and(|format| !format.is_empty());
                        if let Some(numbered) = numbered.get_mut(place.saturating_sub(1)) {
                            *numbered = is_numbered;
                        }
                        xml.skip()?;
                    }
                    self.lists.insert(name, numbered);
                }
                "master-styles" => xml.skip()?,
                _ => self.styles(xml)?,
            }
        }
        Ok(())
    }

    fn body(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.name() {
                "spreadsheet" => self.sheets(xml, to)?,
                _ => self.blocks(xml, to)?,
            }
        }
        Ok(())
    }

    /// Reads the blocks in the element that is open.
    fn blocks(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            self.block(&element, xml, to)?;
        }
        Ok(())
    }

    fn block(&mut self, element: &Element, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        match element.name() {
            "h" | "p" => {
                let level = match element.name() {
                    "h" => Some(element.number("outline-level").unwrap_or(1)),
                    _ if self.is_title(element) => Some(1),
                    _ => None,
                };
                let inline = self.inlines(xml, to)?;
                match level {
                    Some(level) => to.heading(level, &inline.html)?,
                    None => to.paragraph(&inline.html)?,
                }
                inline.after.iter().try_for_each(|html| to.append(html))
            }
            "list" => self.list(element, xml, 0, None, to),
            "table" => {
                to.begin_table()?;
                self.rows(xml, to)?;
                to.end_table()
            }
            "page" => self.slide(xml, to),
            "title" | "desc" => {
                let mut html = String::new();
                push_image(&mut html, &xml.text()?);
                to.paragraph(&html)
            }
            "tracked-changes" | "table-of-content" | "forms" | "annotation" | "sequence-decls"
            | "variable-decls" | "user-field-decls" | "settings" | "named-expressions" => xml.skip(),
            _ => self.blocks(xml, to),
        }
    }

    fn is_title(&self, element: &Element) -> bool {
        let style = element.attribute("style-name");
        let parent = style.as_ref().and_then(|style| self.parents.get(style));
        style.iter().chain(parent).any(|style| style == "Title")
    }

    fn list(
        &mut self,
        element: &Element,
        xml: &mut Xml,
        level: usize,
        inherited: Option<&str>,
        to: &mut Blocks,
    ) -> Result<(), Fault> {
        let own = element.attribute("style-name");
        let style = own.as_deref().or(inherited);
        let level = level.min(MAX_LEVEL);
        let is_numbered = style.and_then(|style| self.lists.get(style)).is_some_and(|list| list[level]);
        let continues = ["continue-numbering", "continue-list"]
            .iter()
            .any(|name| element.attribute(name).is_some_and(|value| value != "false"));
        if !continues {
            self.counters[level] = 0;
        }
        while let Some(item) = xml.child()? {
            // A header has no number.
            let mut is_begun = item.name() != "list-item";
            if !is_begun {
                let next = item.number("start-value").unwrap_or(self.counters[level].saturating_add(1));
                self.counters[level] = next;
            }
            while let Some(element) = xml.child()? {
                match element.name() {
                    "p" => {
                        let inline = self.inlines(xml, to)?;
                        if is_begun {
                            to.append(&format!("<p>{}</p>", inline.html))?;
                        } else {
                            let number = is_numbered.then_some(self.counters[level]);
                            to.item(List { level, number }, &inline.html)?;
                        }
                        is_begun = true;
                        inline.after.iter().try_for_each(|html| to.append(html))?;
                    }
                    "list" => self.list(&element, xml, level + 1, style, to)?,
                    _ => self.block(&element, xml, to)?,
                }
            }
        }
        Ok(())
    }

    /// Reads the content of a paragraph, which is open.
    fn inlines(&mut self, xml: &mut Xml, around: &Blocks) -> Result<Inline, Fault> {
        let mut inline = Inline::default();
        self.inline(xml, &mut inline, around)?;
        Ok(inline)
    }

    fn inline(&mut self, xml: &mut Xml, to: &mut Inline, around: &Blocks) -> Result<(), Fault> {
        while let Some(node) = xml.next()? {
            let element = match node {
                Node::Element(element) => element,
                Node::Text(text) => {
                    push_text(&mut to.html, &text);
                    continue;
                }
            };
            match element.name() {
                "s" | "tab" => {
                    to.html.push(' ');
                    xml.skip()?;
                }
                "line-break" => {
                    to.html.push_str("<br>");
                    xml.skip()?;
                }
                "note" => {
                    let mut note = Blocks::of_cell();
                    while let Some(element) = xml.child()? {
                        match element.name() {
                            "note-body" => self.blocks(xml, &mut note)?,
                            _ => xml.skip()?,
                        }
                    }
                    self.notes += 1;
                    to.refer(self.notes, &note.finish(), around);
                }
                "text-box" | "table" => {
                    let mut part = around.part();
                    match element.name() {
                        "table" => self.block(&element, xml, &mut part)?,
                        _ => self.blocks(xml, &mut part)?,
                    }
                    to.after.push(part.finish());
                }
                // Shapes with text of their own.
                "p" | "list" => {
                    let mut part = around.part();
                    self.block(&element, xml, &mut part)?;
                    to.after.push(part.finish());
                }
                "title" | "desc" => push_image(&mut to.html, &xml.text()?),
                "annotation" | "ruby-text" | "script" | "tracked-changes" | "event-listeners" => {
                    xml.skip()?
                }
                _ => self.inline(xml, to, around)?,
            }
        }
        Ok(())
    }

    fn rows(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.name() {
                "table-row" => {
                    let count = repeated(&element, "number-rows-repeated");
                    let mut row = String::new();
                    while let Some(cell) = xml.child()? {
                        let columns = repeated(&cell, "number-columns-repeated");
                        let mut content = Blocks::of_cell();
                        match cell.name() {
                            "table-cell" => self.blocks(xml, &mut content)?,
                            // Another cell covers it.
                            _ => xml.skip()?,
                        }
                        let html = content.finish();
                        (0..columns).for_each(|_| push_cell(&mut row, &html, 1));
                    }
                    (0..count).try_for_each(|_| to.row(&row))?;
                }
                "table-header-rows" | "table-rows" | "table-row-group" => self.rows(xml, to)?,
                _ => xml.skip()?,
            }
        }
        Ok(())
    }

    fn sheets(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            if element.name() != "table" {
                xml.skip()?;
                continue;
            }
            let name = element.attribute("table:name").unwrap_or_default();
            if element.attribute("table:style-name").is_some_and(|style| self.hidden.contains(&style)) {
                self.hidden_sheets.push(clean(&name));
                xml.skip()?;
                continue;
            }
            let mut grid = Grid::new(self.max_text);
            self.sheet_rows(xml, &mut 0, &mut grid)?;
            excel::write(grid, name, to)?;
        }
        Ok(())
    }

    fn sheet_rows(&mut self, xml: &mut Xml, place: &mut u64, to: &mut Grid) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.name() {
                "table-row" => {
                    let mut column = 0_u32;
                    while let Some(cell) = xml.child()? {
                        let columns = cell.number("number-columns-repeated").unwrap_or(1_u32);
                        let end = column.saturating_add(columns).min(MAX_COLUMNS);
                        let text = match cell.name() {
                            "table-cell" => cell_text(xml)?,
                            _ => {
                                xml.skip()?;
                                String::new()
                            }
                        };
                        if !text.trim().is_empty() {
                            (column..end).try_for_each(|column| to.push(*place, column, text.clone()))?;
                        }
                        column = end;
                    }
                    let count = element.number("number-rows-repeated").unwrap_or(1).max(1);
                    to.repeat(*place, count)?;
                    *place = place.saturating_add(count);
                }
                "table-header-rows" | "table-rows" | "table-row-group" => self.sheet_rows(xml, place, to)?,
                _ => xml.skip()?,
            }
        }
        Ok(())
    }

    fn slide(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        self.slides += 1;
        let (mut title, mut body, mut notes) = (String::new(), to.part(), Blocks::of_cell());
        while let Some(element) = xml.child()? {
            match (element.name(), element.attribute("presentation:class").as_deref()) {
                ("notes", _) => self.notes(xml, &mut notes)?,
                (_, Some("title")) if title.is_empty() => {
                    let mut part = Blocks::of_cell();
                    self.blocks(xml, &mut part)?;
                    title = part.finish();
                }
                (_, Some("page-number" | "header" | "footer" | "date-time")) => xml.skip()?,
                _ => self.block(&element, xml, &mut body)?,
            }
        }
        to.slide(self.slides, (2, &title), body, notes)
    }

    fn notes(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.attribute("presentation:class").as_deref() {
                Some("notes") => self.blocks(xml, to)?,
                _ => xml.skip()?,
            }
        }
        Ok(())
    }
}

/// The text that a cell of a sheet shows.
fn cell_text(xml: &mut Xml) -> Result<String, Fault> {
    let mut text = String::new();
    while let Some(element) = xml.child()? {
        match element.name() {
            "p" => {
                if !text.is_empty() {
                    text.push('\n');
                }
                paragraph_text(xml, &mut text)?;
            }
            _ => xml.skip()?,
        }
    }
    Ok(text)
}

fn paragraph_text(xml: &mut Xml, to: &mut String) -> Result<(), Fault> {
    while let Some(node) = xml.next()? {
        match node {
            Node::Text(text) => to.push_str(&text),
            Node::Element(element) if matches!(element.name(), "annotation" | "ruby-text") => xml.skip()?,
            Node::Element(element) => {
                if matches!(element.name(), "s" | "tab" | "line-break") {
                    to.push(' ');
                }
                paragraph_text(xml, to)?;
            }
        }
    }
    Ok(())
}

fn repeated(element: &Element, name: &str) -> usize {
    element.number(name).unwrap_or(1).min(MAX_REPEATED)
}

#[cfg(test)]
#[path = "opendocument_tests.rs"]
mod tests;
