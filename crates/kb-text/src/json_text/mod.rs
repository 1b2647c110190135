//! Extracts the text of a JSON document: the values at the given paths, or else the standard members, or else
//! every string.

mod tree;

use kb_types::error::Result;
use kb_types::json_fields::{JsonFields, StandardMembers};
use kb_types::{Bounds, Json};
use tree::{Content, Tree};

/// The members that usually hold the text of an object, in the order in which they are joined.
pub const STANDARD: &[&str] = &["text", "content", "description", "title", "summary", "body", "name"];

/// The same members in the order in which the first one that has text is looked for.
pub const STANDARD_FIRST: &[&str] = &["content", "text", "description", "title", "summary", "body", "name"];

/// Separates the values of one path, and those of different paths.
const LINES: &str = "\n";
const PARAGRAPHS: &str = "\n\n";

/// Separates the members of an object whose members are joined.
const JOINED: &str = " ";

/// The text of a document. Included values come in the order of their paths, each value once, and an object
/// or array contributes all its strings. Without included paths the text is that of the standard members that
/// have text, or else every string with the names that lead to it. Members are taken in a fixed order, so
/// that equal documents give equal texts.
pub fn extract(json: &Json, fields: &JsonFields, bounds: &Bounds) -> Result<String> {
    let tree = Tree::parse(json, bounds)?;
    let mut texts = Texts { is_left_out: vec![false; tree.nodes().len()], tree: &tree };
    for path in &fields.exclude {
        for place in tree.select(path, bounds)? {
            texts.leave_out(place);
        }
    }
    let text = if !fields.include.is_empty() {
        let mut parts = Vec::new();
        for path in &fields.include {
            let mut found = Vec::new();
            for place in tree.select(path, bounds)? {
                found.extend(texts.of(place));
                texts.leave_out(place);
            }
            if !found.is_empty() {
                parts.push(found.join(LINES));
            }
        }
        parts.join(PARAGRAPHS)
    } else {
        let (standard, separator) = match fields.members {
            StandardMembers::All => (texts.joined(), JOINED),
            StandardMembers::First => (texts.first(), LINES),
        };
        match standard {
            Some(text) => text,
            None => texts.all(separator, bounds)?,
        }
    };
    bounds.check_bytes(text.len())?;
    Ok(text)
}

struct Texts<'a> {
    tree: &'a Tree,
    is_left_out: Vec<bool>,
}

