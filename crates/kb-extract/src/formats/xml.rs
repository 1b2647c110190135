//! XML: the text of each element on a line after the names that lead to it, and so each attribute.
//!
//! An element with text beside its elements is a paragraph and comes whole, without its attributes. The name
//! of the outermost element, prefixes of names, comments and processing instructions are left out. Entities
//! that a file defines are not expanded.

use super::Format;
use super::lines::Lines;
use crate::charset;
use kb_types::extraction::{Extraction, Fault, File};
use kb_types::json::MAX_DEPTH;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

pub const XML: Format = Format {
    content_types: &["application/xml", "text/xml", "application/rss+xml", "application/atom+xml"],
    extensions: &["xml", "rss", "atom"],
    is_text: true,
    read,
};

/// Elements with elements are set apart down to this level, which has the records of most files.
const RECORDS: usize = 3;

/// What is in an element.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    has_text: bool,
    has_elements: bool,
}

impl Shape {
    fn is_paragraph(self) -> bool {
        self.has_text && self.has_elements
    }
}

fn read(file: &File) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let shapes = shapes(&decoded.text)?;
    let mut walk = Walk {
        shapes: shapes.into_iter(),
        around: Vec::new(),
        lines: Lines::new(file.max_text),
        title: None,
    };
    events(&decoded.text, |event| walk.event(event))?;
    Ok(Extraction {
        text_type: "text/plain".into(),
        metadata: decoded.metadata(),
        title: walk.title,
        text: walk.lines.finish(),
        ..Extraction::default()
    })
}

pub(super) enum Step<'a> {
    Start(&'a BytesStart<'a>),
    End,
    Text(&'a str),
}

