//! YAML as a tree whose nodes know their places, from the events of the parser. Nothing recurses while it is
//! built, and its depth is bounded.

use crate::places::{Place, Problem};
use kb_types::Json;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};
use std::collections::HashSet;

/// The most levels of lists and mappings.
const MAX_DEPTH: usize = 64;

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub place: Place,
    pub value: Tree,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// No list and no object.
    Scalar(Value),
    List(Vec<Node>),
    /// In the order of the file. No name occurs twice.
    Mapping(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub name: String,
    pub place: Place,
    pub node: Node,
}

impl Node {
    /// The value as JSON.
    pub fn to_json(&self) -> Value {
        match &self.value {
            Tree::Scalar(value) => value.clone(),
            Tree::List(nodes) => Value::Array(nodes.iter().map(Node::to_json).collect()),
            Tree::Mapping(members) => Value::Object(to_object(members)),
        }
    }

    pub fn is_null(&self) -> bool {
        self.value == Tree::Scalar(Value::Null)
    }
}

pub fn to_object(members: &[Member]) -> Map<String, Value> {
    members.iter().map(|member| (member.name.clone(), member.node.to_json())).collect()
}

/// A list or mapping that is not complete yet.
struct Open {
    place: Place,
    nodes: Vec<Node>,
    /// None: a list.
    members: Option<Vec<Member>>,
    /// The name whose value comes next.
    name: Option<(String, Place)>,
    names: HashSet<String>,
}

/// The documents of a file.
pub fn documents(text: &str) -> Result<Vec<Node>, Vec<Problem>> {
    let mut reader = Reader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            let place = Place { line: marker.line().max(1), column: marker.col() + 1 };
            vec![place.problem(format!("is not YAML: {}", error.info()))]
        })?;
        reader.event(event, place(&span)).map_err(|problem| vec![problem])?;
    }
    if reader.problems.is_empty() { Ok(reader.documents) } else { Err(reader.problems) }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line().max(1), column: span.start.col() + 1 }
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    documents: Vec<Node>,
    problems: Vec<Problem>,
}

impl Reader {
    /// An error ends the reading.
    fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let is_name =
                    self.open.last().is_some_and(|open| open.members.is_some() && open.name.is_none());
                match is_name {
                    true => self.name(text.into_owned(), place),
                    false => self.node(Node { place, value: Tree::Scalar(scalar(&text, is_plain)) }),
                }
            }
            Event::Alias(_) => return Err(place.problem("aliases are not read; write the value again")),
            Event::SequenceStart(..) => self.begin(None, place)?,
            Event::MappingStart(..) => self.begin(Some(Vec::new()), place)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let value = match open.members {
                        Some(members) => Tree::Mapping(members),
                        None => Tree::List(open.nodes),
                    };
                    self.node(Node { place: open.place, value });
                }
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn name(&mut self, name: String, place: Place) {
        let Some(open) = self.open.last_mut() else { return };
        if !open.names.insert(name.clone()) {
            self.problems.push(place.problem(format!("\"{name}\" occurs twice")));
        }
        open.name = Some((name, place));
    }

    fn begin(&mut self, members: Option<Vec<Member>>, place: Place) -> Result<(), Problem> {
        if self.open.last().is_some_and(|open| open.members.is_some() && open.name.is_none()) {
            return Err(place.problem("a list or mapping cannot be a name"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(place.problem(format!("is nested more than {MAX_DEPTH} levels deep")));
        }
        self.open.push(Open { place, nodes: Vec::new(), members, name: None, names: HashSet::new() });
        Ok(())
    }

    fn node(&mut self, node: Node) {
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return;
        };
        match (&mut open.members, open.name.take()) {
            (Some(members), Some((name, place))) => members.push(Member { name, place, node }),
            (Some(_), None) => {}
            (None, _) => open.nodes.push(node),
        }
    }
}

/// A scalar by YAML's core schema, except that numbers are written as in JSON.
fn scalar(text: &str, is_plain: bool) -> Value {
    match text {
        _ if !is_plain => Value::String(text.into()),
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.into()), Value::Number),
    }
}

/// A number, if it can be kept as it is. What has more digits stays text, so that none is lost.
fn number(text: &str) -> Option<Number> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    match is_number.then(|| Json::new(text).value()) {
        Some(Ok(Value::Number(number))) => Some(number),
        _ => None,
    }
}

/// Whether a text, written plainly, would be read as something else than this text, here or by YAML 1.1.
pub fn is_ambiguous(text: &str) -> bool {
    let is_old_boolean =
        ["yes", "no", "on", "off", "y", "n"].iter().any(|word| word.eq_ignore_ascii_case(text));
    is_old_boolean || scalar(text, true) != Value::String(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(text: &str) -> Value {
        documents(text).unwrap()[0].to_json()
    }

    #[test]
    fn scalars_are_those_of_the_core_schema() {
        let text =
            "{a: 1, b: -2.5, c: yes, d: ~, e: '1', f: true, g: 0x10, h: 1e3, i: \"null\", j: 007, k: }";
        let expected = json!({"a": 1, "b": -2.5, "c": "yes", "d": null, "e": "1", "f": true, "g": "0x10", "h": 1e3,
                              "i": "null", "j": "007", "k": null});
        assert_eq!(one(text), expected);
    }

    #[test]
    fn nodes_know_their_places() {
        let documents = documents("a: 1\nbees:\n  - id: ä\n    c: [x, y]\n").unwrap();
        let Tree::Mapping(top) = &documents[0].value else { panic!() };
        assert_eq!(top[1].place, Place { line: 2, column: 1 });
        let Tree::List(bees) = &top[1].node.value else { panic!() };
        assert_eq!(bees[0].place, Place { line: 3, column: 5 });
        let Tree::Mapping(bee) = &bees[0].value else { panic!() };
        assert_eq!(bee[1].place, Place { line: 4, column: 5 });
        assert_eq!(bee[1].node.place, Place { line: 4, column: 8 });
    }

    #[test]
    fn what_is_no_tree_is_refused_at_its_place() {
        for (text, expected) in [
            ("a: 1\na: 2", "line 2, column 1: \"a\" occurs twice"),
            ("a: &x 1\nb: *x", "line 2, column 4: aliases are not read; write the value again"),
            ("? [a]\n: 1", "line 1, column 3: a list or mapping cannot be a name"),
        ] {
            let problems = documents(text).unwrap_err();
            assert_eq!(problems[0].to_string(), expected, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert!(documents(&deep).unwrap_err()[0].problem.contains("64 levels"));
        let broken = documents("a: [1, 2\nb: 3").unwrap_err();
        assert!(broken[0].to_string().starts_with("line 2, column 2: is not YAML: "), "{broken:?}");
    }
}
