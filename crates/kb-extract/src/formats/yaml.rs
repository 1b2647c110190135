//! Converts YAML to JSON, from the events of the parser. Nothing recurses.

use kb_types::Json;
use kb_types::json::MAX_DEPTH;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;
use std::collections::HashMap;

/// An alias stands for a text of at most so many bytes. Other aliases become null: what they stand for is
/// in the file once, and would otherwise multiply.
const LONGEST_ALIAS: usize = 100;
/// The most digits of a number that JSON keeps everywhere. Longer ones become texts.
const DIGITS: usize = 15;

/// The documents in a YAML file. The error says in a few words why they cannot be read.
pub fn documents(text: &str) -> Result<Vec<Json>, String> {
    let mut documents = Vec::new();
    let mut writer = Writer::default();
    let mut anchors: HashMap<usize, String> = HashMap::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| error.to_string())?;
        match event {
            Event::DocumentStart(_) => writer = Writer::default(),
            Event::DocumentEnd => documents.push(Json::new(std::mem::take(&mut writer.json))),
            Event::Scalar(value, style, anchor, tag) => {
                let json = scalar(&value, style == ScalarStyle::Plain && tag.is_none());
                if anchor > 0 && json.len() <= LONGEST_ALIAS {
                    anchors.insert(anchor, json.clone());
                }
                writer.value(&json);
            }
            Event::Alias(anchor) => writer.value(anchors.get(&anchor).map_or("null", String::as_str)),
            Event::SequenceStart(..) => writer.open('[')?,
            Event::MappingStart(..) => writer.open('{')?,
            Event::SequenceEnd => writer.close(']'),
            Event::MappingEnd => writer.close('}'),
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
    }
    Ok(documents)
}

/// A scalar in JSON.
fn scalar(value: &str, is_plain: bool) -> String {
    match value {
        "" | "~" | "null" | "Null" | "NULL" if is_plain => "null".into(),
        "true" | "True" | "TRUE" if is_plain => "true".into(),
        "false" | "False" | "FALSE" if is_plain => "false".into(),
        _ if is_plain && is_number(value) => value.into(),
        _ => Value::String(value.into()).to_string(),
    }
}

fn is_number(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && value.bytes().filter(u8::is_ascii_digit).count() <= DIGITS
        && !value.contains(['e', 'E'])
        && serde_json::from_str::<serde_json::Number>(value).is_ok()
}

/// Writes JSON.
#[derive(Default)]
struct Writer {
    json: String,
    /// For each object and array that is open: whether it is an object, and how many values it has. The
    /// names in an object count as values.
    open: Vec<(bool, usize)>,
}

impl Writer {
    /// Writes what separates a value from the one before it. Returns whether it is a name.
    fn separate(&mut self) -> bool {
        let Some((is_object, values)) = self.open.last_mut() else { return false };
        let is_name = *is_object && *values % 2 == 0;
        match *values {
            0 => {}
            _ if *is_object && !is_name => self.json.push(':'),
            _ => self.json.push(','),
        }
        *values += 1;
        is_name
    }

    fn value(&mut self, json: &str) {
        let is_name = self.separate();
        match is_name && !json.starts_with('"') {
            true => self.json.push_str(&Value::String(json.into()).to_string()),
            false => self.json.push_str(json),
        }
    }

    fn open(&mut self, bracket: char) -> Result<(), String> {
        if self.separate() {
            return Err("a list or mapping is used as a key".into());
        }
        if self.open.len() == MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} levels deep"));
        }
        self.json.push(bracket);
        self.open.push((bracket == '{', 0));
        Ok(())
    }

    fn close(&mut self, bracket: char) {
        self.json.push(bracket);
        self.open.pop();
    }
}
