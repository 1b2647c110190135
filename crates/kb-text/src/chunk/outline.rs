//! Finds the headings of a Markdown text, and the places where its blocks begin. In source code the blocks
//! are definitions.

use super::containers::shallow;
use kb_types::error::Result;
use kb_types::{Bounds, Mark, Marked, sizes};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The structure of a Markdown text, in byte offsets.
#[derive(Debug, Default)]
pub struct Outline {
    /// Its headings.
    pub marks: Vec<Marked>,
    /// Starts of the outermost blocks. A part of the text that begins at such a place parses as it does
    /// within the whole text.
    blocks: Vec<usize>,
    /// Where definitions of source code begin and end, and their levels.
    pub definitions: Vec<(usize, usize)>,
}

/// How many bytes of a text are parsed at once, and the most where no block ends.
const PART: usize = 512 * 1024;
const LONGEST_PART: usize = 2 * 1024 * 1024;
/// The work counted for an event of the parser, in bytes.
const EVENT: usize = 8;

impl Outline {
    /// The outline of source code, if a text has marks of it.
    pub fn of_definitions(marks: &[Marked]) -> Option<Outline> {
        let mut definitions: Vec<(usize, usize)> = Vec::new();
        for marked in marks {
            let Mark::Definition { level, .. } = marked.mark else { continue };
            match definitions.last_mut() {
                Some((offset, outer)) if *offset == marked.offset => *outer = level.min(*outer),
                _ => definitions.push((marked.offset, level)),
            }
        }
        let blocks = definitions.iter().map(|(offset, _)| *offset).collect();
        (!definitions.is_empty()).then_some(Outline { blocks, definitions, ..Outline::default() })
    }

    /// Reads the outline of `text` in linear time. Errors: [`kb_types::error::Error::Limit`].
    ///
    /// A long text is read in parts that begin where a block begins, because the parser cannot be stopped and
    /// needs up to a hundred bytes of memory for each byte of text.
    pub fn read(text: &str, bounds: &Bounds) -> Result<Outline> {
        let mut outline = Outline::default();
        let (mut from, mut width) = (0, PART);
        loop {
            let end = text.floor_char_boundary(from + width);
            // At the end of a line, if the part has one.
            let end = match text[from..end].rfind('\n') {
                Some(at) if end < text.len() => from + at + 1,
                _ => end,
            };
            bounds.spend(end - from)?;
            // Done for each part, because a part that begins inside a line may begin with any number of
            // containers.
            let part = Outline::read_part(&shallow(&text[from..end]), from, bounds)?;
            // The part's first block does not count. It may begin after its indentation, which would be no
            // progress.
            let last = part.blocks.last().copied().filter(|last| *last - from >= width / 8);
            from = match last {
                _ if end == text.len() => end,
                Some(last) => last,
                // A block that does not end in the part is read again in the longest part, and is split if it
                // is longer.
                None if width < LONGEST_PART => {
                    width = LONGEST_PART;
                    continue;
                }
                None => end,
            };
            width = PART;
            outline.blocks.extend(part.blocks.into_iter().filter(|block| *block < from));
            outline.marks.extend(part.marks.into_iter().filter(|marked| marked.offset < from));
            if from == text.len() {
                return Ok(outline);
            }
        }
    }

