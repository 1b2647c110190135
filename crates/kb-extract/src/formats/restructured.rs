//! reStructuredText, as far as a reader needs it.
//!
//! Read are titles, paragraphs, lists, definitions, fields, literal blocks, quotations, line blocks, simple
//! and grid tables, directives, links, roles and substitutions. Comments, targets, and directives that have
//! no text of their own (images, includes, tables of contents, raw output) are left out; the content of any
//! other directive is text. Not done: cells that span columns or rows (such a table stays as it is written),
//! lists of options, and what a program makes of directives, such as the text of a function that Sphinx
//! documents.

use super::Format;
use crate::charset;
use crate::sections::{Sections, escape};
use kb_types::extraction::{Extraction, Fault, File};
use serde_json::{Map, Value};
use std::collections::HashMap;

pub const RST: Format = Format {
    content_types: &["text/x-rst", "text/prs.fallenstein.rst", "text/restructuredtext"],
    extensions: &["rst", "rest"],
    is_text: true,
    read,
};

/// How deep lists and quotations are read. What is deeper stays as it is written.
const DEPTH: usize = 12;
/// The most bytes of a link or substitution that a reference is replaced with.
const LONGEST_VALUE: usize = 1_000;

fn read(file: &File) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let text = decoded.text.replace('\t', "        ");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut reader = Reader::new(&lines, 8 * text.len());
    reader.blocks(&lines, 0);
    let mut sections = Sections::default();
    sections.push_html(&reader.html)?;
    let mut metadata = decoded.metadata();
    metadata.extend(reader.fields);
    Ok(Extraction {
        text_type: "text/markdown".into(),
        text: sections.text,
        title: reader.title,
        metadata,
        ..Extraction::default()
    })
}

struct Reader<'a> {
    html: String,
    title: Option<String>,
    /// The fields at the beginning of the file.
    fields: Map<String, Value>,
    /// The adornments of titles, in the order in which they came: the character, and whether it is above the
    /// title, too.
    adornments: Vec<(char, bool)>,
    substitutions: HashMap<&'a str, &'a str>,
    /// Whether only titles and fields have come so far.
    is_beginning: bool,
    /// How long the HTML may become by references, which a file may have any number of.
    most: usize,
}

