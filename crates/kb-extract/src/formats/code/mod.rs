//! Source code: its text as it is, with marks of its definitions, at which kb prefers to cut.
//!
//! The marks do not depend on the size of chunks, and kb cuts the text in its own process
//! (`kb_text::chunk`). `languages.rs` says what a definition is in each language.

mod languages;
#[cfg(test)]
mod tests;

pub use languages::*;

use crate::charset;
use kb_types::extraction::{Extraction, Fault, File};
use kb_types::{Mark, Marked, sizes};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tree_sitter::{Node, ParseOptions, Parser, Tree};
use tree_sitter_language::LanguageFn;

/// A longer text has no marks: nobody wrote it by hand, and its syntax tree takes a hundred times its memory.
const LONGEST: usize = 2 * 1024 * 1024;
/// Definitions that are within more others have no marks.
const DEEPEST: usize = 5;
/// The parser takes about a step for each byte of real code. It is stopped where it takes so many for each
/// byte, and then the text has no marks.
const STEPS: usize = 20;
/// In what is no code, a step can take long. So the parser is also stopped after this time, and that for each
/// byte.
const TIME: Duration = Duration::from_secs(2);
const TIME_OF_BYTE: Duration = Duration::from_micros(5);
/// The parser reports each time that it has taken this many.
const REPORTED: usize = 100;

/// How the definitions of a language are found.
struct Language {
    grammar: LanguageFn,
    /// The kinds of nodes that are definitions.
    definitions: &'static [&'static str],
    /// The kinds of nodes around a definition that belong to it, such as a keyword before it.
    around: &'static [&'static str],
}

/// Reads a file as the first of the languages in which it has no errors, else the first.
fn read(file: &File, languages: &[&Language]) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let mut found: Option<(bool, Vec<Marked>)> = None;
    for language in languages {
        let Some(tree) = parsed(&decoded.text, language) else { continue };
        let has_error = tree.root_node().has_error();
        if found.as_ref().is_none_or(|(had_error, _)| *had_error && !has_error) {
            found = Some((has_error, definitions(&decoded.text, &tree, language)));
        }
        if !has_error {
            break;
        }
    }
    Ok(Extraction {
        text_type: "text/plain".into(),
        metadata: decoded.metadata(),
        marks: found.map(|(_, marks)| marks).unwrap_or_default(),
        text: decoded.text,
        ..Extraction::default()
    })
}

/// The syntax tree of a text. None where it would take too much.
fn parsed(text: &str, language: &Language) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&language.grammar.into()).ok().filter(|()| text.len() <= LONGEST)?;
    let mut left = 100 + text.len() * STEPS / REPORTED;
    let end = Instant::now() + TIME + TIME_OF_BYTE * text.len() as u32;
    let mut progress = |_: &tree_sitter::ParseState| {
        if left == 0 || Instant::now() >= end {
            return ControlFlow::Break(());
        }
        left -= 1;
        ControlFlow::Continue(())
    };
    let mut from = |at: usize, _| text.as_bytes().get(at..).unwrap_or_default();
    parser.parse_with_options(&mut from, None, Some(ParseOptions::new().progress_callback(&mut progress)))
}

/// The inside of a node of the syntax tree.
struct Inside {
    /// Within how many definitions it is.
    level: usize,
    is_definition: bool,
    /// Where the definition begins that this node is around.
    begin: Option<usize>,
    /// The start and the last line of comments directly before what comes next, which belong to it.
    comments: Option<(usize, usize)>,
    /// Whether a definition has ended, and nothing that is outside of it has come since.
    has_ended: bool,
}

impl Inside {
    fn new(level: usize) -> Inside {
        Inside { level, is_definition: false, begin: None, comments: None, has_ended: false }
    }
}

