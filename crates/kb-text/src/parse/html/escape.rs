//! Adds escapes of Markdown only where a reader would otherwise see another text than in a browser, because
//! in text that is embedded and searched an escape such as pg\_class is noise.
//!
//! Before an HTML document is converted, the characters of its texts that have a meaning in Markdown are
//! disguised ([`super::disguise`]). In the Markdown of the converter, such characters that are not disguised
//! are structure. [`reveal`] then finds which characters of the text would be parsed as structure in their
//! place (CommonMark 0.31), and escapes them.

use super::disguise::{NO_BREAK_SPACE, is_space, plain, section_end_level};
use crate::parse::html::markdown_marks::{BlockKind, Leaf};
use kb_types::{Mark, Marked};

/// The final Markdown, and the ends of sections in it. No line ends with white space, and no two adjacent
/// lines are blank.
pub fn reveal(markdown: &str) -> (String, Vec<Marked>) {
    let mut writer = Writer::default();
    let mut leaf: Vec<Line> = Vec::new();
    // The length of the fence of the current code block.
    let mut fence: Option<usize> = None;
    for source in markdown.lines() {
        let mut level: Option<usize> = None;
        let unmarked: String;
        let mut line = source;
        if source.contains(|c: char| section_end_level(c).is_some()) {
            level = source.chars().filter_map(section_end_level).min();
            unmarked = source.chars().filter(|c| section_end_level(*c).is_none()).collect();
            line = &unmarked;
        }
        if let Some(length) = fence {
            let closes = line.trim_matches([' ', '>']);
            if closes.len() >= length && closes.bytes().all(|byte| byte == b'`') {
                fence = None;
            }
            writer.end_section(level);
            writer.line(&line.chars().map(plain).collect::<String>());
            continue;
        }
        let parsed = Line::parse(line, level);
        let stands_alone = parsed.is_blank() || matches!(parsed.kind, BlockKind::Heading | BlockKind::Fence);
        let is_of_another_kind = leaf.last().is_some_and(|last| last.kind != parsed.kind);
        if stands_alone || parsed.is_item || is_of_another_kind {
            writer.leaf(&std::mem::take(&mut leaf));
        }
        if parsed.kind == BlockKind::Fence {
            fence = Some(parsed.content.len());
        }
        leaf.push(parsed);
        if stands_alone {
            writer.leaf(&std::mem::take(&mut leaf));
        }
    }
    writer.leaf(&leaf);
    writer.finish()
}

/// A line of Markdown outside of code.
#[derive(Debug)]
struct Line {
    /// The marks of quotes, list items and headings, with white space.
    prefix: String,
    content: String,
    kind: BlockKind,
    /// Whether a list item begins here.
    is_item: bool,
    /// Headings of this level and of deeper levels end before the line.
    level: Option<usize>,
}

impl Line {
    fn parse(line: &str, level: Option<usize>) -> Line {
        let (mut at, mut is_item, mut kind) = (0, false, BlockKind::Text);
        loop {
            let rest = &line[at..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let is_marker = |mark: &str| mark.is_empty() || mark.starts_with(' ');
            match rest.chars().next() {
                Some(' ' | '>') => at += 1,
                Some(NO_BREAK_SPACE) => at += NO_BREAK_SPACE.len_utf8(),
                Some('-') if is_marker(&rest[1..]) => (at, is_item) = (at + 1, true),
                Some(_) if digits > 0 && rest[digits..].strip_prefix('.').is_some_and(is_marker) => {
                    (at, is_item) = (at + digits + 1, true)
                }
                Some('#') => {
                    kind = BlockKind::Heading;
                    at += rest.len() - rest.trim_start_matches('#').len();
                    at += usize::from(line[at..].starts_with(' '));
                    break;
                }
                Some('|') => {
                    kind = BlockKind::Row;
                    break;
                }
                Some('`') => {
                    kind = BlockKind::Fence;
                    break;
                }
                _ => break,
            }
        }
        let prefix = line[..at].replace(NO_BREAK_SPACE, "");
        Line { prefix, content: line[at..].trim_end_matches(is_space).to_string(), kind, is_item, level }
    }

    fn is_blank(&self) -> bool {
        self.content.is_empty() && self.kind == BlockKind::Text
    }
}

#[derive(Debug, Default)]
struct Writer {
    text: String,
    ends: Vec<Marked>,
    blank_lines: usize,
}

impl Writer {
    fn end_section(&mut self, level: Option<usize>) {
        let title = String::new();
        let offset = self.text.len();
        self.ends.extend(level.map(|level| Marked { offset, mark: Mark::Heading { level, title } }));
    }

    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        self.blank_lines = if line.is_empty() { self.blank_lines + 1 } else { 0 };
        if self.blank_lines <= 1 && !(line.is_empty() && self.text.is_empty()) {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// Writes the lines of a paragraph, of a heading or of a table, or one other line.
    fn leaf(&mut self, lines: &[Line]) {
        if lines.is_empty() {
            return;
        }
        let contents: Vec<&str> = lines.iter().map(|line| line.content.as_str()).collect();
        let is_item = lines[0].prefix.contains('-');
        let is_quoted = lines[1..].iter().any(|line| line.prefix.contains('>'));
        let escaped = Leaf::new(&contents.join("\n"), lines[0].kind, is_quoted, is_item).escaped();
        for (line, content) in lines.iter().zip(escaped.split('\n')) {
            self.end_section(line.level);
            self.line(&format!("{}{content}", line.prefix));
        }
    }

    fn finish(mut self) -> (String, Vec<Marked>) {
        let length = self.text.trim_end().len();
        self.text.truncate(length);
        // White space before the first line has nothing to indent.
        let begins = length - self.text.trim_start().len();
        self.text.drain(..begins);
        for end in &mut self.ends {
            end.offset = end.offset.saturating_sub(begins).min(self.text.len());
        }
        (self.text, self.ends)
    }
}

#[cfg(test)]
#[path = "escape_tests.rs"]
mod tests;
