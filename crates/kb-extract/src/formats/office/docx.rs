//! Word (Office Open XML, ECMA-376). Headers and footers, comments, deleted and hidden text, the table of
//! contents and the numbers of headings are left out.

use super::blocks::{Blocks, Inline, push_cell, push_image, push_text};
use super::docx_styles::{Numbering, Place, Role, Styles};
use super::package::{Package, Relationship};
use super::properties::Properties;
use super::xml::{Element, Xml};
use crate::formats::Format;
use kb_types::extraction::{Extraction, Fault, File};
use std::collections::HashMap;

pub const DOCX: Format = Format {
    content_types: &[
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
        "application/vnd.ms-word.document.macroenabled.12",
        "application/vnd.ms-word.template.macroenabled.12",
    ],
    extensions: &["docx", "docm", "dotx", "dotm"],
    is_text: false,
    read,
};

/// The most columns that Word gives a table.
const MAX_COLUMNS: usize = 63;

fn read(file: &File) -> Result<Extraction, Fault> {
    let mut package = Package::open(&file.bytes)?;
    let properties = Properties::of_office(&mut package)?;
    let part = package.related("", "officeDocument")?.unwrap_or_else(|| "word/document.xml".into());
    let relationships = package.relationships(&part)?;
    let mut related = |kind: &str| {
        let found = relationships.values().find(|related| related.kind == kind);
        found.map_or(Ok(None), |related| package.text(&related.target)).map(Option::unwrap_or_default)
    };
    let styles = Styles::read(&related("styles")?)?;
    let numbering = Numbering::read(&related("numbering")?)?;
    let (footnotes, endnotes) = (related("footnotes")?, related("endnotes")?);
    let text = package.needed(&part)?;
    let mut reader =
        Reader { package, relationships, styles, numbering, notes: HashMap::new(), referenced: 0 };
    reader.read_notes(&footnotes)?;
    reader.read_notes(&endnotes)?;
    let mut blocks = Blocks::of_document(file.max_text);
    reader.blocks(&mut Xml::new(&text), &mut blocks)?;
    let has_images = reader.package.has("/media/");
    blocks.into_extraction(properties.title, properties.metadata, has_images)
}

struct Reader<'a> {
    package: Package<'a>,
    relationships: HashMap<String, Relationship>,
    styles: Styles,
    numbering: Numbering,
    /// The footnotes and endnotes to which nothing has referred yet, by the kind of the note and its id.
    notes: HashMap<(bool, String), String>,
    /// How many notes have been referred to.
    referenced: usize,
}