impl<'a> Reader<'a> {
    fn new(lines: &[&'a str], most: usize) -> Reader<'a> {
        let mut substitutions = HashMap::new();
        for line in lines.iter().filter(|line| line.len() <= LONGEST_VALUE) {
            let Some(rest) = line.trim_start().strip_prefix(".. ") else { continue };
            if let Some((name, text)) =
                rest.strip_prefix('|').and_then(|rest| rest.split_once("| replace:: "))
            {
                substitutions.insert(name, text.trim());
            }
        }
        Reader {
            html: String::new(),
            title: None,
            fields: Map::new(),
            adornments: Vec::new(),
            substitutions,
            is_beginning: true,
            most,
        }
    }

    /// Reads blocks, whose lines have no indentation in common.
    fn blocks(&mut self, lines: &[&'a str], depth: usize) {
        if depth > DEPTH {
            self.code(lines);
            return;
        }
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let rest = &lines[at..];
            at += match line.is_empty() {
                true => 1,
                false => self.block(line, rest, depth).max(1),
            };
        }
    }

    /// Reads the block that begins with `line`, the first of `rest`. Returns how many lines it has.
    fn block(&mut self, line: &'a str, rest: &[&'a str], depth: usize) -> usize {
        if let Some(read) = self.heading(rest, depth) {
            return read;
        }
        if let Some(read) = self.field(line, rest, depth) {
            return read;
        }
        self.is_beginning = false;
        if line.starts_with(' ') {
            let read = indented(rest, 1);
            self.nested("blockquote", &rest[..read], depth);
            return read;
        }
        if line == ".." || line.starts_with(".. ") {
            return self.explicit(line, rest, depth);
        }
        if line.starts_with("__ ") {
            return 1;
        }
        if line.starts_with(">>> ") {
            let read = paragraph(rest);
            self.code(&rest[..read]);
            return read;
        }
        if line == "|" || line.starts_with("| ") {
            return self.line_block(rest);
        }
        if line.starts_with("+-") || is_rule(line) {
            return self.table(rest);
        }
        if bullet(line).is_some() || number(line, rest.get(1)).is_some() {
            return self.list(rest, depth);
        }
        self.text(rest, depth)
    }

    /// A title with a line below it, or above and below it.
    fn heading(&mut self, rest: &[&'a str], depth: usize) -> Option<usize> {
        if depth > 0 {
            return None;
        }
        let (first, second) = (rest.first()?, rest.get(1).copied().unwrap_or_default());
        let (title, adornment, read) = match (adornment(first), adornment(second)) {
            (Some(above), None) if !second.is_empty() => {
                let below = rest.get(2).filter(|below| adornment(below) == Some(above) && *below == first);
                below?;
                (second, (above, true), 3)
            }
            (None, Some(below)) if !first.starts_with(' ') => {
                let is_long = second.len() >= 4 || second.chars().count() >= first.chars().count();
                (*first, (below, false), is_long.then_some(2)?)
            }
            (Some(_), None) if first.len() >= 4 => {
                self.html.push_str("<hr>");
                return Some(1);
            }
            _ => return None,
        };
        let known = self.adornments.iter().position(|known| *known == adornment);
        let level = known.unwrap_or_else(|| {
            self.adornments.push(adornment);
            self.adornments.len() - 1
        });
        let level = (level + 1).min(6);
        let from = self.html.len();
        self.html.push_str(&format!("<h{level}>"));
        self.inline(title.trim());
        self.html.push_str(&format!("</h{level}>"));
        if self.title.is_none() {
            let title = &self.html[from + 4..self.html.len() - 5];
            self.title = Some(unescaped(title)).filter(|title| !title.is_empty());
        }
        Some(read)
    }

    /// A field such as `:Author: Me`. At the beginning of a file it is metadata.
    fn field(&mut self, line: &'a str, rest: &[&'a str], depth: usize) -> Option<usize> {
        let (name, value) = line.strip_prefix(':')?.split_once(':')?;
        if name.is_empty() || name.starts_with(' ') || !(value.is_empty() || value.starts_with(' ')) {
            return None;
        }
        let read = 1 + indented(&rest[1..], 1);
        if self.is_beginning && depth == 0 {
            let words = rest[1..read].iter().flat_map(|line| line.split_whitespace());
            let value = value.split_whitespace().chain(words).collect::<Vec<_>>().join(" ");
            let key: String = name.to_lowercase().replace([' ', '-'], "_");
            if !value.is_empty() {
                self.fields.insert(key, value.into());
            }
            return Some(read);
        }
        self.html.push_str("<p><strong>");
        self.inline(name);
        self.html.push_str("</strong>: ");
        self.inline(value.trim());
        self.html.push_str("</p>");
        self.nested("", &rest[1..read], depth);
        Some(read)
    }

    /// A directive, footnote, target, substitution or comment.
    fn explicit(&mut self, line: &'a str, rest: &[&'a str], depth: usize) -> usize {
        let read = 1 + indented(&rest[1..], 1);
        let body = &rest[1..read];
        let text = line.get(3..).unwrap_or_default();
        if text.starts_with('[')
            && let Some((label, note)) = text[1..].split_once("] ")
        {
            self.html.push_str("<p>[");
            self.inline(label.trim_start_matches('#'));
            self.html.push_str("] ");
            self.inline(note);
            self.html.push_str("</p>");
            self.nested("", body, depth);
        } else if !text.starts_with(['_', '|'])
            && let Some((name, argument)) = text.split_once("::")
            && !name.contains(' ')
            && !name.is_empty()
        {
            self.directive(name, argument.trim(), body, depth);
        }
        read
    }

