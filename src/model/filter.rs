//! A filter: what the metadata of a document must be, as a tree. A store compiles it.

use super::json::Json;

/// Values at most, nested ones too: PostgreSQL compares each with every value of a document's metadata.
const MAX_VALUES: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Each of these holds; of none, always.
    All(Vec<Filter>),
    /// The metadata has this key with this value, an object or array with nothing more in it.
    Equals { key: String, value: Json },
}

impl Filter {
    /// From the short form, an object of keys and the values they must have. The error says what is wrong with it, or
    /// that it would cost too much.
    pub fn parse(json: &Json) -> Result<Filter, String> {
        let Some(members) = json.members() else {
            return Err("must be a JSON object of metadata keys and the values they must have".into());
        };
        let values = json.values();
        if values > MAX_VALUES {
            return Err(format!("it has {values} values; at most {MAX_VALUES} are taken"));
        }
        Ok(Filter::All(members.into_iter().map(|(key, value)| Filter::Equals { key, value }).collect()))
    }

    /// Whether every document passes.
    pub fn is_empty(&self) -> bool {
        matches!(self, Filter::All(parts) if parts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_filter_of_too_many_values_is_refused_however_they_are_nested() {
        let many: Vec<usize> = (0..MAX_VALUES).collect();
        let keys: serde_json::Map<String, Value> = many.iter().map(|i| (format!("k{i}"), json!(i))).collect();
        let parse = |filter: Value| Filter::parse(&Json::new(filter.to_string()));
        assert!(parse(json!({"a": 1, "b": {"c": [1, "x", null]}})).is_ok());
        assert!(parse(Value::Object(keys.clone())).is_ok());
        let more: Vec<usize> = (0..=MAX_VALUES).collect();
        let empty = vec![json!({}); MAX_VALUES + 1];
        let (more, empty) = (json!({"a": more}), json!({"a": empty}));
        for filter in [more, empty, json!({"a": {"b": [keys]}, "c": 1}), json!([1]), json!("x")] {
            assert!(parse(filter.clone()).is_err(), "{filter}");
        }
    }

    #[test]
    fn the_short_form_is_every_key_with_its_value_as_it_was_written() {
        let filter = Filter::parse(&Json::new(r#"{"a\"b": 1.50, "c": {"d": [1, "}"]}}"#)).unwrap();
        let equals = |key: &str, value: &str| Filter::Equals { key: key.into(), value: Json::new(value) };
        assert_eq!(filter, Filter::All(vec![equals("a\"b", "1.50"), equals("c", r#"{"d": [1, "}"]}"#)]));
        assert!(!filter.is_empty());
        assert!(Filter::parse(&Json::empty_object()).unwrap().is_empty());
    }
}
