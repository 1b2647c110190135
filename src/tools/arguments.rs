//! The arguments that a model wrote: anything at all, of which every problem is reported. Pure.

use kb_types::filter::{Filter, Key, Test};
use kb_types::{Json, sizes};

/// The most bytes of all arguments.
const MOST_BYTES: usize = 1024 * 1024;
/// The most keys of a filter.
const MOST_KEYS: usize = 64;
/// How many members that a tool does not have are named in a message.
const MOST_UNKNOWN: usize = 8;
/// How much of a name is repeated in a message.
const SHOWN: usize = 64;

/// The members of the arguments that have not been read yet.
pub struct Arguments {
    members: Vec<(String, Json)>,
    problems: Vec<String>,
}

impl Arguments {
    /// Reads an object, or a string that contains one, as in the tool calls of OpenAI.
    pub fn new(given: Option<Json>) -> Result<Arguments, String> {
        let mut given = given.unwrap_or_else(Json::empty_object);
        if given.as_str().len() > MOST_BYTES {
            return Err(format!("the arguments have more than {MOST_BYTES} bytes"));
        }
        given.check().map_err(|problem| format!("the arguments: {problem}"))?;
        if let Some(text) = given.text() {
            let read = serde_json::from_str::<&serde_json::value::RawValue>(text.trim());
            given = match read {
                Ok(read) => Json::new(read.get()),
                Err(error) => return Err(format!("the arguments are not JSON: {error}")),
            };
            given.check().map_err(|problem| format!("the arguments: {problem}"))?;
        }
        match given.is_object().then(|| given.members()).flatten() {
            // Null means that a member is not given.
            Some(members) => Ok(Arguments {
                members: members.into_iter().filter(|(_, value)| value.as_str() != "null").collect(),
                problems: Vec::new(),
            }),
            None => Err("the arguments must be a JSON object".into()),
        }
    }

    /// The last of the members with this name.
    fn take(&mut self, key: &str) -> Option<Json> {
        let found = self.members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        self.members.retain(|(name, _)| name != key);
        found
    }

    /// A string.
    pub fn text(&mut self, key: &str) -> Option<String> {
        let text = self.take(key)?.text();
        match &text {
            None => self.problems.push(format!("{key} must be a string")),
            Some(text) if text.contains('\0') => {
                self.problems.push(format!("{key} contains a NUL character"))
            }
            Some(_) => {}
        }
        text
    }

    /// A string that is not blank.
    pub fn required_text(&mut self, key: &str) -> String {
        let before = self.problems.len();
        let text = self.text(key).unwrap_or_default();
        if text.trim().is_empty() && self.problems.len() == before {
            self.problems.push(format!("{key} is missing or empty"));
        }
        text
    }

    /// A whole number. What is beyond the range becomes the end of the range.
    pub fn integer(&mut self, key: &str, least: i32, most: i32) -> Option<i32> {
        let value = self.take(key)?;
        let number = match value.text() {
            // Some models write numbers as strings.
            Some(text) => text.trim().parse::<f64>().ok(),
            None => value.as_str().parse::<f64>().ok(),
        };
        match number.filter(|number| number.fract() == 0.0) {
            Some(number) => Some(number.clamp(f64::from(least), f64::from(most)) as i32),
            None => {
                self.problems.push(format!("{key} must be a whole number"));
                None
            }
        }
    }

    /// An object whose values are strings. Numbers and booleans are taken as their texts.
    pub fn strings(&mut self, key: &str, allowed: &[String]) -> Vec<(String, String)> {
        let Some(value) = self.take(key) else { return Vec::new() };
        if !value.is_object() {
            self.problems.push(format!("{key} must be an object whose values are strings"));
            return Vec::new();
        }
        let mut strings: Vec<(String, String)> = Vec::new();
        let members = value.members().unwrap_or_default();
        if members.len() > MOST_KEYS {
            self.problems.push(format!("{key} has more than {MOST_KEYS} keys"));
            return Vec::new();
        }
        for (name, value) in members {
            let shown = sizes::cut(&name, SHOWN);
            let text = match value.text() {
                Some(text) => text,
                None if value.as_str() == "null" => continue,
                None if value.is_scalar() => value.as_str().to_string(),
                None => {
                    self.problems.push(format!("{key}: the value of \"{shown}\" must be a string"));
                    continue;
                }
            };
            if !allowed.is_empty() && !allowed.contains(&name) {
                self.problems.push(format!(
                    "invalid {key}: metadata key \"{shown}\" is not allowed; allowed keys: {}",
                    allowed.join(", ")
                ));
            } else if name.contains('\0') || text.contains('\0') {
                self.problems.push(format!("{key}: \"{shown}\" contains a NUL character"));
            } else {
                strings.retain(|(known, _)| *known != name);
                strings.push((name, text));
            }
        }
        strings
    }