    fn directive(&mut self, name: &str, argument: &'a str, body: &[&'a str], depth: usize) {
        // Options come first, up to a blank line.
        let is_option = |line: &&&str| line.trim_start().starts_with(':');
        let options = body.iter().take_while(is_option).count();
        let body = &body[options..];
        match name {
            "image" | "raw" | "include" | "toctree" | "contents" | "index" | "meta" | "default-role"
            | "highlight" | "sectionauthor" | "moduleauthor" | "codeauthor" | "currentmodule"
            | "literalinclude" | "role" | "default-domain" | "automodule" | "autoclass" | "autofunction"
            | "bibliography" | "sectnum" | "header" | "footer" | "tabularcolumns" => {}
            "code" | "code-block" | "sourcecode" | "parsed-literal" | "doctest" | "testcode"
            | "testoutput" | "prompt" | "math" | "productionlist" | "graphviz" | "csv-table" => {
                if !argument.is_empty() && matches!(name, "math" | "csv-table") {
                    self.code(&[argument]);
                }
                self.code(body);
            }
            _ => {
                // The usual label of an admonition, and what has changed in which version.
                let label = match name {
                    "note" | "warning" | "tip" | "important" | "caution" | "danger" | "attention"
                    | "error" | "hint" | "seealso" | "versionadded" | "versionchanged" | "deprecated"
                    | "todo" => name,
                    _ => "",
                };
                if !label.is_empty() || !argument.is_empty() && name != "figure" {
                    self.html.push_str("<p><strong>");
                    self.html.push_str(label);
                    self.html.push_str(if label.is_empty() { "" } else { ":</strong> <strong>" });
                    self.html.push_str("</strong> ");
                    self.inline(argument);
                    self.html.push_str("</p>");
                }
                self.nested("", body, depth);
            }
        }
    }

    fn line_block(&mut self, rest: &[&'a str]) -> usize {
        let read = rest.iter().take_while(|line| **line == "|" || line.starts_with("| ")).count();
        self.html.push_str("<p>");
        for line in &rest[..read] {
            self.inline(line[1..].trim());
            self.html.push_str("<br>");
        }
        self.html.push_str("</p>");
        read
    }

    /// The items of a list, with their content.
    fn list(&mut self, rest: &[&'a str], depth: usize) -> usize {
        let first = rest.first().copied().unwrap_or_default();
        let is_bullet = bullet(first).is_some();
        let (open, close) = if is_bullet { ("<ul>", "</ul>") } else { ("<ol>", "</ol>") };
        self.html.push_str(open);
        let mut at = 0;
        while let Some(line) = rest.get(at) {
            let marker = match is_bullet {
                true => bullet(line).filter(|_| line.chars().next() == first.chars().next()),
                false => number(line, rest.get(at + 1)),
            };
            let Some(marker) = marker else { break };
            let more = indented(&rest[at + 1..], 2.min(marker));
            self.html.push_str("<li>");
            let mut item = vec![line.get(marker..).unwrap_or_default().trim_start()];
            item.extend(dedented(&rest[at + 1..at + 1 + more]));
            self.blocks(&item, depth + 1);
            self.html.push_str("</li>");
            at += 1 + more;
            // Blank lines between items.
            while rest.get(at).is_some_and(|line| line.is_empty()) {
                at += 1;
            }
        }
        self.html.push_str(close);
        at
    }

    /// A table, or what looks like the beginning of one. Returns how many lines it has.
    fn table(&mut self, rest: &[&'a str]) -> usize {
        let is_grid = rest.first().is_some_and(|line| line.starts_with('+'));
        let read = if is_grid {
            rest.iter().take_while(|line| line.starts_with(['+', '|'])).count()
        } else {
            simple_table(rest)
        };
        let rows = if is_grid { grid_rows(&rest[..read]) } else { simple_rows(&rest[..read]) };
        match rows {
            Some((rows, headers)) => {
                self.html.push_str("<table>");
                for (number, row) in rows.iter().enumerate() {
                    let cell = if number < headers { "th" } else { "td" };
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
            None => self.code(&rest[..read]),
        }
        read
    }

    /// A paragraph, with the literal block that follows it, or a term with its definition.
    fn text(&mut self, rest: &[&'a str], depth: usize) -> usize {
        let read = paragraph(rest);
        let next = indented(&rest[read..], 1);
        let is_term = read == 1 && rest.get(1).is_some_and(|line| line.starts_with(' '));
        let text = rest[..read].join(" ");
        let text = text.trim();
        let (shown, is_literal) = match text.strip_suffix("::") {
            Some("") => (None, true),
            Some(before) if before.ends_with(' ') => (Some(before.trim_end().to_string()), true),
            Some(before) => (Some(format!("{before}:")), true),
            None => (Some(text.to_string()), false),
        };
        let is_term = is_term && !is_literal;
        if let Some(shown) = shown {
            self.html.push_str(if is_term { "<p><strong>" } else { "<p>" });
            self.inline(&shown);
            self.html.push_str(if is_term { "</strong></p>" } else { "</p>" });
        }
        if is_literal {
            self.code(&rest[read..read + next]);
            return read + next;
        }
        if is_term {
            self.nested("", &rest[read..read + next], depth);
            return read + next;
        }
        read
    }

    /// Reads indented lines as blocks, in an element if one is named.
    fn nested(&mut self, element: &str, lines: &[&'a str], depth: usize) {
        if lines.iter().all(|line| line.is_empty()) {
            return;
        }
        if !element.is_empty() {
            self.html.push_str(&format!("<{element}>"));
        }
        self.blocks(&dedented(lines), depth + 1);
        if !element.is_empty() {
            self.html.push_str(&format!("</{element}>"));
        }
    }

    fn code(&mut self, lines: &[&str]) {
        let first = lines.iter().position(|line| !line.is_empty());
        let last = lines.iter().rposition(|line| !line.is_empty());
        if let (Some(first), Some(last)) = (first, last) {
            self.html.push_str("<pre><code>");
            escape(&mut self.html, &dedented(&lines[first..=last]).join("\n"));
            self.html.push_str("</code></pre>");
        }
    }

    /// Adds text without marks of emphasis and code. Of a link its label is text.
    fn inline(&mut self, text: &str) {
        let mut rest = text;
        // A mark that does not end does not begin, either, and is looked for once.
        let mut ends = [true; 4];
        let mut before = ' ';
        while let Some(c) = rest.chars().next() {
            let begins = !before.is_alphanumeric();
            let marks = ["``", "**", "*"];
            let mark = marks.iter().position(|mark| begins && rest.starts_with(mark));
            let mut read = c.len_utf8();
            match (c, mark) {
                ('\\', _) => {
                    let escaped = rest[1..].chars().next().unwrap_or_default();
                    read += escaped.len_utf8() * usize::from(rest.len() > 1);
                    if !escaped.is_whitespace() && rest.len() > 1 {
                        escape(&mut self.html, escaped.encode_utf8(&mut [0; 4]));
                    }
                }
                (_, Some(number)) => {
                    let mark = marks[number];
                    let inner = &rest[mark.len()..];
                    let end = ends[number].then(|| inner.find(mark)).flatten();
                    ends[number] = end.is_some();
                    match end.filter(|end| *end > 0 && !inner.starts_with(' ')) {
                        Some(end) => {
                            escape(&mut self.html, &inner[..end]);
                            read = mark.len() + end + mark.len();
                        }
                        None => escape(&mut self.html, &rest[..read]),
                    }
                }
                ('`', _) => {
                    let end = ends[3].then(|| rest[1..].find('`')).flatten();
                    ends[3] = end.is_some();
                    read = match end.filter(|end| *end > 0) {
                        Some(end) => self.interpreted(&rest[1..1 + end], &rest[end + 2..]) + end + 2,
                        None => {
                            escape(&mut self.html, "`");
                            1
                        }
                    };
                }
                // A role before `text` says how it is shown.
                (':', _) if begins && role(rest).is_some() => {
                    let name = role(rest).unwrap_or_default();
                    let inner = &rest[name.len() + 3..];
                    let end = ends[3].then(|| inner.find('`')).flatten();
                    ends[3] = end.is_some();
                    match end {
                        Some(end) => {
                            self.with_role(&inner[..end]);
                            read = name.len() + 3 + end + 1;
                        }
                        None => escape(&mut self.html, ":"),
                    }
                }
                ('|', _) => {
                    let name =
                        rest[1..].split_once('|').map(|(name, _)| name).filter(|name| name.len() < 100);
                    let name = name.filter(|_| self.html.len() < self.most);
                    match name.and_then(|name| Some((name, *self.substitutions.get(name)?))) {
                        Some((name, text)) => {
                            escape(&mut self.html, text);
                            read = name.len() + 2;
                        }
                        None => escape(&mut self.html, "|"),
                    }
                }
                // A reference such as name_ or [1]_.
                ('_', _) if before != ' ' && before != '_' => {
                    let after = rest[1..].trim_start_matches('_').chars().next();
                    let is_reference = after.is_none_or(|c| !c.is_alphanumeric());
                    if is_reference {
                        read = rest.len() - rest.trim_start_matches('_').len();
                    } else {
                        self.html.push('_');
                    }
                }
                _ => escape(&mut self.html, &rest[..read]),
            }
            before = rest[..read].chars().next_back().unwrap_or(c);
            rest = &rest[read..];
        }
    }

    /// Text between back quotes, and how many characters behind it belong to it.
    fn interpreted(&mut self, text: &str, after: &str) -> usize {
        let marks = after.len() - after.trim_start_matches('_').len();
        escape(&mut self.html, if marks == 0 { text } else { labelled(text) });
        marks.min(2)
    }

    /// Text with a role. ~ shows only the last part of a name with dots.
    fn with_role(&mut self, text: &str) {
        let label = labelled(text.trim_start_matches('!'));
        let last = label.strip_prefix('~').map(|path| path.rsplit('.').next().unwrap_or(path));
        escape(&mut self.html, last.unwrap_or(label));
    }
}

/// The label of `label <target>`.
fn labelled(text: &str) -> &str {
    match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some(("", target)) => target,
        Some((label, _)) => label.trim_end(),
        None => text,
    }
}

/// The name of a role, as in `:py:func:` before a back quote.
fn role(text: &str) -> Option<&str> {
    let length = text[1..].bytes().take(60).take_while(|byte| *byte != b'`' && *byte != b' ').count();
    let name = text.get(1..1 + length)?.strip_suffix(':')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":-_.+".contains(&byte));
    (is_name && text[1 + length..].starts_with('`')).then_some(name)
}

/// The text of HTML that has no elements.
pub fn unescaped(html: &str) -> String {
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")]
        .iter()
        .fold(html.to_string(), |text, (name, value)| text.replace(name, value))
}

/// The character that a line consists of, if that is a line below a title.
fn adornment(line: &str) -> Option<char> {
    let first = line.chars().next().filter(char::is_ascii_punctuation)?;
    (line.len() > 2 && line.chars().all(|c| c == first)).then_some(first)
}

/// Whether a line is the rule of a simple table.
fn is_rule(line: &str) -> bool {
    line.starts_with("==") && line.contains(' ') && line.bytes().all(|byte| byte == b'=' || byte == b' ')
}

/// How many lines belong to a paragraph: up to a blank line, or one that is indented after the first.
fn paragraph(lines: &[&str]) -> usize {
    let is_end = |line: &&str| line.is_empty() || line.starts_with(' ');
    lines.iter().position(is_end).unwrap_or(lines.len())
}

/// How many lines are blank or indented by `least` columns, without blank lines at the end.
fn indented(lines: &[&str], least: usize) -> usize {
    let is_in = |line: &&&str| line.is_empty() || indent(line) >= least;
    let read = lines.iter().take_while(is_in).count();
    lines[..read].iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Lines without the indentation that they have in common.
fn dedented<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let least = lines.iter().filter(|line| !line.is_empty()).map(|line| indent(line)).min().unwrap_or(0);
    lines.iter().map(|line| line.get(least..).unwrap_or_default()).collect()
}

/// The bytes of the mark of an item of a list.
fn bullet(line: &str) -> Option<usize> {
    let first = line.chars().next().filter(|c| ['*', '+', '-', '•'].contains(c))?;
    let length = first.len_utf8();
    (line.len() == length || line[length..].starts_with(' ')).then_some(length + 1)
}

/// The bytes of a number before an item, if the next line can follow in a list.
fn number(line: &str, next: Option<&&str>) -> Option<usize> {
    let inner = line.strip_prefix('(').unwrap_or(line);
    let length =
        inner.bytes().take(6).take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'#').count();
    let (name, rest) = inner.split_at(length);
    let is_roman = !name.is_empty() && name.bytes().all(|byte| b"ivxlcIVXLC".contains(&byte));
    let is_digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = name.len() == 1 || is_digits || is_roman;
    let ends = rest.starts_with(". ") && !line.starts_with('(') || rest.starts_with(") ");
    let follows = next.is_none_or(|next| {
        let same = next.strip_prefix('(').unwrap_or(next);
        next.is_empty()
            || next.starts_with(' ')
            || same.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '#')
                && same.bytes().take(7).any(|byte| byte == b'.' || byte == b')')
    });
    (is_number && ends && follows).then_some(line.len() - rest.len() + 2)
}

/// How many lines a simple table has: up to its last rule.
fn simple_table(lines: &[&str]) -> usize {
    let end = lines.iter().enumerate().skip(1);
    let mut last = 0;
    for (at, line) in end {
        if is_rule(line) {
            last = at;
            // A blank line after a rule ends the table.
            if lines.get(at + 1).is_none_or(|next| next.is_empty()) {
                break;
            }
        }
    }
    last + 1
}

type Rows = (Vec<Vec<String>>, usize);

/// The rows of a simple table, and how many of them are headers.
fn simple_rows(lines: &[&str]) -> Option<Rows> {
    let rule: Vec<char> = lines.first()?.chars().collect();
    let mut starts = Vec::new();
    for at in 0..rule.len() {
        if rule[at] == '=' && (at == 0 || rule[at - 1] == ' ') {
            starts.push(at);
        }
    }
    if lines.len() < 3 || starts.len() > 100 {
        return None;
    }
    let (mut rows, mut headers): (Vec<Vec<String>>, usize) = (Vec::new(), 0);
    let rules = lines.iter().filter(|line| is_rule(line)).count();
    for (number, line) in lines.iter().enumerate().skip(1) {
        if is_rule(line) {
            if rules > 2 && number + 1 < lines.len() {
                headers = rows.len();
            }
            continue;
        }
        // A line below cells that span columns.
        if line.starts_with("--") && line.bytes().all(|byte| byte == b'-' || byte == b' ') {
            return None;
        }
        let cells = cells(line, &starts);
        match rows.last_mut() {
            Some(row) if cells[0].is_empty() && rows_continue(row, &cells) => {
                for (cell, more) in row.iter_mut().zip(cells).filter(|(_, more)| !more.is_empty()) {
                    cell.push(' ');
                    cell.push_str(&more);
                }
            }
            _ if cells.iter().all(String::is_empty) => {}
            _ => rows.push(cells),
        }
    }
    Some((rows, headers))
}

fn rows_continue(row: &[String], cells: &[String]) -> bool {
    row.len() == cells.len() && cells.iter().any(|cell| !cell.is_empty())
}

/// The cells of a line, whose columns begin at these characters.
fn cells(line: &str, starts: &[usize]) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
    let cell = |(start, end): (&usize, usize)| {
        let end = end.min(characters.len());
        let part = characters.get(*start..end).unwrap_or_default();
        part.iter().collect::<String>().trim().to_string()
    };
    starts.iter().zip(ends).map(cell).collect()
}

/// The rows of a grid table whose cells span nothing, and how many of them are headers.
fn grid_rows(lines: &[&str]) -> Option<Rows> {
    let border: Vec<char> = lines.first()?.chars().collect();
    let edges: Vec<usize> = (0..border.len()).filter(|at| border[*at] == '+').collect();
    if lines.len() < 3 || edges.len() < 2 || edges.len() > 100 {
        return None;
    }
    let (mut rows, mut headers): (Vec<Vec<String>>, usize) = (Vec::new(), 0);
    let mut is_new = true;
    for line in &lines[1..] {
        let characters: Vec<char> = line.chars().collect();
        if line.starts_with('+') {
            let is_whole = edges.iter().all(|edge| characters.get(*edge) == Some(&'+'));
            let is_border = characters.iter().all(|c| ['+', '-', '='].contains(c));
            if !is_whole || !is_border {
                return None;
            }
            if line.contains('=') {
                headers = rows.len();
            }
            is_new = true;
            continue;
        }
        if !edges.iter().all(|edge| characters.get(*edge) == Some(&'|')) {
            return None;
        }
        let cell = |pair: &[usize]| {
            let part = characters.get(pair[0] + 1..pair[1]).unwrap_or_default();
            part.iter().collect::<String>().trim().to_string()
        };
        let cells: Vec<String> = edges.windows(2).map(cell).collect();
        match rows.last_mut().filter(|_| !is_new) {
            Some(row) => {
                for (cell, more) in row.iter_mut().zip(cells).filter(|(_, more)| !more.is_empty()) {
                    if !cell.is_empty() {
                        cell.push(' ');
                    }
                    cell.push_str(&more);
                }
            }
            None => rows.push(cells),
        }
        is_new = false;
    }
    Some((rows, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Extraction {
        let file =
            File { name: Some("a.rst".into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file).unwrap()
    }

    #[test]
    fn titles_are_headings_in_the_order_of_their_adornments() {
        let found = of(
            "=====\nGuide\n=====\n:Author: Ann\n:Last-Changed: 2024\n\nIntro.\n\nInstall ``it``\n------------\n\nRun.\n\nDeep\n~~~~\n\nx\n\nUse\n---\n\ny",
        );
        assert_eq!(found.text, "# Guide\n\nIntro.\n\n## Install it\n\nRun.\n\n### Deep\n\nx\n\n## Use\n\ny");
        assert_eq!(found.title.as_deref(), Some("Guide"));
        assert_eq!(found.metadata["author"], "Ann");
        assert_eq!(found.metadata["last_changed"], "2024");
    }

    #[test]
    fn lists_code_and_directives_keep_their_text() {
        let rst = "Items:\n\n* one\n  more\n\n  - deep\n\n* two\n\n1. first\n2. second\n\nRun::\n\n    make <x>\n\n      install\n\n.. a comment\n   goes on\n\n.. code-block:: sh\n   :linenos:\n\n   ls -l\n\n.. note:: Take care.\n\n   And more.\n\n.. image:: x.png\n   :alt: no\n\nterm\n   What it is.\n\n   Quote\n\nEnd.";
        let text = of(rst).text;
        for part in [
            "one more",
            "deep",
            "two",
            "1. first",
            "2. second",
            "Run:",
            "make <x>\n\n  install",
            "ls -l",
            "Take care",
            "And more.",
            "term",
            "What it is.",
            "End.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for part in ["comment", "goes on", "linenos", "x.png"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn links_roles_and_substitutions_are_read() {
        let rst = "See `the site <https://x.org/a>`_, Python_, `Known Link`_, :func:`~os.path.join`, :ref:`here <x>`, |kb|, a*b, snake_case, \\*star, [1]_ and *so* **on**.\n\n.. _known link: https://y.org\n.. |kb| replace:: Knowledge\n.. [1] A note.\n";
        assert_eq!(
            of(rst).text,
            "See the site, Python, Known Link, join, here, Knowledge, a*b, snake_case, *star, [1] and so on.\n\n[1] A note."
        );
    }

    #[test]
    fn tables_are_read_row_by_row() {
        let simple = "====  =====\nName  Price\n====  =====\nTea   1 €\n      or 2\nCake  3\n====  =====\n";
        assert!(of(simple).text.contains("| Tea | 1 € or 2 |"), "{}", of(simple).text);
        let grid = "+------+-------+\n| Name | Price |\n+======+=======+\n| Tea  | 1     |\n|      | euro  |\n+------+-------+\n";
        assert!(of(grid).text.contains("| Tea | 1 euro |"), "{}", of(grid).text);
        let spans = "+------+-------+\n| Both         |\n+------+-------+\n";
        assert!(of(spans).text.contains("| Both         |"));
    }

    #[test]
    fn hostile_files_are_read_to_the_end() {
        for unit in
            ["* ", "- a\n  ", "`", "*a ", ":a:`", ".. x::\n ", "|", "+-", "== ", "\\", "_", " \n  a\n"]
        {
            let text = unit.repeat(20_000);
            let file = File {
                name: Some("a.rst".into()),
                bytes: text.into(),
                max_text: usize::MAX,
                ..File::default()
            };
            let _ = crate::extract(&file);
        }
        let nested: String = (0..300).map(|depth| format!("{}* a\n\n", "  ".repeat(depth))).collect();
        assert_eq!(of(&nested).text.matches('a').count(), 300);
    }
}
