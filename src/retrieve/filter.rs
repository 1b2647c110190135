//! What a filter may be.

use crate::error::{Error, Result};
use crate::model::Json;

/// Values at most, nested ones too: PostgreSQL compares each with every value of a document's metadata.
const MAX_VALUES: usize = 1000;

/// Refuses what is no filter or would cost too much.
pub fn check(filter: &Json) -> Result<()> {
    let fault = |problem: String| Err(Error::Argument { argument: "filter", problem });
    if !filter.is_object() {
        return fault("must be a JSON object of metadata keys and the values they must have".into());
    }
    let values = filter.values();
    if values > MAX_VALUES {
        return fault(format!("it has {values} values; at most {MAX_VALUES} are taken"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_filter_of_too_many_values_is_refused_however_they_are_nested() {
        let many: Vec<usize> = (0..MAX_VALUES).collect();
        let keys: serde_json::Map<String, Value> = many.iter().map(|i| (format!("k{i}"), json!(i))).collect();
        let check = |filter: Value| check(&Json::new(filter.to_string()));
        assert!(check(json!({"a": 1, "b": {"c": [1, "x", null]}})).is_ok());
        assert!(check(Value::Object(keys.clone())).is_ok());
        let more: Vec<usize> = (0..=MAX_VALUES).collect();
        let empty = vec![json!({}); MAX_VALUES + 1];
        let (more, empty) = (json!({"a": more}), json!({"a": empty}));
        for filter in [more, empty, json!({"a": {"b": [keys]}, "c": 1}), json!([1]), json!("x")] {
            let error = check(filter).unwrap_err();
            assert_eq!(error.sqlstate(), "22023");
        }
    }
}
