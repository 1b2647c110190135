//! AsciiDoc, as far as a reader needs it.
//!
//! Read are the header, sections, paragraphs, lists, admonitions, delimited blocks, tables whose rows are
//! lines or whose cells are lines, links, references to attributes and emphasis. Comments, attributes of
//! blocks, images, includes, conditions and raw output are left out. Not done: cells that span columns or
//! have a format, and lists that continue in blocks keep their text, but not their level.

use super::Format;
use super::restructured::unescaped;
use crate::charset;
use crate::sections::{Sections, escape};
use kb_types::extraction::{Extraction, Fault, File};
use serde_json::{Map, Value};
use std::collections::HashMap;

pub const ASCIIDOC: Format = Format {
    content_types: &["text/asciidoc", "text/x-asciidoc"],
    extensions: &["adoc", "asciidoc"],
    is_text: true,
    read,
};

/// The most levels of a list, and of blocks in blocks.
const DEPTH: usize = 5;
/// The most bytes of an attribute's value that a reference is replaced with.
const LONGEST_VALUE: usize = 1_000;
const ADMONITIONS: [&str; 5] = ["NOTE: ", "TIP: ", "IMPORTANT: ", "WARNING: ", "CAUTION: "];

fn read(file: &File) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let lines: Vec<&str> = decoded.text.lines().map(str::trim_end).collect();
    let mut reader = Reader { most: 8 * decoded.text.len(), ..Reader::default() };
    let start = reader.header(&lines);
    reader.blocks(&lines[start..], 0);
    let mut sections = Sections::default();
    sections.push_html(&reader.html)?;
    let mut metadata = decoded.metadata();
    metadata.extend(reader.metadata);
    Ok(Extraction {
        text_type: "text/markdown".into(),
        text: sections.text,
        title: reader.title,
        metadata,
        ..Extraction::default()
    })
}

/// The level of a heading that is underlined, as older files have it: the lines are about as long as one
/// another, or else the second begins a block.
fn underlined(lines: &[&str]) -> Option<usize> {
    let [title, line, ..] = lines else { return None };
    let mark = line.chars().next()?;
    let level = "=-~^+".find(mark)? + 1;
    let is_line = line.len() > 2 && line.chars().all(|c| c == mark);
    let is_title = !title.starts_with(['.', ' ']) && title.contains(char::is_alphanumeric);
    (is_line && is_title && title.chars().count().abs_diff(line.len()) < 2).then_some(level)
}

#[derive(Default)]
struct Reader<'a> {
    html: String,
    title: Option<String>,
    metadata: Map<String, Value>,
    attributes: HashMap<&'a str, &'a str>,
    /// The lists that are open, by the marks of their items.
    lists: Vec<&'a str>,
    /// How long the HTML may become by references to attributes, which a file may have any number of.
    most: usize,
}

impl<'a> Reader<'a> {
    /// Reads the title, author, revision and attributes. Returns how many lines they have.
    fn header(&mut self, lines: &[&'a str]) -> usize {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let underlined = (underlined(&lines[at..]) == Some(1)).then_some(*line);
            if let Some(title) = line.strip_prefix("= ").or(underlined).filter(|_| self.title.is_none()) {
                at += usize::from(underlined.is_some());
                self.html.push_str("<h1>");
                self.inline(title.trim());
                self.title = Some(unescaped(&self.html["<h1>".len()..]));
                self.html.push_str("</h1>");
                // The author, and the revision.
                for key in ["author", "revision"] {
                    let next = lines.get(at + 1).filter(|line| {
                        line.starts_with(|c: char| c.is_alphanumeric()) && !line.contains("::")
                    });
                    let Some(next) = next else { break };
                    self.metadata.insert(key.into(), (*next).into());
                    at += 1;
                }
            } else if let Some((name, value)) = attribute(line) {
                self.attributes.insert(name, value);
                let key = match name {
                    "author" | "keywords" => name,
                    "lang" => "language",
                    "revdate" => "modified",
                    "description" => "subject",
                    _ => "",
                };
                if !key.is_empty() && !value.is_empty() {
                    self.metadata.insert(key.into(), value.into());
                }
            } else if !line.is_empty() && !line.starts_with("//") {
                break;
            }
            at += 1;
        }
        at
    }

    fn blocks(&mut self, lines: &[&'a str], depth: usize) {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += self.block(line, &lines[at..], depth).max(1);
        }
        self.close_lists(0);
    }