    /// Ends the reading. A member that was not read is a problem.
    pub fn finish(mut self) -> Result<(), String> {
        for (name, _) in self.members.iter().take(MOST_UNKNOWN) {
            self.problems.push(format!("\"{}\" is not an argument of this tool", sizes::cut(name, SHOWN)));
        }
        if let Some(more) = self.members.len().checked_sub(MOST_UNKNOWN).filter(|more| *more > 0) {
            self.problems.push(format!("{more} others are not, either"));
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems.join("; ")) }
    }
}

/// The condition that a key of metadata has this string. A number or boolean of the same text counts as well.
pub fn has_string(key: String, text: &str) -> Filter {
    let mut values = vec![Json::of_text(text)];
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let scalar = value.filter(|value| value.is_number() || value.is_boolean());
    if scalar.map(|scalar| scalar.to_string()).as_deref() == Some(text) {
        values.push(Json::new(text));
    }
    Filter::Is(Key::Metadata(key), Test::OneOf(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(given: &str) -> Result<Arguments, String> {
        Arguments::new(Some(Json::new(given)))
    }

    #[test]
    fn an_object_or_the_text_of_one_is_read_and_all_problems_are_reported() {
        for given in [r#"{"query": "a", "limit": 2}"#, r#""{\"query\": \"a\", \"limit\": 2}""#] {
            let mut read = arguments(given).unwrap();
            assert_eq!(
                (read.required_text("query"), read.integer("limit", 1, 9)),
                ("a".to_string(), Some(2))
            );
            assert_eq!(read.finish(), Ok(()));
        }
        for given in ["1", "[]", "null", "true", r#""{""#, r#""[1]""#, r#""""#] {
            assert!(arguments(given).is_err(), "{given}");
        }
        assert!(Arguments::new(None).unwrap().finish().is_ok());
        assert!(arguments(&format!(r#"{{"a": "{}"}}"#, "x".repeat(MOST_BYTES))).is_err());
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(arguments(&format!(r#"{{"a": {deep}}}"#)).is_err());
        let mut read =
            arguments(r#"{"query": 1, "limit": "many", "filter": {"a": {}}, "other": 1}"#).unwrap();
        read.required_text("query");
        read.integer("limit", 1, 9);
        read.strings("filter", &[]);
        let problems = read.finish().unwrap_err();
        for problem in ["query must be", "limit must be", "value of \"a\"", "\"other\" is not"] {
            assert!(problems.contains(problem), "{problem}: {problems}");
        }
    }

    #[test]
    fn a_message_about_many_members_is_short() {
        let members: Vec<String> = (0..50_000).map(|n| format!("\"m{n}\": 1")).collect();
        let problem = arguments(&format!("{{{}}}", members.join(", "))).unwrap().finish().unwrap_err();
        assert!(problem.len() < 1000 && problem.ends_with("; 49992 others are not, either"), "{problem}");
    }

    #[test]
    fn limits_are_brought_into_range() {
        let limit = |given: &str| arguments(&format!(r#"{{"n": {given}}}"#)).unwrap().integer("n", 0, 50);
        assert_eq!(
            [limit("-5"), limit("0"), limit("7"), limit("1e300"), limit("\" 8 \"")],
            [Some(0), Some(0), Some(7), Some(50), Some(8)]
        );
        assert_eq!([limit("null"), limit("1.5"), limit("true"), limit("\"NaN\"")], [None; 4]);
    }

    #[test]
    fn metadata_is_strings_of_the_allowed_keys() {
        let given = r#"{"metadata": {"n": 1, "b": true, "s": "x", "none": null}}"#;
        let read = arguments(given).unwrap().strings("metadata", &[]);
        let expected = [("n", "1"), ("b", "true"), ("s", "x")];
        assert_eq!(read, expected.map(|(key, text)| (key.to_string(), text.to_string())));
        let mut bound = arguments(given).unwrap();
        bound.strings("metadata", &["s".to_string(), "n".to_string()]);
        let problem = bound.finish().unwrap_err();
        assert_eq!(problem, "invalid metadata: metadata key \"b\" is not allowed; allowed keys: s, n");
    }

    #[test]
    fn a_string_equals_a_scalar_of_the_same_text() {
        let values = |text: &str| match has_string("k".into(), text) {
            Filter::Is(_, Test::OneOf(values)) => values.len(),
            _ => 0,
        };
        assert_eq!(
            ["1", "1.5", "true", "x", "null", "01", "1.50", "", "\"1\""].map(values),
            [2, 2, 2, 1, 1, 1, 1, 1, 1]
        );
    }
}
