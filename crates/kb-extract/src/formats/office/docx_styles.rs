//! Styles and numbering of Word: which paragraphs are headings, and which are items of a list.

use super::blocks::List;
use super::xml::Xml;
use kb_types::extraction::Fault;
use std::collections::{HashMap, HashSet};

/// The most styles of which one is based on another. Files can make a circle of them.
const MAX_BASES: usize = 16;
/// The levels of a list.
const LEVELS: usize = 9;

/// What the paragraphs of a style are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Title,
    /// Its level, counted from 1.
    Heading(usize),
    /// A line of the table of contents.
    Contents,
    Text,
}

/// The list of a paragraph or style, and the level in it, counted from 0.
#[derive(Debug, Clone, Default)]
pub struct Place {
    list: Option<String>,
    level: Option<usize>,
}

impl Place {
    /// Reads `numPr`, which is open.
    pub fn read(xml: &mut Xml) -> Result<Place, Fault> {
        let mut place = Place::default();
        while let Some(element) = xml.child()? {
            match element.name() {
                "numId" => place.list = element.attribute("val"),
                "ilvl" => place.level = element.number("val"),
                _ => {}
            }
            xml.skip()?;
        }
        Ok(place)
    }
}

#[derive(Debug, Default)]
struct Style {
    /// In lower case. Word gives the styles that it has itself the same names in all languages.
    name: String,
    base: Option<String>,
    outline: Option<usize>,
    place: Place,
}

#[derive(Debug, Default)]
pub struct Styles {
    by_id: HashMap<String, Style>,
    default: Option<String>,
}

/// What a style says of a paragraph.
#[derive(Debug)]
pub struct Resolved<'a> {
    pub role: Role,
    pub list: Option<&'a Place>,
}

impl Styles {
    pub fn read(text: &str) -> Result<Styles, Fault> {
        let mut styles = Styles::default();
        let mut xml = Xml::new(text);
        xml.child()?;
        while let Some(element) = xml.child()? {
            let is_paragraph = element.attribute("type").is_none_or(|kind| kind == "paragraph");
            match element.attribute("styleId").filter(|_| is_paragraph && element.name() == "style") {
                Some(id) => {
                    if element.attribute("default").is_some_and(|value| value != "0" && value != "false") {
                        styles.default = Some(id.clone());
                    }
                    styles.by_id.insert(id, Style::read(&mut xml)?);
                }
                None => xml.skip()?,
            }
        }
        Ok(styles)
    }

    /// The role and list by a style and those that it is based on: the nearest decides.
    pub fn resolve(&self, id: Option<&str>) -> Resolved<'_> {
        let mut resolved = Resolved { role: Role::Text, list: None };
        let mut role = None;
        let mut next = id.or(self.default.as_deref());
        for _ in 0..MAX_BASES {
            let Some(style) = next.and_then(|id| self.by_id.get(id)) else { break };
            role = role.or_else(|| style.role());
            if resolved.list.is_none() && style.place.list.is_some() {
                resolved.list = Some(&style.place);
            }
            next = style.base.as_deref();
        }
        resolved.role = role.unwrap_or(Role::Text);
        resolved
    }
}

impl Style {
    fn read(xml: &mut Xml) -> Result<Style, Fault> {
        let mut style = Style::default();
        while let Some(element) = xml.child()? {
            match element.name() {
                "name" => {
                    style.name = element.attribute("val").unwrap_or_default().trim().to_lowercase();
                    xml.skip()?;
                }
                "basedOn" => {
                    style.base = element.attribute("val");
                    xml.skip()?;
                }
                "pPr" => {
                    while let Some(property) = xml.child()? {
                        match property.name() {
                            "outlineLvl" => {
                                style.outline = property.number("val");
                                xml.skip()?;
                            }
                            "numPr" => style.place = Place::read(xml)?,
                            _ => xml.skip()?,
                        }
                    }
                }
                _ => xml.skip()?,
            }
        }
        Ok(style)
    }

    /// What the style itself says, if anything.
    fn role(&self) -> Option<Role> {
        let numbered = |prefix: &str| self.name.strip_prefix(prefix)?.trim().parse::<usize>().ok();
        if self.name == "toc heading" || numbered("toc ").is_some() {
            return Some(Role::Contents);
        }
        if self.name == "title" {
            return Some(Role::Title);
        }
        match (self.outline, numbered("heading ")) {
            (Some(level @ 0..=8), _) => Some(Role::Heading(level + 1)),
            // The level of body text.
            (Some(_), _) => Some(Role::Text),
            (None, Some(level)) => Some(Role::Heading(level)),
            (None, None) => None,
        }
    }
}

/// A level of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    kind: Kind,
    start: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bullet,
    Number,
    /// Paragraphs that only are indented like the list.
    None,
}

/// The definition of a list, which several lists can share, and where they then go on counting.
#[derive(Debug, Default)]
struct Definition {
    levels: HashMap<usize, Level>,
    /// The style that has the definition instead.
    style: Option<String>,
    /// The last number of each level.
    counters: [Option<u64>; LEVELS],
}

