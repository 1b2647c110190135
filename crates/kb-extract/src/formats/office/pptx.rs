//! PowerPoint (Office Open XML, ECMA-376): slides in the order of the presentation, with the speaker's notes.
//! Dates, footers and numbers of slides, comments and charts are left out.

use super::blocks::{Blocks, List, push_cell, push_image, push_text};
use super::docx::is_alternative;
use super::package::{Package, Relationship};
use super::properties::Properties;
use super::xml::{Element, Xml};
use crate::formats::Format;
use kb_types::extraction::{Extraction, Fault, File};
use std::collections::HashMap;

pub const PPTX: Format = Format {
    content_types: &[
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.presentationml.slideshow",
        "application/vnd.openxmlformats-officedocument.presentationml.template",
        "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    ],
    extensions: &["pptx", "ppsx", "potx", "pptm"],
    is_text: false,
    read,
};

const LEVELS: usize = 9;

fn read(file: &File) -> Result<Extraction, Fault> {
    let mut package = Package::open(&file.bytes)?;
    let properties = Properties::of_office(&mut package)?;
    let part = package.related("", "officeDocument")?.unwrap_or_else(|| "ppt/presentation.xml".into());
    let relationships = package.relationships(&part)?;
    let text = package.needed(&part)?;
    let mut blocks = Blocks::of_document(file.max_text);
    let mut number = 0;
    for id in slide_ids(&text)? {
        number += 1;
        if let Some(slide) = relationships.get(&id) {
            read_slide(&mut package, &slide.target, number, &mut blocks)?;
        }
    }
    let has_images = package.has("/media/");
    blocks.into_extraction(properties.title, properties.metadata, has_images)
}

/// The relationships of the slides, in their order.
fn slide_ids(presentation: &str) -> Result<Vec<String>, Fault> {
    let mut ids = Vec::new();
    let mut xml = Xml::new(presentation);
    xml.child()?;
    while let Some(element) = xml.child()? {
        if element.name() != "sldIdLst" {
            xml.skip()?;
            continue;
        }
        while let Some(slide) = xml.child()? {
            ids.extend(slide.attribute("r:id"));
            xml.skip()?;
        }
    }
    Ok(ids)
}

fn read_slide(package: &mut Package, part: &str, number: u32, to: &mut Blocks) -> Result<(), Fault> {
    let relationships = package.relationships(part)?;
    let notes = relationships.values().find(|related| related.kind == "notesSlide");
    let notes = notes.map(|related| package.text(&related.target)).transpose()?.flatten();
    let text = package.needed(part)?;
    let mut slide = Slide::new(package, to.part());
    slide.relationships = relationships;
    slide.shapes(&mut Xml::new(&text))?;
    let (title, level, body) = (slide.title, slide.level, slide.body);
    let mut of_notes = Slide::new(package, Blocks::of_cell());
    of_notes.is_notes = true;
    of_notes.shapes(&mut Xml::new(&notes.unwrap_or_default()))?;
    to.slide(number, (level, &title), body, of_notes.body)
}

/// A slide, or the page of notes that belongs to it.
struct Slide<'p, 'a> {
    package: &'p mut Package<'a>,
    relationships: HashMap<String, Relationship>,
    is_notes: bool,
    title: String,
    /// The level of its title: that of a title slide is above those of other slides.
    level: usize,
    body: Blocks,
}

impl<'p, 'a> Slide<'p, 'a> {
    fn new(package: &'p mut Package<'a>, body: Blocks) -> Slide<'p, 'a> {
        Slide {
            package,
            relationships: HashMap::new(),
            is_notes: false,
            title: String::new(),
            level: 2,
            body,
        }
    }

    /// Reads the shapes in the element that is open.
    fn shapes(&mut self, xml: &mut Xml) -> Result<(), Fault> {
        let mut has_choice = false;
        while let Some(element) = xml.child()? {
            match element.name() {
                _ if is_alternative(&element, &mut has_choice) => xml.skip()?,
                "sp" => self.shape(xml)?,
                "tbl" if !self.is_notes => {
                    self.body.begin_table()?;
                    self.rows(xml)?;
                    self.body.end_table()?;
                }
                "cNvPr" if !self.is_notes => {
                    let mut html = String::new();
                    push_image(&mut html, &element.attribute("descr").unwrap_or_default());
                    self.body.paragraph(&html)?;
                    xml.skip()?;
                }
                "relIds" if !self.is_notes => {
                    self.diagram(&element)?;
                    xml.skip()?;
                }
                "cNvPr" | "tbl" | "relIds" | "timing" | "transition" | "extLst" | "bg" | "spPr" => {
                    xml.skip()?
                }
                _ => self.shapes(xml)?,
            }
        }
        Ok(())
    }

    fn shape(&mut self, xml: &mut Xml) -> Result<(), Fault> {
        let mut placeholder: Option<String> = None;
        while let Some(element) = xml.child()? {
            match element.name() {
                "nvSpPr" => placeholder = read_placeholder(xml)?,
                "txBody" => {
                    let kind = placeholder.as_deref();
                    match kind {
                        Some("sldNum" | "dt" | "ftr" | "hdr") => xml.skip()?,
                        kind if self.is_notes && kind != Some("body") => xml.skip()?,
                        Some("title" | "ctrTitle") if self.title.is_empty() => {
                            let mut title = Blocks::of_cell();
                            paragraphs(xml, false, &mut title)?;
                            self.title = title.finish();
                            self.level = if kind == Some("ctrTitle") { 1 } else { 2 };
                        }
                        // These have bullets unless a paragraph says otherwise.
                        Some("body" | "obj") => paragraphs(xml, true, &mut self.body)?,
                        _ => paragraphs(xml, false, &mut self.body)?,
                    }
                }
                _ => xml.skip()?,
            }
        }
        Ok(())
    }

    fn rows(&mut self, xml: &mut Xml) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            if element.name() != "tr" {
                xml.skip()?;
                continue;
            }
            let mut row = String::new();
            while let Some(cell) = xml.child()? {
                if cell.name() != "tc" {
                    xml.skip()?;
                    continue;
                }
                let mut content = Blocks::of_cell();
                while let Some(element) = xml.child()? {
                    match element.name() {
                        "txBody" => paragraphs(xml, false, &mut content)?,
                        _ => xml.skip()?,
                    }
                }
                // The cells that it covers are there, and empty.
                push_cell(&mut row, &content.finish(), 1);
            }
            self.body.row(&row)?;
        }
        Ok(())
    }

    /// Reads the texts of a diagram (SmartArt), whose data is a part of its own.
    fn diagram(&mut self, element: &Element) -> Result<(), Fault> {
        let related = element.attribute("r:dm").and_then(|id| self.relationships.remove(&id));
        let Some(related) = related else { return Ok(()) };
        let text = self.package.text(&related.target)?.unwrap_or_default();
        texts(&mut Xml::new(&text), &mut self.body)
    }
}

