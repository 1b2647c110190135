//! A JSON document as a list of its values, each followed by those in it, so that a path can be followed by
//! passing over the list.
//!
//! This is our own code, because libraries for JSONPath cannot keep two promises. They return a value once
//! for each way that leads to it, as RFC 9535 asks: `$..*..*..*..*..*..*` finds 6.9 million values among 61
//! nested ones (serde_json_path 0.7, jsonpath-rust 1.0), while a step here takes at most as long as there are
//! values. And they work on values of serde_json, in which long numbers have lost digits.

use actson::feeder::SliceJsonFeeder;
use actson::{JsonEvent, JsonParser};
use kb_types::error::{Error, Result};
use kb_types::json_path::{JsonPath, Selector};
use kb_types::{Bounds, Json};
use std::collections::BTreeMap;

/// The most values of a document. Each takes about a hundred bytes of memory.
const MAX_VALUES: usize = 1_000_000;

/// A value of a document.
#[derive(Debug)]
pub struct Node {
    /// The name of a member of an object.
    pub name: Option<String>,
    /// Where the values in this one, which follow it directly, end.
    pub end: usize,
    pub content: Content,
}

#[derive(Debug, PartialEq)]
pub enum Content {
    Text(String),
    /// A number, true or false, as it is written.
    Word(String),
    Null,
    Array,
    Object,
}

/// The first node is the whole document.
#[derive(Debug, Default)]
pub struct Tree(Vec<Node>);

impl Tree {
    /// Sorts the members of objects by name. Of several with the same name it keeps the last.
    pub fn parse(json: &Json, bounds: &Bounds) -> Result<Tree> {
        let problem = |problem: String| Error::Argument { argument: "content", problem };
        json.check().map_err(problem)?;
        bounds.spend(json.as_str().len())?;
        let value = Reader { parser: json.parser(), values: 0 }.value();
        let value = value.map_err(|refusal| {
            problem(match refusal {
                Refusal::NotJson => "it cannot be read as JSON".into(),
                Refusal::TooManyValues => format!("it holds more than {MAX_VALUES} JSON values"),
            })
        })?;
        let mut tree = Tree::default();
        tree.add(None, value);
        bounds.spend(tree.0.len())?;
        Ok(tree)
    }

    fn add(&mut self, name: Option<String>, value: Value) {
        let place = self.0.len();
        let (content, children): (_, Vec<(Option<String>, Value)>) = match value {
            Value::Leaf(content) => (content, Vec::new()),
            Value::Array(values) => (Content::Array, values.into_iter().map(|value| (None, value)).collect()),
            Value::Object(members) => {
                (Content::Object, members.into_iter().map(|(name, value)| (Some(name), value)).collect())
            }
        };
        self.0.push(Node { name, end: place, content });
        for (name, value) in children {
            self.add(name, value);
        }
        let end = self.0.len();
        if let Some(node) = self.0.get_mut(place) {
            node.end = end;
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.0
    }

    /// The values directly in this one, in their order.
    pub fn children(&self, place: usize) -> impl Iterator<Item = usize> {
        let end = self.0[place].end;
        let first = Some(place + 1).filter(|first| *first < end);
        std::iter::successors(first, move |child| Some(self.0[*child].end).filter(|next| *next < end))
    }

    /// The values at a path, each once, in the order of the document.
    pub fn select(&self, path: &JsonPath, bounds: &Bounds) -> Result<Vec<usize>> {
        let mut places = if self.0.is_empty() { Vec::new() } else { vec![0] };
        for step in path.steps() {
            bounds.spend(self.0.len())?;
            if step.descends {
                places = self.with_all_below(&places);
            }
            let mut found = Vec::new();
            for place in places {
                match &step.selector {
                    Selector::All => found.extend(self.children(place)),
                    Selector::Name(name) => found.extend(
                        self.children(place).find(|child| self.0[*child].name.as_ref() == Some(name)),
                    ),
                    Selector::Index(index) => found.extend(self.element(place, *index)),
                }
            }
            // No value is found twice, because each has one parent. After `..`, however, parents come among
            // their children.
            found.sort_unstable();
            places = found;
        }
        Ok(places)
    }

    fn with_all_below(&self, places: &[usize]) -> Vec<usize> {
        let mut all: Vec<usize> = Vec::new();
        for place in places {
            // Some of these values may lie inside others.
            let from = all.last().map_or(*place, |last| (last + 1).max(*place));
            all.extend(from..self.0[*place].end);
        }
        all
    }

    fn element(&self, place: usize, index: i64) -> Option<usize> {
        if self.0[place].content != Content::Array {
            return None;
        }
        let from_start = match usize::try_from(index) {
            Ok(index) => index,
            Err(_) => {
                let back = usize::try_from(index.unsigned_abs()).ok()?;
                self.children(place).count().checked_sub(back)?
            }
        };
        self.children(place).nth(from_start)
    }
}

/// A value while the document is read.
enum Value {
    Leaf(Content),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

enum Refusal {
    NotJson,
    TooManyValues,
}

struct Reader<'a> {
    parser: JsonParser<SliceJsonFeeder<'a>>,
    values: usize,
}

impl Reader<'_> {
    fn event(&mut self) -> Result<JsonEvent, Refusal> {
        self.parser.next_event().ok().flatten().ok_or(Refusal::NotJson)
    }

