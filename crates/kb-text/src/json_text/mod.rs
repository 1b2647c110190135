//! The text of a JSON document: the values that are asked for, else the usual ones, else every string.

mod tree;

use kb_types::error::Result;
use kb_types::json_fields::JsonFields;
use kb_types::{Bounds, Json};
use tree::{Content, Tree};

/// Members of an object that usually hold its text; the first that has any is it.
pub const USUAL: &[&str] = &["content", "text", "description", "title", "summary", "body", "name"];

/// Between the values of one path, and between those of two.
const LINES: &str = "\n";
const PARAGRAPHS: &str = "\n\n";

/// The text of a document. Included values come in the order of their paths, each value once; of an object or
/// array all its strings. Where nothing is included it is the first of [`USUAL`] that an object has with
/// text, else every string with the names that lead to it. The same document gives the same text: members
/// come in the order of their names.
pub fn extract(json: &Json, fields: &JsonFields, bounds: &Bounds) -> Result<String> {
    let tree = Tree::parse(json, bounds)?;
    let mut texts = Texts { is_left_out: vec![false; tree.nodes().len()], tree: &tree };
    for path in &fields.exclude {
        for place in tree.select(path, bounds)? {
            texts.leave_out(place);
        }
    }
    let text = if fields.include.is_empty() {
        match texts.usual() {
            Some(text) => text,
            None => texts.all(bounds)?,
        }
    } else {
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
    };
    bounds.check_bytes(text.len())?;
    Ok(text)
}

struct Texts<'a> {
    tree: &'a Tree,
    is_left_out: Vec<bool>,
}

impl Texts<'_> {
    /// A value and all in it are no text, or no more.
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

    /// A value that is a string with text.
    fn string(&self, place: usize) -> Option<&str> {
        match &self.tree.nodes()[place].content {
            Content::Text(text) if !self.is_left_out[place] && !text.trim().is_empty() => Some(text),
            _ => None,
        }
    }

    /// The first of the usual members that has text.
    fn usual(&self) -> Option<String> {
        let named = |name: &&str| {
            let is_it = |place: &usize| self.tree.nodes()[*place].name.as_deref() == Some(*name);
            self.tree.children(0).find(is_it).and_then(|place| self.of(place))
        };
        USUAL.iter().find_map(named)
    }

    /// Every string, each in a line after the names that lead to it.
    fn all(&self, bounds: &Bounds) -> Result<String> {
        // Where each value around the current one ends, and its name.
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
                // A long name is repeated with each string below it.
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
        Ok(lines.join(LINES))
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
    fn what_is_included_comes_in_the_order_of_the_paths_and_once() {
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
    fn without_paths_the_first_usual_member_with_text_is_the_text() {
        let document =
            json!({"name": "n", "body": "b", "content": "  ", "description": ["d", "e"], "x": "x"});
        assert_eq!(text(&document, &json!({})), "d\ne");
        assert_eq!(text(&document, &json!({"exclude": ["$.description"]})), "b");
        for (place, usual) in USUAL.iter().enumerate() {
            let rest: serde_json::Map<String, Value> =
                USUAL[place..].iter().map(|name| (name.to_string(), json!(format!("the {name}")))).collect();
            assert_eq!(text(&Value::Object(rest), &json!({})), format!("the {usual}"));
        }
    }

    #[test]
    fn else_every_string_is_in_it_with_its_names() {
        let document =
            json!({"z": "last", "a": {"c": "deep", "b": [["x"], {"y": "listed"}], "n": 5}, "e": ""});
        assert_eq!(text(&document, &json!({})), "a.b: x\na.b.y: listed\na.c: deep\nz: last");
        assert_eq!(text(&document, &json!({"exclude": ["$.a.b", "$.z"]})), "a.c: deep");
        assert_eq!(text(&json!(["one", ["two"], 3]), &json!({})), "one\ntwo");
        assert_eq!(text(&json!("only"), &json!({})), "only");
        for none in [json!(null), json!(5), json!({}), json!([])] {
            assert_eq!(text(&none, &json!({})), "");
        }
    }

    #[test]
    fn a_name_that_is_repeated_too_often_is_refused_before_it_is_text() {
        let document = json!({"n".repeat(10_000): vec!["x"; 10_000]});
        let bounds = Bounds::begin(kb_types::Limits { bytes: 1_000_000, ..kb_types::Limits::none() });
        let error = extract(&Json::new(document.to_string()), &JsonFields::default(), &bounds).unwrap_err();
        assert_eq!(error.sqlstate(), "54000");
    }

    #[test]
    fn twice_the_document_costs_no_more_than_twice() {
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
