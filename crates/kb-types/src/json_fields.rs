//! Which values of a JSON document are its text.

use super::json_path::JsonPath;
use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most paths in one setting, and the most types with a setting of their own.
const MAX_PATHS: usize = 32;
const MAX_TYPES: usize = 1000;

/// Which of an object's standard members (`text`, `content` and others) make up its text where no path is
/// included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StandardMembers {
    /// All that have text, joined by spaces.
    #[default]
    All,
    /// The first one that has text.
    First,
}

crate::named!(StandardMembers { All => "all", First => "first" });

impl StandardMembers {
    fn is_default(&self) -> bool {
        *self == StandardMembers::default()
    }
}

/// Selects the values at the included paths, or the standard members where no path is included, except for
/// the values at the excluded paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonFields {
    #[serde(default)]
    pub include: Vec<JsonPath>,
    #[serde(default)]
    pub exclude: Vec<JsonPath>,
    #[serde(default, skip_serializing_if = "StandardMembers::is_default")]
    pub members: StandardMembers,
}

impl JsonFields {
    /// Reads `{"include": [path, …], "exclude": [path, …], "members": "all" or "first"}`; null is read as
    /// {}. The error lists every problem.
    pub fn parse(name: &str, value: &Value) -> Result<JsonFields, Vec<String>> {
        let mut fields = Fields::new(name, value);
        let parsed = JsonFields::take(&mut fields);
        match fields.finish() {
            problems if problems.is_empty() => Ok(parsed),
            problems => Err(problems),
        }
    }

    fn take(fields: &mut Fields) -> JsonFields {
        let mut paths = |key: &'static str| -> Vec<JsonPath> {
            let texts = fields.texts(key).unwrap_or_default();
            if texts.len() > MAX_PATHS {
                fields.problem(
                    key,
                    format_args!("it has {} paths; at most {MAX_PATHS} are allowed", texts.len()),
                );
                return Vec::new();
            }
            let parse =
                |text: &String| JsonPath::parse(text).map_err(|problem| fields.problem(key, problem)).ok();
            texts.iter().filter_map(parse).collect()
        };
        let (include, exclude) = (paths("include"), paths("exclude"));
        let members: Option<StandardMembers> = fields.named("members");
        if members.is_some() && !include.is_empty() {
            fields.problem("members", "has no effect where include names paths");
        }
        JsonFields { include, exclude, members: members.unwrap_or_default() }
    }
}

/// The same for rows, where a column can name the type of each row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowJsonFields {
    /// Applies to rows whose type is not listed in `types`.
    #[serde(flatten)]
    pub other: JsonFields,
    /// The column that holds the type.
    #[serde(default)]
    pub type_column: Option<String>,
    #[serde(default)]
    pub types: BTreeMap<String, JsonFields>,
}

impl RowJsonFields {
    /// Reads
    /// `{"include": …, "exclude": …, "members": …, "type_column": name, "types": {type: {"include": …}, …}}`.
    pub fn parse(name: &str, value: &Value) -> Result<RowJsonFields, Vec<String>> {
        let mut fields = Fields::new(name, value);
        let other = JsonFields::take(&mut fields);
        let type_column = fields.text("type_column");
        let mut types = BTreeMap::new();
        let given = fields.object("types");
        if given.is_some() != type_column.is_some() {
            fields.problem("types", "types and type_column must be given together");
        }
        if let Some(Value::Object(given)) = given {
            if given.len() > MAX_TYPES {
                fields.problem(
                    "types",
                    format_args!("it has {} types; at most {MAX_TYPES} are allowed", given.len()),
                );
            }
            for (typ, value) in given.iter().take(MAX_TYPES) {
                match JsonFields::parse(&format!("{name}.types.{typ}"), value) {
                    Ok(parsed) => drop(types.insert(typ.clone(), parsed)),
                    Err(problems) => fields.problems.extend(problems),
                }
            }
        }
        match fields.finish() {
            problems if problems.is_empty() => Ok(RowJsonFields { other, type_column, types }),
            problems => Err(problems),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == RowJsonFields::default()
    }

    /// The setting that applies to a row of this type.
    pub fn of(&self, typ: Option<&str>) -> &JsonFields {
        typ.and_then(|typ| self.types.get(typ)).unwrap_or(&self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_type_has_its_own_paths_and_the_others_the_rest() {
        let given = json!({"exclude": ["$.id"], "type_column": "schema", "types": {"post": {"include": ["$.body"]}, "page": {"members": "first"}}});
        let fields = RowJsonFields::parse("json_fields", &given).unwrap();
        assert_eq!(fields.of(Some("post")).include, [JsonPath::parse("$.body").unwrap()]);
        assert_eq!(fields.of(Some("page")).members, StandardMembers::First);
        for typ in [Some("other"), None] {
            assert_eq!(fields.of(typ).exclude, [JsonPath::parse("$.id").unwrap()]);
            assert!(fields.of(typ).include.is_empty());
            assert_eq!(fields.of(typ).members, StandardMembers::All);
        }
        let stored = serde_json::to_value(&fields).unwrap();
        assert_eq!(serde_json::from_value::<RowJsonFields>(stored).unwrap(), fields);
        assert_eq!(RowJsonFields::parse("json_fields", &Value::Null).unwrap(), RowJsonFields::default());
    }

    #[test]
    fn all_problems_are_reported_together() {
        let given =
            json!({"include": "$.a", "exclude": ["b", 1], "types": {"post": {"includes": []}}, "more": 1});
        let problems = RowJsonFields::parse("json_fields", &given).unwrap_err().join("\n");
        for says in [
            "json_fields.include: must be an array",
            "exclude: must be an array",
            "json_fields.types.post.includes: unknown",
            "must be given together",
            "json_fields.more: unknown",
        ] {
            assert!(problems.contains(says), "{says}: {problems}");
        }
        let problems = JsonFields::parse("fields", &json!({"exclude": ["b"]})).unwrap_err();
        assert_eq!(problems, ["fields.exclude: \"b\": a path begins with $"]);
        for (wrong, says) in [
            (json!({"members": "some"}), "fields.members"),
            (json!({"members": "first", "include": ["$.a"]}), "fields.members: has no effect"),
        ] {
            let problems = JsonFields::parse("fields", &wrong).unwrap_err().join("\n");
            assert!(problems.contains(says), "{problems}");
        }
        let many = vec!["$.a"; MAX_PATHS + 1];
        assert!(JsonFields::parse("fields", &json!({"include": many})).is_err());
    }
}