    /// The outline of a part of a text that begins at `from`.
    fn read_part(text: &str, from: usize, bounds: &Bounds) -> Result<Outline> {
        let mut outline = Outline::default();
        let mut depth = 0usize;
        let mut open: Option<(usize, usize, String)> = None;
        // Front matter between lines of --- would otherwise parse as a heading.
        let front_matter = match from {
            0 => Options::ENABLE_YAML_STYLE_METADATA_BLOCKS,
            _ => Options::empty(),
        };
        let options = front_matter | Options::ENABLE_TABLES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            bounds.spend(EVENT)?;
            match event {
                Event::Start(tag) => {
                    if depth == 0 {
                        outline.blocks.push(from + range.start);
                    }
                    depth += 1;
                    if let Tag::Heading { level, .. } = tag {
                        open = Some((from + range.start, level as usize, String::new()));
                    }
                }
                Event::End(tag) => {
                    depth = depth.saturating_sub(1);
                    if matches!(tag, TagEnd::Heading(_))
                        && let Some((offset, level, title)) = open.take()
                    {
                        let title = sizes::cut(&title, sizes::HEADING).trim().to_string();
                        outline.marks.push(Marked { offset, mark: Mark::Heading { level, title } });
                    }
                }
                Event::Text(s) | Event::Code(s) => {
                    if let Some((.., title)) = &mut open {
                        title.push_str(&s);
                    }
                }
                Event::SoftBreak | Event::HardBreak => {
                    if let Some((.., title)) = &mut open {
                        title.push(' ');
                    }
                }
                Event::Rule if depth == 0 => outline.blocks.push(from + range.start),
                _ => {}
            }
        }
        Ok(outline)
    }

    /// The title of the first heading before byte `end` that has one.
    pub fn title(&self, end: usize) -> Option<&str> {
        let beginning = self.marks.iter().take_while(|marked| marked.offset < end);
        let titles = beginning.filter_map(|marked| match &marked.mark {
            Mark::Heading { title, .. } => Some(title.as_str()),
            _ => None,
        });
        titles.into_iter().find(|title| !title.is_empty())
    }

    /// Whether it says where blocks begin.
    pub fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Whether an outermost block begins at `offset`.
    pub fn begins_block(&self, offset: usize) -> bool {
        self.blocks.binary_search(&offset).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kb_types::marks::Walk;

    fn read(text: &str) -> Outline {
        Outline::read(text, &Bounds::none()).unwrap()
    }

    fn path(text: &str, at: &str) -> Vec<String> {
        let at = text.find(at).unwrap();
        Walk::new(&read(text).marks).locate(at, at).headings
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
    fn a_hash_in_a_fenced_block_or_front_matter_is_not_a_heading() {
        let text = "---\ntitle: x\n---\n\n# A\n\n```sh\n# not one\n```\n\nend";
        assert_eq!(path(text, "end"), ["A"]);
        assert_eq!(read(text).title(usize::MAX), Some("A"));
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
    fn a_long_text_has_the_structure_of_its_parts() {
        let part = "# One\n\nwords\n\n```\n# no\n\n---\n```\n\n---\n\ntwo\n---\n\n- a\n\n- b\n\n";
        let (one, text) = (read(part), part.repeat(3 * PART / part.len()));
        let long = read(&text);
        for i in 0..text.len() / part.len() {
            for (at, block) in one.blocks.iter().enumerate() {
                assert_eq!(long.blocks[i * one.blocks.len() + at], i * part.len() + block);
            }
            let expected = Marked { offset: i * part.len() + one.marks[1].offset, ..one.marks[1].clone() };
            assert_eq!(long.marks[2 * i + 1], expected);
        }
        assert_eq!(long.marks.len(), text.len() / part.len() * 2);
        // One long block, line or word is split somewhere and makes no heading.
        for unit in ["a line\n", "a word ", "["] {
            let outline = read(&format!("# A\n\n{}", unit.repeat(2 * LONGEST_PART / unit.len())));
            assert_eq!(outline.marks.len(), 1, "{unit}");
        }
    }

    #[test]
    fn a_block_longer_than_a_part_is_read_in_linear_time() {
        // Indented code begins after its indentation.
        for unit in ["    a = b\n\n", "> a\n", "- a\n\n"] {
            let text = unit.repeat(2 * PART / unit.len());
            let bounds = Bounds::none();
            Outline::read(&text, &bounds).unwrap();
            assert!(
                bounds.spent() < 40 * text.len() as u64,
                "{unit:?}: {}",
                bounds.spent() / text.len() as u64
            );
        }
    }

    #[test]
    fn deep_nesting_is_read_in_linear_time() {
        for unit in [">", "- ", "[", "*a ", "1. ", "* ", "> - "] {
            // Blank lines belong to all open lists.
            let text = format!("{}\n{}", unit.repeat(100_000), "\n".repeat(100_000));
            let bounds = Bounds::none();
            Outline::read(&text, &bounds).unwrap();
            assert!(bounds.spent() < 40 * text.len() as u64, "{unit:?}: {}", bounds.spent());
        }
    }

    #[test]
    fn a_part_that_begins_inside_a_line_nests_no_deeper() {
        // Every blank line of the code block would visit all lists that the rest of the line opens.
        let line = "1. ".repeat((LONGEST_PART + PART / 2) / 3);
        read(&format!("{line}```\n{}", "\n".repeat(PART)));
    }
}