impl Reader<'_> {
    fn read_notes(&mut self, text: &str) -> Result<(), Fault> {
        let mut xml = Xml::new(text);
        xml.child()?;
        while let Some(element) = xml.child()? {
            // Lines between the text and its notes are kept as notes of other types.
            let is_note = element.attribute("type").is_none_or(|kind| kind == "normal");
            match element.attribute("id").filter(|_| is_note) {
                Some(id) => {
                    let mut blocks = Blocks::of_cell();
                    let is_footnote = element.name() == "footnote";
                    self.blocks(&mut xml, &mut blocks)?;
                    self.notes.insert((is_footnote, id), blocks.finish());
                }
                None => xml.skip()?,
            }
        }
        Ok(())
    }

    /// Reads the blocks in the element that is open.
    fn blocks(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        let mut has_choice = false;
        while let Some(element) = xml.child()? {
            match is_alternative(&element, &mut has_choice) {
                true => xml.skip()?,
                false => self.block(&element, xml, to)?,
            }
        }
        Ok(())
    }

    fn block(&mut self, element: &Element, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        match element.name() {
            "p" => self.paragraph(xml, to),
            "tbl" => {
                to.begin_table()?;
                self.rows(xml, to)?;
                to.end_table()
            }
            "del" | "moveFrom" | "sdtPr" | "sdtEndPr" | "sectPr" | "background" => xml.skip(),
            _ => self.blocks(xml, to),
        }
    }

    fn paragraph(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        let mut properties = ParagraphProperties::default();
        let mut inline = Inline::default();
        let mut has_choice = false;
        while let Some(element) = xml.child()? {
            match element.name() {
                "pPr" => properties = ParagraphProperties::read(xml)?,
                _ if is_alternative(&element, &mut has_choice) => xml.skip()?,
                _ => self.inline(&element, xml, &mut inline, to)?,
            }
        }
        let style = self.styles.resolve(properties.style.as_deref());
        let outline =
            properties.outline.map(|level| if level < 9 { Role::Heading(level + 1) } else { Role::Text });
        let role = match (style.role, outline) {
            (role @ (Role::Title | Role::Contents), _) => role,
            (role, outline) => outline.unwrap_or(role),
        };
        match role {
            Role::Contents => {}
            Role::Title => to.heading(1, &inline.html)?,
            Role::Heading(level) => {
                // The number of the heading counts, though it is not shown.
                self.numbering.next(&properties.list, style.list);
                to.heading(level, &inline.html)?;
            }
            Role::Text => match self.numbering.next(&properties.list, style.list) {
                Some(list) => to.item(list, &inline.html)?,
                None => to.paragraph(&inline.html)?,
            },
        }
        inline.after.iter().try_for_each(|html| to.append(html))
    }

    /// Reads an element of a paragraph.
    fn inline(
        &mut self,
        element: &Element,
        xml: &mut Xml,
        to: &mut Inline,
        around: &Blocks,
    ) -> Result<(), Fault> {
        match element.name() {
            "t" => push_text(&mut to.html, &xml.text()?),
            "r" => self.run(xml, to, around)?,
            "tab" | "ptab" => {
                to.html.push(' ');
                xml.skip()?;
            }
            "br" | "cr" => {
                to.html.push_str("<br>");
                xml.skip()?;
            }
            "noBreakHyphen" => {
                to.html.push('-');
                xml.skip()?;
            }
            "footnoteReference" | "endnoteReference" => {
                let is_footnote = element.name() == "footnoteReference";
                let note = element.attribute("id").and_then(|id| self.notes.remove(&(is_footnote, id)));
                if let Some(note) = note {
                    self.referenced += 1;
                    to.refer(self.referenced, &note, around);
                }
                xml.skip()?;
            }
            // The properties of a drawing, with the description of its image.
            "docPr" => {
                push_image(&mut to.html, &element.attribute("descr").unwrap_or_default());
                xml.skip()?;
            }
            "txbxContent" => {
                let mut part = around.part();
                self.blocks(xml, &mut part)?;
                to.after.push(part.finish());
            }
            "relIds" => {
                to.after.extend(self.diagram(element, around)?);
                xml.skip()?;
            }
            "del" | "moveFrom" | "rPr" | "sdtPr" | "sdtEndPr" | "rt" | "instrText" | "delText"
            | "delInstrText" => xml.skip()?,
            _ => {
                let mut has_choice = false;
                while let Some(element) = xml.child()? {
                    match is_alternative(&element, &mut has_choice) {
                        true => xml.skip()?,
                        false => self.inline(&element, xml, to, around)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a run, whose properties come first. Hidden text is left out.
    fn run(&mut self, xml: &mut Xml, to: &mut Inline, around: &Blocks) -> Result<(), Fault> {
        let (mut is_hidden, mut has_choice) = (false, false);
        while let Some(element) = xml.child()? {
            match element.name() {
                "rPr" => {
                    while let Some(property) = xml.child()? {
                        is_hidden |= property.name() == "vanish" && property.is_on();
                        xml.skip()?;
                    }
                }
                _ if is_hidden || is_alternative(&element, &mut has_choice) => xml.skip()?,
                _ => self.inline(&element, xml, to, around)?,
            }
        }
        Ok(())
    }

    /// The texts of a diagram (SmartArt), whose data is a part of its own.
    fn diagram(&mut self, element: &Element, around: &Blocks) -> Result<Option<String>, Fault> {
        let id = element.attribute("r:dm");
        let Some(part) = id.and_then(|id| self.relationships.get(&id)).map(|related| related.target.clone())
        else {
            return Ok(None);
        };
        let text = self.package.text(&part)?.unwrap_or_default();
        let mut blocks = around.part();
        let mut xml = Xml::new(&text);
        self.blocks(&mut xml, &mut blocks)?;
        Ok(Some(blocks.finish()))
    }

    fn rows(&mut self, xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.name() {
                "tr" => {
                    let mut row = Row::default();
                    self.cells(xml, &mut row)?;
                    if !row.is_deleted {
                        to.row(&row.html)?;
                    }
                }
                "tblPr" | "tblGrid" | "tblPrEx" | "del" | "moveFrom" | "sdtPr" => xml.skip()?,
                _ => self.rows(xml, to)?,
            }
        }
        Ok(())
    }

    fn cells(&mut self, xml: &mut Xml, row: &mut Row) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            match element.name() {
                "tc" => self.cell(xml, row)?,
                "trPr" => {
                    while let Some(property) = xml.child()? {
                        match property.name() {
                            "del" => row.is_deleted = true,
                            "gridBefore" => {
                                let columns = property.number("val").unwrap_or(0).min(MAX_COLUMNS);
                                row.html.push_str(&"<td></td>".repeat(columns));
                            }
                            _ => {}
                        }
                        xml.skip()?;
                    }
                }
                "tblPrEx" | "del" | "moveFrom" | "sdtPr" => xml.skip()?,
                _ => self.cells(xml, row)?,
            }
        }
        Ok(())
    }

    fn cell(&mut self, xml: &mut Xml, row: &mut Row) -> Result<(), Fault> {
        let (mut blocks, mut columns) = (Blocks::of_cell(), 1);
        let mut has_choice = false;
        while let Some(element) = xml.child()? {
            match element.name() {
                "tcPr" => {
                    while let Some(property) = xml.child()? {
                        if property.name() == "gridSpan" {
                            columns = property.number("val").unwrap_or(1).min(MAX_COLUMNS);
                        }
                        xml.skip()?;
                    }
                }
                _ if is_alternative(&element, &mut has_choice) => xml.skip()?,
                _ => self.block(&element, xml, &mut blocks)?,
            }
        }
        push_cell(&mut row.html, &blocks.finish(), columns);
        Ok(())
    }
}

#[derive(Default)]
struct Row {
    html: String,
    is_deleted: bool,
}

#[derive(Default)]
struct ParagraphProperties {
    style: Option<String>,
    outline: Option<usize>,
    list: Place,
}

impl ParagraphProperties {
    fn read(xml: &mut Xml) -> Result<ParagraphProperties, Fault> {
        let mut properties = ParagraphProperties::default();
        while let Some(element) = xml.child()? {
            match element.name() {
                "pStyle" => properties.style = element.attribute("val"),
                "outlineLvl" => properties.outline = element.number("val"),
                "numPr" => {
                    properties.list = Place::read(xml)?;
                    continue;
                }
                _ => {}
            }
            xml.skip()?;
        }
        Ok(properties)
    }
}

/// Whether an element is an alternative (markup compatibility) to one that has been read: a program reads the
/// first one that it can, and the choices here only draw the same text in other ways.
pub fn is_alternative(element: &Element, has_choice: &mut bool) -> bool {
    match element.name() {
        "Choice" => std::mem::replace(has_choice, true),
        "Fallback" => *has_choice,
        _ => false,
    }
}

#[cfg(test)]
#[path = "docx_tests.rs"]
mod tests;