    fn text(&self) -> Result<String, Refusal> {
        self.parser.current_str().map(str::to_string).map_err(|_| Refusal::NotJson)
    }

    fn value(&mut self) -> Result<Value, Refusal> {
        let event = self.event()?;
        self.value_from(event)
    }

    /// The value that begins with this event. Recurses as deep as the document is nested, which was checked.
    fn value_from(&mut self, event: JsonEvent) -> Result<Value, Refusal> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Refusal::TooManyValues);
        }
        Ok(match event {
            JsonEvent::StartArray => {
                let mut values = Vec::new();
                loop {
                    match self.event()? {
                        JsonEvent::EndArray => break Value::Array(values),
                        event => values.push(self.value_from(event)?),
                    }
                }
            }
            JsonEvent::StartObject => {
                let mut members = BTreeMap::new();
                loop {
                    match self.event()? {
                        JsonEvent::EndObject => break Value::Object(members),
                        _ => {
                            let name = self.text()?;
                            members.insert(name, self.value()?);
                        }
                    }
                }
            }
            JsonEvent::ValueString => Value::Leaf(Content::Text(self.text()?)),
            JsonEvent::ValueInt | JsonEvent::ValueFloat => Value::Leaf(Content::Word(self.text()?)),
            JsonEvent::ValueTrue => Value::Leaf(Content::Word("true".into())),
            JsonEvent::ValueFalse => Value::Leaf(Content::Word("false".into())),
            JsonEvent::ValueNull => Value::Leaf(Content::Null),
            JsonEvent::FieldName | JsonEvent::EndArray | JsonEvent::EndObject | JsonEvent::NeedMoreInput => {
                return Err(Refusal::NotJson);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(json: &str) -> Tree {
        Tree::parse(&Json::new(json), &Bounds::none()).unwrap()
    }

    /// The values at a path, as text.
    fn at(tree: &Tree, path: &str) -> Vec<String> {
        let places = tree.select(&JsonPath::parse(path).unwrap(), &Bounds::none()).unwrap();
        let word = |place: usize| match &tree.nodes()[place].content {
            Content::Text(text) | Content::Word(text) => text.clone(),
            Content::Null => "null".into(),
            Content::Array => "[]".into(),
            Content::Object => "{}".into(),
        };
        places.into_iter().map(word).collect()
    }

    #[test]
    fn paths_find_the_values_that_rfc_9535_says() {
        let tree = tree(
            r#"{"b": [1, "two", {"text": "deep", "b": [true]}], "a": {"text": "flat", "n": null}, "text": "top"}"#,
        );
        for (path, found) in [
            ("$", vec!["{}"]),
            ("$.text", vec!["top"]),
            ("$.b[0]", vec!["1"]),
            ("$.b[-1].text", vec!["deep"]),
            ("$.b[-4]", vec![]),
            ("$.b[3]", vec![]),
            ("$.a[0]", vec![]),
            ("$.b.text", vec![]),
            ("$.a.*", vec!["null", "flat"]),
            ("$.b[*].b[*]", vec!["true"]),
            ("$..text", vec!["flat", "deep", "top"]),
            ("$..b[0]", vec!["1", "true"]),
            ("$.b..b", vec!["[]"]),
            ("$..*..*..text", vec!["deep"]),
            ("$.nope..*", vec![]),
        ] {
            assert_eq!(at(&tree, path), found, "{path}");
        }
    }

    #[test]
    fn the_cost_of_a_path_is_at_most_its_steps_times_the_values() {
        let deep = format!("{}1{}", r#"{"a": ["x", "#.repeat(49), "]}".repeat(49));
        let wide = format!("[{}]", vec![deep.as_str(); 200].join(", "));
        let (tree, bounds) = (tree(&wide), Bounds::none());
        let path = JsonPath::parse(&format!("${}", "..*".repeat(16))).unwrap();
        let found = tree.select(&path, &bounds).unwrap();
        assert!(!found.is_empty() && found.len() < tree.nodes().len());
        assert_eq!(bounds.spent(), 16 * tree.nodes().len() as u64);
    }

    #[test]
    fn members_come_in_the_order_of_names_and_the_last_of_equal_names_counts() {
        let tree = tree(r#"{"b": 1, "a": "x\u00e9\n", "b": 12345678901234567890123.50}"#);
        assert_eq!(at(&tree, "$.*"), ["xé\n", "12345678901234567890123.50"]);
    }

    #[test]
    fn documents_that_are_too_large_too_deep_or_not_json_are_refused() {
        let refused = |json: String| Tree::parse(&Json::new(json), &Bounds::none()).unwrap_err().to_string();
        assert!(refused("[".repeat(101) + &"]".repeat(101)).contains("levels deep"));
        assert!(refused(format!("[{}0]", "0,".repeat(MAX_VALUES))).contains("1000000 JSON values"));
        let nested = format!("{}0{}", "[".repeat(90), "]".repeat(90));
        let many = vec![nested; MAX_VALUES / 90 + 1].join(",");
        assert!(refused(format!("[{many}]")).contains("1000000 JSON values"));
        for json in ["", "[", "{\"a\"", "{a: 1}", "\"\\x\""] {
            assert!(refused(json.into()).contains("cannot be read"), "{json}");
        }
    }
}