    /// Reads the block that begins with `line`, the first of `rest`. Returns how many lines it has.
    fn block(&mut self, line: &'a str, rest: &[&'a str], depth: usize) -> usize {
        if line.is_empty() || line == "+" || line == "<<<" || is_left_out(line) {
            return 1;
        }
        if let Some((name, value)) = attribute(line) {
            self.attributes.insert(name, value);
            return 1;
        }
        if let Some(level) = underlined(rest) {
            self.heading(level, line);
            return 2;
        }
        if let Some((fence, end)) = fence(line) {
            return self.delimited(fence, end, rest, depth);
        }
        let level = line.bytes().take_while(|byte| *byte == b'=').count();
        if (1..=6).contains(&level) && line[level..].starts_with(' ') {
            self.heading(level, line[level..].trim());
            return 1;
        }
        if line == "'''" {
            self.close_lists(0);
            self.html.push_str("<hr>");
            return 1;
        }
        // The title of a block.
        if let Some(title) =
            line.strip_prefix('.').filter(|title| title.starts_with(|c: char| c.is_alphanumeric()))
        {
            self.paragraph("<strong>", title, "</strong>");
            return 1;
        }
        if let Some((mark, text)) = item(line) {
            return self.item(mark, text, rest);
        }
        self.text(line, rest)
    }

    fn heading(&mut self, level: usize, title: &str) {
        self.close_lists(0);
        self.html.push_str(&format!("<h{level}>"));
        self.inline(title);
        self.html.push_str(&format!("</h{level}>"));
    }

    /// A paragraph, literal lines, or a term with its definition.
    fn text(&mut self, line: &'a str, rest: &[&'a str]) -> usize {
        let read = paragraph(rest);
        self.close_lists(0);
        if line.starts_with(' ') {
            self.code(&rest[..read]);
            return read;
        }
        if let Some((term, definition)) = term(line) {
            self.paragraph("<strong>", term, "</strong>");
            if !definition.trim().is_empty() {
                let more = rest[1..read].iter().map(|line| line.trim());
                let text = [definition.trim()].into_iter().chain(more).collect::<Vec<_>>().join(" ");
                self.paragraph("", &text, "");
                return read;
            }
            return 1;
        }
        let text = rest[..read].join("\n");
        let label = ADMONITIONS.iter().find(|label| text.starts_with(**label));
        match label {
            Some(label) => {
                self.html.push_str("<p><strong>");
                self.html.push_str(label.trim());
                self.html.push_str("</strong> ");
                self.inline(&text[label.len()..]);
                self.html.push_str("</p>");
            }
            None => self.paragraph("", &text, ""),
        }
        read
    }

    /// An item of a list. An item of another mark begins a list in the list, or ends one.
    fn item(&mut self, mark: &'a str, text: &'a str, rest: &[&'a str]) -> usize {
        let kind = |mark: &str| if mark.starts_with(['*', '-']) { "ul" } else { "ol" };
        match self.lists.iter().position(|open| *open == mark) {
            Some(open) => self.close_lists(open + 1),
            None if self.lists.len() < DEPTH => {
                self.html.push_str(&format!("<{}>", kind(mark)));
                self.lists.push(mark);
            }
            None => {}
        }
        let read = paragraph(rest);
        let more = rest[1..read].iter().map(|line| line.trim());
        let text = [text.trim()].into_iter().chain(more).collect::<Vec<_>>().join(" ");
        self.html.push_str("<li>");
        // A box to be ticked.
        self.inline(
            text.strip_prefix("[*] ")
                .or(text.strip_prefix("[x] "))
                .or(text.strip_prefix("[ ] "))
                .unwrap_or(&text),
        );
        self.html.push_str("</li>");
        read
    }

    fn close_lists(&mut self, kept: usize) {
        while self.lists.len() > kept {
            if let Some(mark) = self.lists.pop() {
                self.html.push_str(if mark.starts_with(['*', '-']) { "</ul>" } else { "</ol>" });
            }
        }
    }

    /// A block between two lines that are the same. Returns how many lines it has.
    fn delimited(&mut self, fence: Fence, end: &str, rest: &[&'a str], depth: usize) -> usize {
        self.close_lists(0);
        let close = rest.iter().skip(1).position(|line| *line == end);
        let inner = match close {
            Some(close) => &rest[1..1 + close],
            // A fence that is not closed is a line of text.
            None => {
                self.paragraph("", rest.first().copied().unwrap_or_default(), "");
                return 1;
            }
        };
        match fence {
            Fence::LeftOut => {}
            Fence::Code => self.code(inner),
            Fence::Table => self.table(inner),
            Fence::Blocks if depth < DEPTH => self.blocks(inner, depth + 1),
            Fence::Blocks => self.code(inner),
        }
        inner.len() + 2
    }

    /// Rows are lines of cells, or, where lines have one cell, the columns are as many as in the first row.
    fn table(&mut self, lines: &[&'a str]) {
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut columns = 0;
        let mut after_blank = false;
        for line in lines.iter().filter(|line| !line.starts_with("//")) {
            if line.is_empty() {
                after_blank = true;
                continue;
            }
            // Before the first | is the rest of the cell before, or how a cell is formatted.
            let (before, cells) = line.split_once('|').unwrap_or((line, ""));
            if !line.contains('|') || before.contains(' ') {
                if let Some(cell) = rows.last_mut().and_then(|row| row.last_mut()) {
                    cell.push(' ');
                    cell.push_str(before.trim());
                }
                if !line.contains('|') {
                    continue;
                }
            }
            let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_string()).collect();
            let is_new = rows.last().is_none_or(|row| {
                if columns == 0 {
                    after_blank || cells.len() > 1 || row.len() > 1
                } else {
                    row.len() >= columns
                }
            });
            if is_new {
                if columns == 0
                    && let Some(row) = rows.last()
                {
                    columns = row.len();
                }
                rows.push(cells);
            } else if let Some(row) = rows.last_mut() {
                row.extend(cells);
            }
            after_blank = false;
        }
        self.html.push_str("<table>");
        for (number, row) in rows.iter().enumerate() {
            let cell = if number == 0 { "th" } else { "td" };
            self.html.push_str("<tr>");
            for text in row {
                self.html.push_str(&format!("<{cell}>"));
                self.inline(text);
                self.html.push_str(&format!("</{cell}>"));
            }
            self.html.push_str("</tr>");
        }
        self.html.push_str("</table>");
    }

    fn code(&mut self, lines: &[&str]) {
        if lines.iter().any(|line| !line.is_empty()) {
            self.html.push_str("<pre><code>");
            escape(&mut self.html, &lines.join("\n"));
            self.html.push_str("</code></pre>");
        }
    }

    fn paragraph(&mut self, open: &str, text: &str, close: &str) {
        self.html.push_str("<p>");
        self.html.push_str(open);
        self.inline(text);
        self.html.push_str(close);
        self.html.push_str("</p>");
    }

    /// Adds text without marks of emphasis and code. Of a link its label is text.
    fn inline(&mut self, text: &str) {
        let mut rest = text;
        // A mark that does not end does not begin, either, and is looked for once.
        let mut ends = [true; 8];
        let mut before = ' ';
        let marks = ["**", "*", "__", "_", "``", "`", "+", "#"];
        while let Some(c) = rest.chars().next() {
            let mut read = c.len_utf8();
            let begins = !before.is_alphanumeric();
            let is_mark = |mark: &&str| rest.starts_with(mark) && (begins || mark.len() == 2);
            if let Some(number) = marks.iter().position(is_mark) {
                let mark = marks[number];
                let inner = &rest[mark.len()..];
                let end = ends[number].then(|| inner.find(mark)).flatten();
                ends[number] = end.is_some();
                let closes = |end: &usize| {
                    let after = inner[end + mark.len()..].chars().next();
                    let is_word = mark.len() == 2 || after.is_none_or(|c| !c.is_alphanumeric());
                    *end > 0 && !inner.starts_with(' ') && is_word
                };
                match end.filter(closes) {
                    Some(end) => {
                        escape(&mut self.html, &inner[..end]);
                        read = end + 2 * mark.len();
                    }
                    None => escape(&mut self.html, &rest[..read]),
                }
            } else if let Some((label, length)) = begins.then(|| macro_of(rest)).flatten() {
                escape(&mut self.html, label);
                read = length;
            } else if let Some((name, value)) = self.reference(rest) {
                escape(&mut self.html, value);
                read = name + 2;
            } else if c == '\\' && rest[1..].starts_with(|c: char| c.is_ascii_punctuation()) {
                escape(&mut self.html, &rest[1..2]);
                read = 2;
            } else if rest.starts_with(" +\n") {
                self.html.push_str("<br>");
                read = 3;
            } else {
                escape(&mut self.html, &rest[..read]);
            }
            before = rest[..read].chars().next_back().unwrap_or(c);
            rest = &rest[read..];
        }
    }

    /// The length of the name and the value of an attribute in braces.
    fn reference(&self, text: &str) -> Option<(usize, &'a str)> {
        let rest = text.strip_prefix('{').filter(|_| self.html.len() < self.most)?;
        let length = rest.bytes().take(60).position(|byte| byte == b'}')?;
        let value = *self.attributes.get(rest.get(..length)?)?;
        (value.len() <= LONGEST_VALUE).then_some((length, value))
    }
}

#[derive(Debug, Clone, Copy)]
enum Fence {
    LeftOut,
    Code,
    Table,
    Blocks,
}

/// What is between a line and its like.
fn fence(line: &str) -> Option<(Fence, &str)> {
    if line.starts_with("```") {
        return Some((Fence::Code, "```"));
    }
    if line == "--" {
        return Some((Fence::Blocks, line));
    }
    if let "|===" | ",===" | ":===" = line {
        return Some((Fence::Table, line));
    }
    let first = line.chars().next()?;
    if line.len() < 4 || !line.chars().all(|c| c == first) {
        return None;
    }
    let fence = match first {
        '/' | '+' => Fence::LeftOut,
        '-' | '.' => Fence::Code,
        '=' | '*' | '_' => Fence::Blocks,
        _ => return None,
    };
    Some((fence, line))
}

/// Comments, attributes of blocks, and macros that have no text.
fn is_left_out(line: &str) -> bool {
    const MACROS: [&str; 10] = [
        "image::",
        "include::",
        "toc::",
        "ifdef::",
        "ifndef::",
        "ifeval::",
        "endif::",
        "video::",
        "audio::",
        "icon::",
    ];
    let is_comment = line.starts_with("//") && !line.starts_with("///");
    let is_attributes = line.starts_with('[') && line.ends_with(']');
    is_comment || is_attributes || MACROS.iter().any(|name| line.starts_with(name))
}

/// An attribute, as in `:name: value`.
fn attribute(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix(':')?.split_once(':')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_!".contains(&byte));
    (is_name && (value.is_empty() || value.starts_with(' '))).then(|| (name, value.trim()))
}

/// The mark of an item, and its text.
fn item(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (mark, text) = line.split_once(' ')?;
    let first = mark.chars().next()?;
    let is_bullet =
        ['*', '.'].contains(&first) && mark.len() <= 5 && mark.chars().all(|c| c == first) || mark == "-";
    let number = mark.strip_suffix('.').or(mark.strip_prefix('<').and_then(|mark| mark.strip_suffix('>')));
    let is_number = number.is_some_and(|number| {
        !number.is_empty()
            && number.len() < 5
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    });
    // Items with numbers of their own are of one list.
    (is_bullet || is_number).then_some((if is_bullet { mark } else { "1." }, text))
}

/// A term, and the beginning of its definition.
fn term(line: &str) -> Option<(&str, &str)> {
    let (term, definition) = line.split_once("::")?;
    let is_term = !term.is_empty() && !term.ends_with(':');
    (is_term && (definition.is_empty() || definition.starts_with(' '))).then_some((term, definition))
}

/// How many lines belong to a paragraph or item: up to a blank line, the next item or term, or a block.
fn paragraph(lines: &[&str]) -> usize {
    let is_end = |line: &&str| {
        line.is_empty()
            || *line == "+"
            || item(line).is_some()
            || term(line).is_some()
            || fence(line).is_some()
            || is_left_out(line)
    };
    lines.iter().skip(1).position(is_end).map_or(lines.len(), |end| end + 1)
}

/// A link, reference or other macro at the beginning of a text: its label and its length.
fn macro_of(text: &str) -> Option<(&str, usize)> {
    const LONGEST: usize = 2_000;
    let window = &text[..text.floor_char_boundary(LONGEST)];
    if let Some(inner) = window.strip_prefix("<<") {
        let end = inner.find(">>")?;
        let label = inner[..end].split_once(',').map_or(&inner[..end], |(_, label)| label.trim());
        return Some((label, end + 4));
    }
    if let Some(inner) = window.strip_prefix("[[") {
        return Some(("", inner.find("]]")? + 4));
    }
    let names = [
        "https://",
        "http://",
        "mailto:",
        "link:",
        "xref:",
        "footnote:",
        "image:",
        "kbd:",
        "btn:",
        "menu:",
        "pass:",
        "indexterm:",
    ];
    let name = names.into_iter().find(|name| window.starts_with(name))?;
    let is_link = matches!(name, "https://" | "http://" | "mailto:");
    let end = window
        .find(|c: char| c.is_whitespace() || c == '[' || is_link && "<>)\"".contains(c))
        .unwrap_or(window.len());
    let target = if is_link { &window[..end] } else { &window[name.len()..end] };
    if !window[end..].starts_with('[') {
        let target = target.trim_end_matches(['.', ',', ';', ':']);
        return (is_link && target.len() > name.len()).then_some((target, target.len()));
    }
    let close = window[end..].find(']')?;
    let inside = window[end + 1..end + close].trim_matches('"');
    let length = end + close + 1;
    // Attributes follow the label.
    let label = if is_link || name == "link:" {
        inside.split(",role=").next().unwrap_or(inside).trim_end_matches('^')
    } else {
        inside
    };
    let label = if label.is_empty() && name != "image:" && name != "indexterm:" { target } else { label };
    Some((label, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Extraction {
        let file =
            File { name: Some("a.adoc".into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file).unwrap()
    }

    #[test]
    fn headings_may_be_underlined() {
        let text = "git-add(1)\n==========\nAnn Author\n\nNAME\n----\ngit-add - Add\n\nMore é\n~~~~~~\n\n.Code\n-----\nNAME\n----\n-----\n";
        let file =
            File { name: Some("a.adoc".into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        let found = crate::extract(&file).unwrap();
        assert_eq!(found.title.as_deref(), Some("git-add(1)"));
        assert_eq!(found.metadata["author"], "Ann Author");
        let text = found.text;
        assert!(text.starts_with("# git-add(1)\n\n## NAME\n\ngit-add - Add\n\n### More é"), "{text}");
        assert!(text.contains("```\nNAME\n----\n```"), "{text}");
    }

    #[test]
    fn the_header_is_metadata_and_sections_are_headings() {
        let found = of(
            "// comment\n= The _Guide_\nAnn Lee <a@x.org>\nv1.0, 2024-01-01\n:toc:\n:lang: de\n:product: Kb\n\nAbout {product} and {unknown}.\n\n== Install\n\n=== Deep\ntext\n",
        );
        assert_eq!(found.text, "# The Guide\n\nAbout Kb and {unknown}.\n\n## Install\n\n### Deep\n\ntext");
        assert_eq!(found.metadata["author"], "Ann Lee <a@x.org>");
        assert_eq!(found.metadata["language"], "de");
        assert_eq!(found.title.as_deref(), Some("The Guide"));
    }

    #[test]
    fn blocks_and_lists_keep_their_text() {
        let adoc = "* one\ngoes on\n** deep\n* two\n\n. first\n. second\n\n[source,sh]\n.Title\n----\nls <x>\n----\n\n////\nhidden\n////\n\nNOTE: Take care.\n\n====\nExample *text*.\n====\n\nterm:: What it is.\n\nimage::x.png[]\n\n|===\n|Name |Price\n\n|Tea\n|1 euro\n|Cake |2\n|===\n\n----\nnot closed";
        let text = of(adoc).text;
        for part in [
            "one goes on",
            "deep",
            "1. first",
            "2. second",
            "ls <x>",
            "Title",
            "NOTE: Take care.",
            "Example text.",
            "term",
            "What it is.",
            "| Tea | 1 euro |",
            "| Cake | 2 |",
            "not closed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for part in ["hidden", "x.png", "source,sh"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn links_and_emphasis_are_read() {
        let adoc = "See https://x.org/a[the site], https://y.org., <<id,there>>, xref:b.adoc[here], link:https://z.org[zed], `code` and *bold* a_b_c kbd:[Ctrl].";
        assert_eq!(
            of(adoc).text,
            "See the site, https://y.org., there, here, zed, code and bold a_b_c Ctrl."
        );
    }

    #[test]
    fn hostile_files_are_read_to_the_end() {
        for unit in
            ["* ", "*a ", "<<", "[[", "https://[", "----\na\n", "====\n", "|===\n|a\n", "{a", "a::\n", "._ "]
        {
            let text = unit.repeat(20_000);
            let file = File {
                name: Some("a.adoc".into()),
                bytes: text.into(),
                max_text: usize::MAX,
                ..File::default()
            };
            let _ = crate::extract(&file);
        }
    }
}