/// Reads all paragraphs in the element that is open, however deep they are.
fn texts(xml: &mut Xml, to: &mut Blocks) -> Result<(), Fault> {
    while let Some(element) = xml.child()? {
        match element.name() {
            "t" => paragraphs(xml, true, to)?,
            _ => texts(xml, to)?,
        }
    }
    Ok(())
}

/// The kind of the placeholder that a shape fills, if it is one.
fn read_placeholder(xml: &mut Xml) -> Result<Option<String>, Fault> {
    let mut found = None;
    while let Some(element) = xml.child()? {
        if element.name() == "ph" {
            found = Some(element.attribute("type").unwrap_or_else(|| "obj".into()));
        }
        found = found.or(read_placeholder(xml)?);
    }
    Ok(found)
}

/// Reads the paragraphs in the body of text that is open.
fn paragraphs(xml: &mut Xml, has_bullets: bool, to: &mut Blocks) -> Result<(), Fault> {
    let mut counters = [0_u64; LEVELS];
    while let Some(element) = xml.child()? {
        if element.name() != "p" {
            xml.skip()?;
            continue;
        }
        let paragraph = Paragraph::read(xml, has_bullets)?;
        let level = paragraph.level.min(LEVELS - 1);
        counters[level + 1..].fill(0);
        match paragraph.bullet {
            Bullet::None => to.paragraph(&paragraph.html)?,
            Bullet::Sign => to.item(List { level, number: None }, &paragraph.html)?,
            Bullet::Number(start) => {
                counters[level] =
                    if counters[level] == 0 { start } else { counters[level].saturating_add(1) };
                to.item(List { level, number: Some(counters[level]) }, &paragraph.html)?;
            }
        }
        if !matches!(paragraph.bullet, Bullet::Number(_)) {
            counters[level] = 0;
        }
    }
    Ok(())
}

struct Paragraph {
    html: String,
    level: usize,
    bullet: Bullet,
}

enum Bullet {
    None,
    Sign,
    /// The number of the first item.
    Number(u64),
}

impl Paragraph {
    fn read(xml: &mut Xml, has_bullet: bool) -> Result<Paragraph, Fault> {
        let bullet = if has_bullet { Bullet::Sign } else { Bullet::None };
        let mut paragraph = Paragraph { html: String::new(), level: 0, bullet };
        while let Some(element) = xml.child()? {
            match element.name() {
                "pPr" => {
                    paragraph.level = element.number("lvl").unwrap_or(0);
                    while let Some(property) = xml.child()? {
                        match property.name() {
                            "buNone" => paragraph.bullet = Bullet::None,
                            "buChar" | "buBlip" => paragraph.bullet = Bullet::Sign,
                            "buAutoNum" => {
                                paragraph.bullet = Bullet::Number(property.number("startAt").unwrap_or(1));
                            }
                            _ => {}
                        }
                        xml.skip()?;
                    }
                }
                _ => inline(&element, xml, &mut paragraph.html)?,
            }
        }
        Ok(paragraph)
    }
}

fn inline(element: &Element, xml: &mut Xml, to: &mut String) -> Result<(), Fault> {
    let is_field = |kind: &str| element.attribute("type").is_some_and(|found| found.starts_with(kind));
    match element.name() {
        "t" => push_text(to, &xml.text()?),
        "br" => {
            to.push_str("<br>");
            xml.skip()?;
        }
        "fld" if is_field("slidenum") || is_field("datetime") => xml.skip()?,
        "rPr" | "endParaRPr" => xml.skip()?,
        _ => {
            let mut has_choice = false;
            while let Some(element) = xml.child()? {
                match is_alternative(&element, &mut has_choice) {
                    true => xml.skip()?,
                    false => inline(&element, xml, to)?,
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "pptx_tests.rs"]
mod tests;