impl Texts<'_> {
    /// Excludes a value and everything in it from the text.
    fn leave_out(&mut self, place: usize) {
        if !self.is_left_out[place] {
            self.is_left_out[place..self.tree.nodes()[place].end].fill(true);
        }
    }

    /// The text of one value, if it has any.
    fn of(&self, place: usize) -> Option<String> {
        let nodes = self.tree.nodes();
        let text = match &nodes[place].content {
            _ if self.is_left_out[place] => return None,
            Content::Text(text) | Content::Word(text) => text.clone(),
            Content::Null => return None,
            Content::Array | Content::Object => {
                let strings: Vec<&str> =
                    (place..nodes[place].end).filter_map(|place| self.string(place)).collect();
                strings.join(LINES)
            }
        };
        (!text.trim().is_empty()).then_some(text)
    }

    /// The text of a value that is a string and not blank.
    fn string(&self, place: usize) -> Option<&str> {
        match &self.tree.nodes()[place].content {
            Content::Text(text) if !self.is_left_out[place] && !text.trim().is_empty() => Some(text),
            _ => None,
        }
    }

    /// A member of the whole document.
    fn member(&self, name: &str) -> Option<usize> {
        self.tree.children(0).find(|place| self.tree.nodes()[*place].name.as_deref() == Some(name))
    }

    /// The first of the standard members that has text.
    fn first(&self) -> Option<String> {
        STANDARD_FIRST.iter().find_map(|name| self.of(self.member(name)?))
    }

    /// The strings of all standard members.
    fn joined(&self) -> Option<String> {
        let places = STANDARD.iter().filter_map(|name| self.member(name));
        let strings = places.flat_map(|place| place..self.tree.nodes()[place].end.max(place + 1));
        let strings: Vec<&str> = strings.filter_map(|place| self.string(place)).collect();
        (!strings.is_empty()).then(|| strings.join(JOINED))
    }

    /// Every string, each after the names that lead to it.
    fn all(&self, separator: &str, bounds: &Bounds) -> Result<String> {
        // For each value around the current one: where it ends, and its name.
        let mut around: Vec<(usize, &str)> = Vec::new();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for (place, node) in self.tree.nodes().iter().enumerate() {
            while around.last().is_some_and(|(end, _)| *end <= place) {
                around.pop();
            }
            around.push((node.end, node.name.as_deref().unwrap_or_default()));
            if let Some(text) = self.string(place) {
                let names: Vec<&str> =
                    around.iter().map(|(_, name)| *name).filter(|name| !name.is_empty()).collect();
                // The names count, because a long name is repeated with each string below it.
                let length = text.len() + names.iter().map(|name| name.len() + 1).sum::<usize>();
                bytes += length;
                bounds.check_bytes(bytes)?;
                bounds.spend(length)?;
                lines.push(match names.is_empty() {
                    true => text.to_string(),
                    false => format!("{}: {text}", names.join(".")),
                });
            }
        }
        Ok(lines.join(separator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(document: &Value, fields: &Value) -> String {
        let fields = JsonFields::parse("fields", fields).unwrap();
        extract(&Json::new(document.to_string()), &fields, &Bounds::none()).unwrap()
    }

    #[test]
    fn included_values_come_once_and_in_the_order_of_the_paths() {
        let document = json!({
            "body": "The body", "title": "The title", "price": 12.5, "draft": null,
            "tags": ["a", {"name": "b", "id": 7}], "notes": ["x", " "]
        });
        for (include, expected) in [
            (json!(["$.title", "$.body"]), "The title\n\nThe body"),
            (json!(["$.body", "$.body", "$..*"]), "The body\n\nx\n12.5\na\nb\nThe title"),
            (json!(["$.tags"]), "a\nb"),
            (json!(["$.tags[*]"]), "a\nb"),
            (json!(["$.price", "$.draft", "$.nope"]), "12.5"),
            (json!(["$"]), "The body\nx\na\nb\nThe title"),
        ] {
            assert_eq!(text(&document, &json!({"include": include})), expected, "{include}");
        }
        let fields = json!({"include": ["$.tags", "$.title"], "exclude": ["$..name"]});
        assert_eq!(text(&document, &fields), "a\n\nThe title");
    }

    #[test]
    fn standard_members_are_joined_in_a_fixed_order() {
        for (document, expected) in [
            (
                json!({"title": "Test Title", "description": "Test Description", "content": "Test Content"}),
                "Test Content Test Description Test Title",
            ),
            (
                json!({"name": "Test", "count": 42, "active": true, "description": "Valid text"}),
                "Valid text Test",
            ),
            (json!({"content": "b", "text": "a", "other": "left out", "title": " ", "name": 7}), "a b"),
            (json!({"summary": ["s", {"x": "t", "n": 5}], "body": {"y": "b", "a": "a"}}), "s t a b"),
        ] {
            assert_eq!(text(&document, &json!({})), expected);
        }
        let all: serde_json::Map<String, Value> =
            STANDARD.iter().rev().map(|name| (name.to_string(), json!(format!("the {name}")))).collect();
        let expected = STANDARD.iter().map(|name| format!("the {name}")).collect::<Vec<String>>().join(" ");
        assert_eq!(text(&Value::Object(all.clone()), &json!({})), expected);
        let without = text(&Value::Object(all), &json!({"exclude": ["$.text", "$.name"]}));
        assert_eq!(format!("the text {without} the name"), expected);
    }

    #[test]
    fn the_first_standard_member_with_text_is_the_text_where_that_is_asked_for() {
        let first = |more: Value| {
            let mut fields = json!({"members": "first"});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fields
        };
        let document =
            json!({"name": "n", "body": "b", "content": "  ", "description": ["d", "e"], "x": "x"});
        assert_eq!(text(&document, &first(json!({}))), "d\ne");
        assert_eq!(text(&document, &first(json!({"exclude": ["$.description"]}))), "b");
        for (place, standard) in STANDARD_FIRST.iter().enumerate() {
            let rest: serde_json::Map<String, Value> = STANDARD_FIRST[place..]
                .iter()
                .map(|name| (name.to_string(), json!(format!("the {name}"))))
                .collect();
            assert_eq!(text(&Value::Object(rest), &first(json!({}))), format!("the {standard}"));
        }
    }

    #[test]
    fn without_standard_members_every_string_comes_with_its_names() {
        let seed = json!({"info": "Technology hub", "population": 9.7, "country": "South Korea", "cityName": "Seoul"});
        assert_eq!(text(&seed, &json!({})), "cityName: Seoul country: South Korea info: Technology hub");
        let document =
            json!({"z": "last", "a": {"c": "deep", "b": [["x"], {"y": "listed"}], "n": 5}, "e": ""});
        assert_eq!(text(&document, &json!({})), "a.b: x a.b.y: listed a.c: deep z: last");
        let first = json!({"members": "first"});
        assert_eq!(text(&document, &first), "a.b: x\na.b.y: listed\na.c: deep\nz: last");
        assert_eq!(text(&document, &json!({"exclude": ["$.a.b", "$.z"]})), "a.c: deep");
        assert_eq!(text(&json!(["one", ["two"], 3]), &json!({})), "one two");
        assert_eq!(text(&json!("only"), &json!({})), "only");
        for none in [json!(null), json!(5), json!({}), json!([]), json!({"name": 5})] {
            assert_eq!(text(&none, &json!({})), "");
        }
    }

    #[test]
    fn names_that_are_repeated_too_often_are_refused_before_they_are_joined() {
        let document = json!({"n".repeat(10_000): vec!["x"; 10_000]});
        let bounds = Bounds::begin(kb_types::Limits { bytes: 1_000_000, ..kb_types::Limits::none() });
        let error = extract(&Json::new(document.to_string()), &JsonFields::default(), &bounds).unwrap_err();
        assert_eq!(error.sqlstate(), "54000");
    }

    #[test]
    fn twice_the_document_costs_at_most_twice_the_work() {
        let document = |n: usize| json!({"list": vec![json!({"a": "text", "b": [1, "x"]}); n]});
        let cost = |n: usize| {
            let bounds = Bounds::none();
            let fields = json!({"include": ["$..*", "$.list..b"], "exclude": ["$..b[0]", "$..nope..*"]});
            let fields = JsonFields::parse("fields", &fields).unwrap();
            extract(&Json::new(document(n).to_string()), &fields, &bounds).unwrap();
            bounds.spent()
        };
        assert!(cost(2000) <= 2 * cost(1000) + 100);
    }
}
