//! Finds the headings of a Markdown text, and the places where its blocks begin.

use super::containers::shallow;
use crate::error::Result;
use crate::model::Bounds;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The structure of a Markdown text, in byte offsets.
#[derive(Debug, Default)]
pub struct Outline {
    headings: Vec<Heading>,
    /// Starts of the outermost blocks: from here on, a part reads as it does in the whole.
    blocks: Vec<usize>,
}

/// Work of an event of the parser, in bytes.
const EVENT: usize = 8;

#[derive(Debug)]
struct Heading {
    offset: usize,
    level: usize,
    title: String,
}

impl Outline {
    /// Reads the structure of `text`, in linear time. Errors: [`crate::error::Error::Limit`].
    pub fn read(text: &str, bounds: &Bounds) -> Result<Outline> {
        bounds.spend(text.len())?;
        let text = &*shallow(text);
        let mut outline = Outline::default();
        let mut depth = 0usize;
        let mut open: Option<Heading> = None;
        // Front matter between --- lines would otherwise read as a heading.
        let options = Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_TABLES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            bounds.spend(EVENT)?;
            match event {
                Event::Start(tag) => {
                    if depth == 0 {
                        outline.blocks.push(range.start);
                    }
                    depth += 1;
                    if let Tag::Heading { level, .. } = tag {
                        open = Some(Heading {
                            offset: range.start,
                            level: level as usize,
                            title: String::new(),
                        });
                    }
                }
                Event::End(tag) => {
                    depth = depth.saturating_sub(1);
                    if matches!(tag, TagEnd::Heading(_))
                        && let Some(mut heading) = open.take()
                    {
                        heading.title = heading.title.trim().to_string();
                        outline.headings.push(heading);
                    }
                }
                Event::Text(s) | Event::Code(s) => {
                    if let Some(heading) = &mut open {
                        heading.title.push_str(&s);
                    }
                }
                Event::SoftBreak | Event::HardBreak => {
                    if let Some(heading) = &mut open {
                        heading.title.push(' ');
                    }
                }
                Event::Rule if depth == 0 => outline.blocks.push(range.start),
                _ => {}
            }
        }
        Ok(outline)
    }

    /// The title of the first heading that has one.
    pub fn title(&self) -> Option<&str> {
        self.headings.iter().map(|h| h.title.as_str()).find(|t| !t.is_empty())
    }

    /// Whether an outermost block begins at `offset`.
    pub fn begins_block(&self, offset: usize) -> bool {
        self.blocks.binary_search(&offset).is_ok()
    }

    /// Walks down the text; see [`Path::at`].
    pub fn path(&self) -> Path<'_> {
        Path { rest: &self.headings, open: Vec::new() }
    }
}

/// The headings above a place that moves down the text.
pub struct Path<'a> {
    rest: &'a [Heading],
    open: Vec<&'a Heading>,
}

impl Path<'_> {
    /// Titles of the headings above `offset`, one that begins there included, outermost first.
    /// Offsets must not decrease from call to call.
    pub fn at(&mut self, offset: usize) -> Vec<String> {
        while let Some((next, rest)) = self.rest.split_first() {
            if next.offset > offset {
                break;
            }
            self.open.retain(|above| above.level < next.level);
            self.open.push(next);
            self.rest = rest;
        }
        self.open.iter().map(|h| h.title.clone()).filter(|t| !t.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outline {
        Outline::read(text, &Bounds::none()).unwrap()
    }

    fn path(text: &str, at: &str) -> Vec<String> {
        read(text).path().at(text.find(at).unwrap())
    }

    #[test]
    fn a_deeper_heading_is_added_and_one_of_the_same_level_replaces() {
        let text = "# A\n\none\n\n## B\n\ntwo\n\n### C\n\nthree\n\n## D `x` \\_y\n\nfour\n\nE\n=\n\nfive";
        assert_eq!(path(text, "one"), ["A"]);
        assert_eq!(path(text, "three"), ["A", "B", "C"]);
        assert_eq!(path(text, "four"), ["A", "D x _y"]);
        assert_eq!(path(text, "## D"), ["A", "D x _y"]);
        assert_eq!(path(text, "five"), ["E"]);
    }

    #[test]
    fn a_hash_in_a_fenced_block_or_front_matter_is_no_heading() {
        let text = "---\ntitle: x\n---\n\n# A\n\n```sh\n# not one\n```\n\nend";
        assert_eq!(path(text, "end"), ["A"]);
        assert_eq!(read(text).title(), Some("A"));
    }

    #[test]
    fn blocks_begin_outside_of_fences_and_lists() {
        let text = "para\n\n```\na\n\nb\n```\n\n- x\n\n- y\n\nlast";
        let outline = read(text);
        for (at, begins) in [("para", true), ("```", true), ("b\n", false), ("- y", false), ("last", true)] {
            assert_eq!(outline.begins_block(text.find(at).unwrap()), begins, "{at}");
        }
    }

    #[test]
    fn deep_nesting_is_read_in_linear_time() {
        for unit in [">", "- ", "[", "*a ", "1. ", "* ", "> - "] {
            // Blank lines belong to all lists that are open.
            read(&format!("{}\n{}", unit.repeat(100_000), "\n".repeat(100_000)));
        }
    }
}