/// Reads a file from beginning to end.
pub(super) fn events(text: &str, mut each: impl FnMut(Step) -> Result<(), Fault>) -> Result<(), Fault> {
    let broken = |problem: String| Fault::Broken(format!("it is not XML: {problem}"));
    let mut reader = Reader::from_str(text);
    reader.config_mut().allow_dangling_amp = true;
    let (mut depth, mut elements) = (0usize, 0usize);
    loop {
        match reader.read_event().map_err(|error| broken(error.to_string()))? {
            Event::Start(start) => {
                depth += 1;
                elements += 1;
                if depth > MAX_DEPTH {
                    return Err(Fault::Broken(format!("it is nested more than {MAX_DEPTH} levels deep")));
                }
                each(Step::Start(&start))?;
            }
            Event::Empty(start) => {
                elements += 1;
                each(Step::Start(&start))?;
                each(Step::End)?;
            }
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                each(Step::End)?;
            }
            Event::Text(text) => each(Step::Text(&text))?,
            Event::CData(text) => each(Step::Text(&text))?,
            Event::GeneralRef(reference) => each(Step::Text(&resolved(&reference)))?,
            Event::Eof if depth > 0 => return Err(broken("it ends within an element".into())),
            Event::Eof if elements == 0 => return Err(broken("it has no elements".into())),
            Event::Eof => return Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

/// What a reference stands for. One that is not XML's own stays as it is written.
fn resolved(reference: &BytesRef) -> String {
    let own = match &**reference {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => reference.resolve_char_ref().ok().flatten(),
    };
    own.map_or_else(|| format!("&{};", &**reference), String::from)
}

/// The shape of each element, in the order in which they begin.
fn shapes(text: &str) -> Result<Vec<Shape>, Fault> {
    let mut shapes: Vec<Shape> = Vec::new();
    let mut around: Vec<usize> = Vec::new();
    events(text, |event| {
        match (event, around.last().and_then(|element| shapes.get_mut(*element))) {
            (Step::Start(_), outer) => {
                if let Some(outer) = outer {
                    outer.has_elements = true;
                }
                around.push(shapes.len());
                shapes.push(Shape::default());
            }
            (Step::End, _) => {
                around.pop();
            }
            (Step::Text(text), Some(outer)) => outer.has_text |= !text.trim().is_empty(),
            (Step::Text(_), None) => {}
        }
        Ok(())
    })?;
    Ok(shapes)
}

/// An element that is being read.
struct Open {
    name: String,
    shape: Shape,
    text: String,
}

struct Walk<S> {
    shapes: S,
    /// The elements around the current place. Those within a paragraph have no name.
    around: Vec<Open>,
    lines: Lines,
    title: Option<String>,
}

impl<S: Iterator<Item = Shape>> Walk<S> {
    fn event(&mut self, event: Step) -> Result<(), Fault> {
        match event {
            Step::Start(start) => self.start(start),
            Step::End => self.end(),
            Step::Text(text) => {
                if let Some(open) = self.around.last_mut() {
                    open.text.push_str(text);
                }
                Ok(())
            }
        }
    }

    fn start(&mut self, start: &BytesStart) -> Result<(), Fault> {
        let shape = self.shapes.next().unwrap_or_default();
        let is_within = self.around.last().is_some_and(|outer| outer.shape.is_paragraph());
        if is_within {
            // Its text belongs to the paragraph.
            let shape = Shape { has_text: true, has_elements: true };
            let text =
                self.around.last_mut().map(|outer| std::mem::take(&mut outer.text)).unwrap_or_default();
            self.around.push(Open { name: String::new(), shape, text });
            return Ok(());
        }
        self.set_apart(shape, self.around.len() + 1);
        // The outermost element's name says nothing.
        let name =
            if self.around.is_empty() { String::new() } else { start.local_name().as_ref().to_string() };
        self.around.push(Open { name, shape, text: String::new() });
        for attribute in start.attributes().with_checks(false).flatten() {
            let name = attribute.key.as_ref();
            if name.starts_with("xmlns") || name.starts_with("xml:") || name.starts_with("xsi:") {
                continue;
            }
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .unwrap_or_else(|_| attribute.value.clone());
            let name = attribute.key.local_name().as_ref().to_string();
            let names = self.around.iter().map(|open| open.name.as_str()).chain([name.as_str()]);
            self.lines.push(names, &value)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(open) = self.around.pop() else { return Ok(()) };
        if let Some(outer) = self.around.last_mut().filter(|outer| outer.shape.is_paragraph()) {
            outer.text = open.text;
            return Ok(());
        }
        let text = match open.shape.is_paragraph() {
            true => open.text.split_whitespace().collect::<Vec<_>>().join(" "),
            false => open.text.trim().to_string(),
        };
        if open.name == "title" && self.around.len() == 1 && !text.is_empty() {
            self.title.get_or_insert(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        let names = self.around.iter().map(|open| open.name.as_str()).chain([open.name.as_str()]);
        self.lines.push(names, &text)?;
        self.set_apart(open.shape, self.around.len() + 1);
        Ok(())
    }

    fn set_apart(&mut self, shape: Shape, level: usize) {
        if shape.has_elements && level <= RECORDS {
            self.lines.set_apart();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Extraction, Fault> {
        let file =
            File { name: Some("a.xml".into()), bytes: text.into(), max_text: 100_000, ..File::default() };
        crate::extract(&file)
    }

    #[test]
    fn each_text_and_attribute_comes_after_its_names() {
        let xml = "<?xml version='1.0'?><!DOCTYPE c><c:catalog xmlns:c='x' c:year='2024'><!-- no -->\n  <title>The\n  books</title>\n  <book id='1'><title>A &lt;&#66; &amp; C</title><price>12.50</price><empty/></book>\n  <book id='2 &gt; 1'><title><![CDATA[<D>]]></title></book></c:catalog>";
        let found = of(xml).unwrap();
        assert_eq!(found.title.as_deref(), Some("The books"));
        assert_eq!(
            found.text,
            "year: 2024\ntitle: The\n  books\n\nbook.id: 1\nbook.title: A <B & C\nbook.price: 12.50\n\nbook.id: 2 > 1\nbook.title: <D>"
        );
        assert_eq!(of("<a>only</a>").unwrap().text, "only");
    }

    #[test]
    fn text_among_elements_is_a_paragraph() {
        let xml = "<doc><p><b>Hello</b>, <a href='x'>wo<i>r</i>ld</a> and\n   more.</p><p>Two</p></doc>";
        assert_eq!(of(xml).unwrap().text, "p: Hello, world and more.\n\np: Two");
    }

    #[test]
    fn entities_are_not_expanded_and_nothing_is_fetched() {
        let xml = "<!DOCTYPE a [<!ENTITY x 'lol'><!ENTITY y '&x;&x;&x;'><!ENTITY z SYSTEM 'file:///etc/passwd'>]><a><b>&y; &z; R&D</b></a>";
        assert_eq!(of(xml).unwrap().text, "b: &y; &z; R&D");
    }

    #[test]
    fn what_is_broken_too_deep_or_too_long_is_refused() {
        for broken in ["", "text", "<a><b></a>", "<a>", &"<a>".repeat(100_000)] {
            assert!(matches!(of(broken), Err(Fault::Broken(_))), "{}", &broken[..broken.len().min(9)]);
        }
        let name = "n".repeat(1000);
        let long = format!("<r><{name}>{}</{name}></r>", "<x>y</x>".repeat(1000));
        assert!(matches!(of(&long), Err(Fault::TooLarge(_))));
    }

    #[test]
    fn a_paragraph_in_a_paragraph_is_not_copied_for_each_of_its_elements() {
        let xml =
            format!("<r>x{}{}{}</r>", "<a>y".repeat(90), "<b>word</b> ".repeat(5_000), "</a>".repeat(90));
        assert!(of(&xml).unwrap().text.ends_with("word word"));
    }
}
