//! Reads a JSON object key by key, and collects all problems instead of stopping at the first.

use super::named::Named;
use serde_json::{Map, Value};

/// A JSON configuration that is being read. Problems are collected, and [`Fields::finish`] adds one for each
/// key that was not asked for.
pub struct Fields<'a> {
    name: &'a str,
    map: Map<String, Value>,
    known: Vec<&'static str>,
    pub problems: Vec<String>,
}

impl<'a> Fields<'a> {
    /// `name` is the name of the argument in messages ("chunking.size: …"). JSON null is read as {}.
    pub fn new(name: &'a str, value: &Value) -> Self {
        let mut problems = Vec::new();
        let map = match value {
            Value::Object(map) => map.clone(),
            Value::Null => Map::new(),
            other => {
                let other = if other.is_string() { "a string".to_string() } else { other.to_string() };
                problems.push(format!("{name} must be a JSON object, not {other}"));
                Map::new()
            }
        };
        Fields { name, map, known: Vec::new(), problems }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        // Some keys are read twice.
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.map.remove(key).filter(|v| !v.is_null())
    }

    pub fn problem(&mut self, key: &str, problem: impl std::fmt::Display) {
        self.problems.push(format!("{}.{key}: {problem}", self.name));
    }

    /// Adds the problems of an object within this one.
    pub fn extend(&mut self, inner: Fields) {
        let problems = inner.finish();
        self.problems.extend(problems.into_iter().map(|problem| format!("{}.{problem}", self.name)));
    }

    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(s) => Some(s),
            other => {
                self.problem(key, format_args!("must be a string, not {other}"));
                None
            }
        }
    }

    /// A string that may be a key in the wrong place: no message repeats it.
    pub fn secret(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(s) => Some(s),
            _ => {
                self.problem(key, "must be a string");
                None
            }
        }
    }

    /// A JSON pointer (RFC 6901).
    pub fn pointer(&mut self, key: &'static str) -> Option<String> {
        let pointer = self.text(key)?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            self.problem(
                key,
                format_args!("\"{pointer}\" is not a JSON pointer: it must be '' or begin with /"),
            );
            return None;
        }
        Some(pointer)
    }

    /// A value by its name.
    pub fn named<T: Named>(&mut self, key: &'static str) -> Option<T> {
        let name = self.text(key)?;
        T::one_of(&name).map_err(|problem| self.problem(key, problem)).ok()
    }

    /// A required string. Where it is missing, the result is '' and a problem is added.
    pub fn required_text(&mut self, key: &'static str) -> String {
        let before = self.problems.len();
        let text = self.text(key);
        if text.is_none() && self.problems.len() == before {
            self.problem(key, "is missing");
        }
        text.unwrap_or_default()
    }

    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(b) => Some(b),
            other => {
                self.problem(key, format_args!("must be true or false, not {other}"));
                None
            }
        }
    }

    /// A whole number in `min..=max`.
    pub fn integer(&mut self, key: &'static str, min: i64, max: i64) -> Option<i64> {
        let value = self.take(key)?;
        match value.as_i64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                self.problem(key, format_args!("must be a whole number from {min} to {max}, not {value}"));
                None
            }
        }
    }

    /// A whole number in `min..=max`, or Some(None) where this word stands in its place.
    pub fn integer_or(&mut self, key: &'static str, word: &str, min: i64, max: i64) -> Option<Option<i64>> {
        let value = self.take(key)?;
        match value.as_i64() {
            Some(n) if (min..=max).contains(&n) => Some(Some(n)),
            None if value == word => Some(None),
            _ => {
                let expected = format_args!("must be \"{word}\" or a whole number from {min} to {max}");
                self.problem(key, format_args!("{expected}, not {value}"));
                None
            }
        }
    }

    /// A number in `min..=max`.
    pub fn number(&mut self, key: &'static str, min: f64, max: f64) -> Option<f64> {
        let value = self.take(key)?;
        match value.as_f64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                self.problem(key, format_args!("must be a number from {min} to {max}, not {value}"));
                None
            }
        }
    }

    pub fn object(&mut self, key: &'static str) -> Option<Value> {
        match self.take(key)? {
            Value::Object(map) => Some(Value::Object(map)),
            // The message does not repeat the value, which may be a secret key in the wrong place.
            _ => {
                self.problem(key, "must be a JSON object");
                None
            }
        }
    }

    /// An object, or Some(None) where the value is null.
    pub fn object_or_null(&mut self, key: &'static str) -> Option<Option<Value>> {
        if self.null(key) { Some(None) } else { self.object(key).map(Some) }
    }

    /// Whether the value is null, which removes what is set elsewhere.
    pub fn null(&mut self, key: &'static str) -> bool {
        let is_null = self.map.get(key).is_some_and(Value::is_null);
        if is_null {
            self.take(key);
        }
        is_null
    }

    /// Makes a key known that is read elsewhere.
    pub fn read_elsewhere(&mut self, key: &'static str) {
        self.take(key);
    }

    pub fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let texts = match self.take(key)? {
            Value::Array(values) => values.iter().map(|value| value.as_str().map(str::to_string)).collect(),
            _ => None,
        };
        if texts.is_none() {
            self.problem(key, "must be an array of strings");
        }
        texts
    }

    /// Ends the reading and returns the problems. A key that was never asked for is one.
    pub fn finish(mut self) -> Vec<String> {
        let known = self.known.join(", ");
        for key in self.map.keys() {
            self.problems.push(format!("{}.{key}: unknown key; known keys are {known}", self.name));
        }
        self.problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_problems_are_reported_together() {
        let value = json!({"size": "x", "overlap": -1, "flavour": 1});
        let mut fields = Fields::new("chunking", &value);
        assert_eq!(fields.integer("size", 1, 10), None);
        assert_eq!(fields.integer("overlap", 0, 10), None);
        let problems = fields.finish();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].starts_with("chunking.flavour: unknown key; known keys are size, overlap"));
    }

    #[test]
    fn null_is_an_absent_key() {
        let mut fields = Fields::new("c", &json!({"a": null}));
        assert_eq!(fields.text("a"), None);
        assert!(fields.finish().is_empty());
    }
}