/// The marks of a text: where definitions begin, and where something else follows them.
fn definitions(text: &str, tree: &Tree, language: &Language) -> Vec<Marked> {
    let mut marks: Vec<Marked> = Vec::new();
    let mut mark = |offset: usize, level, name: String| {
        if marks.last().is_none_or(|last| last.offset <= offset) && text.is_char_boundary(offset) {
            marks.push(Marked { offset, mark: Mark::Definition { level, name } });
        }
    };
    let mut cursor = tree.walk();
    let mut open = vec![Inside::new(0)];
    loop {
        let node = cursor.node();
        let Some(inside) = open.last_mut() else { return marks };
        let level = inside.level + 1;
        let mut next = Some(Inside::new(inside.level));
        if is_before_definition(node) {
            inside.comment(text, node);
            next = None;
        } else if node.is_named() {
            let lines = inside.comments.take().filter(|(_, last)| node.start_position().row <= last + 1);
            let here = lines.map_or(node.start_byte(), |(start, _)| start);
            if let Some(name) = language.name_of(node, text) {
                mark(inside.begin.take().unwrap_or(here), level, name);
                inside.has_ended = false;
                // What a typedef of C contains has its name.
                let is_whole = level == DEEPEST || node.kind() == "type_definition";
                next = (!is_whole).then(|| Inside { is_definition: true, ..Inside::new(level) });
                if next.is_none() {
                    inside.has_ended = true;
                }
            } else if language.around.contains(&node.kind()) {
                let begin = Some(inside.begin.take().unwrap_or(here));
                let has_ended = std::mem::take(&mut inside.has_ended);
                next = Some(Inside { begin, has_ended, ..Inside::new(inside.level) });
            } else {
                if std::mem::take(&mut inside.has_ended) {
                    mark(here, level, String::new());
                }
                // Before the first definition in a block, a comment is before the block.
                next = Some(Inside { comments: lines, ..Inside::new(inside.level) });
            }
        }
        if let Some(next) = next
            && cursor.goto_first_child()
        {
            open.push(next);
            continue;
        }
        while !cursor.goto_next_sibling() {
            let Some(closed) = open.pop() else { return marks };
            let Some(outer) = open.last_mut() else { return marks };
            outer.has_ended |= closed.is_definition || closed.has_ended;
            if !cursor.goto_parent() {
                return marks;
            }
        }
    }
}

/// Whether a node belongs to the definition after it.
fn is_before_definition(node: Node) -> bool {
    node.kind().ends_with("comment") || ["attribute_item", "decorator"].contains(&node.kind())
}

impl Inside {
    /// Notes a comment that is on lines of its own.
    fn comment(&mut self, text: &str, node: Node) {
        let (start, first, last) = (node.start_byte(), node.start_position().row, node.end_position().row);
        let before = text.as_bytes()[..start].iter().rev().take_while(|byte| **byte != b'\n');
        if !before.take(MARGIN).all(|byte| byte.is_ascii_whitespace()) {
            self.comments = None;
            return;
        }
        let begin = match self.comments {
            Some((begin, end)) if first <= end + 1 => begin,
            _ => start,
        };
        self.comments = Some((begin, last));
    }
}

/// How many bytes before a comment say whether something else is on its line.
const MARGIN: usize = 200;

impl Language {
    /// The name of the definition that a node is. None: it is none.
    fn name_of(&self, node: Node, text: &str) -> Option<String> {
        let kind = node.kind();
        if !self.definitions.contains(&kind) {
            return None;
        }
        let is_one = match kind {
            // A variable that holds a function.
            "variable_declarator" => {
                let value = node.child_by_field_name("value").map_or("", |value| value.kind());
                ["arrow_function", "function_expression", "generator_function", "class"].contains(&value)
            }
            // Where it has no body, it only names a type.
            _ => !kind.ends_with("_specifier") || node.child_by_field_name("body").is_some(),
        };
        is_one.then(|| {
            let mut named = match kind {
                "impl_item" => node.child_by_field_name("type"),
                "singleton_class" => node.child_by_field_name("value"),
                _ => node.child_by_field_name("name").or_else(|| declared(node)),
            };
            // In C, what is declared is within what is said of it.
            for _ in 0..32 {
                let Some(inner) = named.and_then(declared) else { break };
                named = Some(inner);
            }
            let name = named.and_then(|name| text.get(name.byte_range())).unwrap_or_default();
            let words = sizes::cut(name, sizes::HEADING).split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        })
    }
}

fn declared(node: Node) -> Option<Node> {
    let is_declarator = || node.kind().ends_with("_declarator");
    node.child_by_field_name("declarator").or_else(|| is_declarator().then(|| node.named_child(0)).flatten())
}
