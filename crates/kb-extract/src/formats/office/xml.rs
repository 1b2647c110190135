//! Walks through XML element by element, in one pass (quick-xml). No entity is expanded except those that XML
//! itself defines, and nothing outside of the text is read.

use kb_types::extraction::Fault;
use quick_xml::Reader;
use quick_xml::escape::{resolve_xml_entity, unescape};
use quick_xml::events::{BytesStart, Event};
use std::borrow::Cow;

/// The most levels of elements. Readers call themselves for the elements within an element.
const MAX_DEPTH: usize = 256;

/// A cursor in XML. Whoever is given an element reads what is in it until there is no more, or skips it.
pub struct Xml<'a> {
    reader: Reader<&'a [u8]>,
    depth: usize,
}

pub struct Element<'a>(BytesStart<'a>);

pub enum Node<'a> {
    Element(Element<'a>),
    Text(Cow<'a, str>),
}

impl<'a> Xml<'a> {
    pub fn new(text: &'a str) -> Xml<'a> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        reader.config_mut().allow_dangling_amp = true;
        Xml { reader, depth: 0 }
    }

    /// What comes next in the element that is open. None is its end, which leads back to the element around
    /// it.
    pub fn next(&mut self) -> Result<Option<Node<'a>>, Fault> {
        loop {
            match self.reader.read_event().map_err(|error| broken(&error.to_string()))? {
                Event::Start(tag) => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(broken(&format!("elements are nested more than {MAX_DEPTH} deep")));
                    }
                    return Ok(Some(Node::Element(Element(tag))));
                }
                Event::End(_) => {
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(None);
                }
                Event::Text(text) => return Ok(Some(Node::Text(text.into_inner()))),
                Event::CData(text) => return Ok(Some(Node::Text(text.into_inner()))),
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref().ok().flatten();
                    let text = match character {
                        Some(character) => character.to_string(),
                        None => resolve_xml_entity(&reference).unwrap_or_default().to_string(),
                    };
                    return Ok(Some(Node::Text(text.into())));
                }
                Event::Eof if self.depth > 0 => return Err(broken("an element has no end")),
                Event::Eof => return Ok(None),
                _ => {}
            }
        }
    }

    /// The next element in the element that is open, or None at its end.
    pub fn child(&mut self) -> Result<Option<Element<'a>>, Fault> {
        loop {
            match self.next()? {
                Some(Node::Element(element)) => return Ok(Some(element)),
                Some(Node::Text(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Leaves the element that is open.
    pub fn skip(&mut self) -> Result<(), Fault> {
        let depth = self.depth;
        while depth > 0 && self.depth >= depth {
            self.next()?;
        }
        Ok(())
    }

    /// All text in the element that is open, and leaves it.
    pub fn text(&mut self) -> Result<String, Fault> {
        let (depth, mut found) = (self.depth, String::new());
        while depth > 0 && self.depth >= depth {
            if let Some(Node::Text(text)) = self.next()? {
                found.push_str(&text);
            }
        }
        Ok(found)
    }
}

impl Element<'_> {
    /// Its name without the prefix of a namespace, because programs choose prefixes as they like.
    pub fn name(&self) -> &str {
        self.0.local_name().into_inner()
    }

    /// The value of an attribute, by its name with or without a prefix.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let is_wanted = |key: &str| match name.contains(':') {
            true => key == name,
            false => key.rsplit(':').next() == Some(name),
        };
        let mut attributes = self.0.attributes();
        // A repeated name is of no interest, and each would be compared with all before it.
        attributes.with_checks(false);
        let attribute = attributes.map_while(Result::ok).find(|attribute| is_wanted(attribute.key.0))?;
        Some(unescape(&attribute.value).unwrap_or(attribute.value.clone()).into_owned())
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.attribute(name)?.trim().parse().ok()
    }

    /// Whether a property of Office Open XML is on: an element without a value is.
    pub fn is_on(&self) -> bool {
        self.attribute("val").is_none_or(|value| !matches!(value.as_str(), "0" | "false" | "off" | "none"))
    }
}

fn broken(problem: &str) -> Fault {
    Fault::Broken(format!("its XML cannot be read: {problem}"))
}