#[derive(Debug, Default)]
struct Numbered {
    definition: String,
    restarts: HashMap<usize, u64>,
}

/// The lists of a document, and how far each has been counted.
#[derive(Debug, Default)]
pub struct Numbering {
    definitions: HashMap<String, Definition>,
    lists: HashMap<String, Numbered>,
    begun: HashSet<String>,
}

impl Numbering {
    pub fn read(text: &str) -> Result<Numbering, Fault> {
        let mut numbering = Numbering::default();
        // The definitions that styles have.
        let mut of_styles: HashMap<String, String> = HashMap::new();
        let mut xml = Xml::new(text);
        xml.child()?;
        while let Some(element) = xml.child()? {
            match element.name() {
                "abstractNum" => {
                    let id = element.attribute("abstractNumId").unwrap_or_default();
                    let (definition, of_style) = Definition::read(&mut xml)?;
                    of_styles.extend(of_style.map(|style| (style, id.clone())));
                    numbering.definitions.insert(id, definition);
                }
                "num" => {
                    let id = element.attribute("numId").unwrap_or_default();
                    numbering.lists.insert(id, Numbered::read(&mut xml)?);
                }
                _ => xml.skip()?,
            }
        }
        for list in numbering.lists.values_mut() {
            let style = numbering.definitions.get(&list.definition).and_then(|found| found.style.as_ref());
            if let Some(definition) = style.and_then(|style| of_styles.get(style)) {
                list.definition = definition.clone();
            }
        }
        Ok(numbering)
    }

    /// Counts a paragraph. Returns its list and number, if it is an item of a list. What the paragraph itself
    /// says has precedence over its style.
    pub fn next(&mut self, own: &Place, of_style: Option<&Place>) -> Option<List> {
        let id = own.list.as_ref().or(of_style.and_then(|place| place.list.as_ref()))?;
        // The list "0" takes a paragraph out of the list of its style; there is no such list.
        let level = own.level.or(of_style.and_then(|place| place.level)).unwrap_or(0).min(LEVELS - 1);
        let list = self.lists.get(id)?;
        let definition = self.definitions.get_mut(&list.definition)?;
        if self.begun.insert(id.clone()) {
            for (level, start) in &list.restarts {
                if let Some(counter) = definition.counters.get_mut(*level) {
                    *counter = start.checked_sub(1);
                }
            }
        }
        let Level { kind, start } =
            definition.levels.get(&level).cloned().unwrap_or(Level { kind: Kind::Number, start: 1 });
        let number = definition.counters[level].map_or(start, |last| last.saturating_add(1));
        definition.counters[level] = Some(number);
        definition.counters[level + 1..].fill(None);
        match kind {
            Kind::Bullet => Some(List { level, number: None }),
            Kind::Number => Some(List { level, number: Some(number) }),
            Kind::None => None,
        }
    }
}

impl Definition {
    /// Reads a definition, and the style whose definition it is.
    fn read(xml: &mut Xml) -> Result<(Definition, Option<String>), Fault> {
        let (mut definition, mut of_style) = (Definition::default(), None);
        while let Some(element) = xml.child()? {
            match element.name() {
                "lvl" => {
                    let level = element.number("ilvl").unwrap_or(0);
                    definition.levels.insert(level, Level::read(xml)?);
                    continue;
                }
                "numStyleLink" => definition.style = element.attribute("val"),
                "styleLink" => of_style = element.attribute("val"),
                _ => {}
            }
            xml.skip()?;
        }
        Ok((definition, of_style))
    }
}

impl Level {
    fn read(xml: &mut Xml) -> Result<Level, Fault> {
        let mut level = Level { kind: Kind::Number, start: 1 };
        while let Some(element) = xml.child()? {
            match element.name() {
                "start" => level.start = element.number("val").unwrap_or(1),
                "numFmt" => {
                    level.kind = match element.attribute("val").as_deref() {
                        Some("bullet") => Kind::Bullet,
                        Some("none") => Kind::None,
                        _ => Kind::Number,
                    }
                }
                _ => {}
            }
            xml.skip()?;
        }
        Ok(level)
    }
}

impl Numbered {
    fn read(xml: &mut Xml) -> Result<Numbered, Fault> {
        let mut list = Numbered::default();
        while let Some(element) = xml.child()? {
            match element.name() {
                "abstractNumId" => {
                    list.definition = element.attribute("val").unwrap_or_default();
                    xml.skip()?;
                }
                "lvlOverride" => {
                    let level = element.number("ilvl").unwrap_or(0);
                    while let Some(change) = xml.child()? {
                        if change.name() == "startOverride" {
                            list.restarts.insert(level, change.number("val").unwrap_or(1));
                        }
                        xml.skip()?;
                    }
                }
                _ => xml.skip()?,
            }
        }
        Ok(list)
    }
}
