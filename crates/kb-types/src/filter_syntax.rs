//! The filter language: the operators, their operands, and the short form.

use super::filter::{Bound, Comparison, Field, Filter, Key, Test};
use super::json::Json;
use super::timestamp;

/// The most values in a filter, nested ones included, because PostgreSQL compares each with every value of a
/// document's metadata.
const MAX_VALUES: usize = 1000;

/// The most bytes of a filter with its numbers written out, because each level is copied.
const MAX_BYTES: usize = 256 * 1024;

/// The most levels to which `and`, `or` and `not` may be nested.
const MAX_DEPTH: usize = 20;

/// The members that the long form can have.
const MEMBERS: [&str; 5] = ["type", "key", "value", "filter", "filters"];

const OPERATORS: [&str; 10] = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "exists"];

impl Filter {
    /// Reads a filter from JSON: `{"type": "eq", "key": …, "value": …}`, `{"type": "and", "filters": […]}`
    /// and so on, or the short form, an object of keys and the values they must have. The error says what is
    /// wrong, or that the filter would cost too much.
    pub fn parse(json: &Json) -> Result<Filter, String> {
        let bytes = json.as_str().len();
        if bytes > MAX_BYTES {
            return Err(format!("it has {bytes} bytes; at most {MAX_BYTES} are allowed"));
        }
        let values = json.leaves();
        if values > MAX_VALUES {
            return Err(format!("it has {values} values; at most {MAX_VALUES} are allowed"));
        }
        Filter::parse_at(json, 0)
    }

    fn parse_at(json: &Json, depth: usize) -> Result<Filter, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} levels deep"));
        }
        let Some(members) = json.members() else {
            return Err(
                "must be a JSON object: keys and the values they must have, or type, key and value".into()
            );
        };
        let get = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let parts = |list: &Json| -> Result<Vec<Filter>, String> {
            let parts = list.elements().ok_or("filters must be an array")?;
            parts.iter().map(|part| Filter::parse_at(part, depth + 1)).collect()
        };
        let operator = get("type").and_then(Json::text);
        let takes: &[&str] = match operator.as_deref() {
            None => return Filter::short(&members),
            // A key of metadata may be named "type".
            Some(_) if members.len() == 1 => return Filter::short(&members),
            Some("and" | "or") => &["type", "filters"],
            Some("not") => &["type", "filter"],
            Some(operator) if OPERATORS.contains(&operator) => &["type", "key", "value"],
            Some(operator) => {
                if !members.iter().any(|(key, _)| MEMBERS[1..].contains(&key.as_str())) {
                    return Filter::short(&members);
                }
                return Err(format!(
                    "unknown type \"{operator}\"; known types are and, or, not, {}",
                    OPERATORS.join(", ")
                ));
            }
        };
        let operator = operator.unwrap_or_default();
        if let Some((wrong, _)) = members.iter().find(|(key, _)| !takes.contains(&key.as_str())) {
            return Err(format!("type \"{operator}\" takes {}, not \"{wrong}\"", takes[1..].join(" and ")));
        }
        let given = |name: &str| get(name).ok_or_else(|| format!("type \"{operator}\" takes {name}"));
        Ok(match operator.as_str() {
            "and" => Filter::All(parts(given("filters")?)?),
            "or" => Filter::Any(parts(given("filters")?)?),
            "not" => Filter::Not(Box::new(Filter::parse_at(given("filter")?, depth + 1)?)),
            operator => {
                let key = given("key")?.text().ok_or("key must be a string")?;
                condition(operator, Key::parse(&key)?, get("value"))?
            }
        })
    }

    /// Every key with its value.
    fn short(members: &[(String, Json)]) -> Result<Filter, String> {
        let equals = |(key, value): &(String, Json)| condition("eq", Key::parse(key)?, Some(value));
        Ok(Filter::All(members.iter().map(equals).collect::<Result<_, _>>()?))
    }
}

impl Key {
    /// Reads the name of a key. The name of a field begins with `$`, and `$$` is the `$` that a key of
    /// metadata begins with.
    pub fn parse(name: &str) -> Result<Key, String> {
        let Some(field) = name.strip_prefix('$') else { return Ok(Key::Metadata(name.into())) };
        Ok(match field {
            "external_id" => Key::Field(Field::ExternalId),
            "uri" => Key::Field(Field::Uri),
            "title" => Key::Field(Field::Title),
            "content_type" => Key::Field(Field::ContentType),
            "created_at" => Key::Field(Field::CreatedAt),
            "tags" => Key::Metadata("tags".into()),
            _ if field.starts_with('$') => Key::Metadata(field.into()),
            _ => {
                return Err(format!(
                    "unknown field \"{name}\"; known fields are $external_id, $uri, $title, $created_at, $content_type \
                     and $tags; a key of metadata that begins with $ is written with $$"
                ));
            }
        })
    }
}

/// The condition of an operator, on what `key` names.
fn condition(operator: &str, key: Key, value: Option<&Json>) -> Result<Filter, String> {
    let given = || value.ok_or_else(|| format!("{operator} takes a value"));
    let test = match operator {
        "eq" => return equals(key, std::slice::from_ref(given()?)),
        "ne" => return equals(key, std::slice::from_ref(given()?)).map(not),
        "in" | "nin" => {
            let values = given()?.elements().ok_or_else(|| format!("{operator} takes an array of values"))?;
            let is_one = equals(key, &values)?;
            return Ok(if operator == "in" { is_one } else { not(is_one) });
        }
        "contains" => contains(&key, given()?)?,
        "exists" => match value.map(Json::as_str) {
            None | Some("true") => Test::Exists,
            Some("false") => return Ok(not(Filter::Is(key, Test::Exists))),
            Some(_) => return Err("exists takes true or false, or no value".into()),
        },
        "gt" => Test::Compares(Comparison::Greater, bound(operator, &key, given()?)?),
        "gte" => Test::Compares(Comparison::GreaterOrEqual, bound(operator, &key, given()?)?),
        "lt" => Test::Compares(Comparison::Less, bound(operator, &key, given()?)?),
        _ => Test::Compares(Comparison::LessOrEqual, bound(operator, &key, given()?)?),
    };
    Ok(Filter::Is(key, test))
}

fn not(part: Filter) -> Filter {
    Filter::Not(Box::new(part))
}

/// Tests that a value is one of these. Timestamps in metadata are compared by time, as gt and lt compare
/// them.
fn equals(key: Key, values: &[Json]) -> Result<Filter, String> {
    if key == Key::Field(Field::CreatedAt) {
        let times = values.iter().map(time).collect::<Result<_, _>>()?;
        return Ok(Filter::Is(key, Test::At(times)));
    }
    if let Key::Field(field) = key {
        let is_text = |value: &Json| value.as_str() == "null" || value.text().is_some();
        return match values.iter().all(is_text) {
            true => Ok(Filter::Is(key, one_of(values.to_vec()))),
            false => Err(format!("{} must be compared with a string or null", field.name())),
        };
    }
    let (mut times, mut others) = (Vec::new(), Vec::new());
    for value in values {
        match value.text().and_then(|text| timestamp::microseconds(&text)) {
            Some(time) => times.push(time),
            None => others.push(value.clone()),
        }
    }
    Ok(match (times.is_empty(), others.is_empty()) {
        (true, _) => Filter::Is(key, one_of(others)),
        (false, true) => Filter::Is(key, Test::At(times)),
        (false, false) => {
            let is_other = Filter::Is(key.clone(), one_of(others));
            Filter::Any(vec![is_other, Filter::Is(key, Test::At(times))])
        }
    })
}

fn one_of(values: Vec<Json>) -> Test {
    match <[Json; 1]>::try_from(values) {
        Ok([value]) => Test::Equals(value),
        Err(values) => Test::OneOf(values),
    }
}

fn contains(key: &Key, value: &Json) -> Result<Test, String> {
    if let Key::Field(field) = key {
        return Err(format!("contains applies to arrays in metadata, not to {}", field.name()));
    }
    let values = value.elements().unwrap_or_else(|| vec![value.clone()]);
    match values.iter().all(Json::is_scalar) {
        true => Ok(Test::Contains(values)),
        false => Err("contains takes a string, number, boolean or null, or an array of these".into()),
    }
}

/// The operand of gt, gte, lt or lte.
fn bound(operator: &str, key: &Key, value: &Json) -> Result<Bound, String> {
    if *key == Key::Field(Field::CreatedAt) {
        return time(value).map(Bound::Time);
    }
    let text = value.text();
    match (key, text) {
        (Key::Metadata(_), Some(text)) => match timestamp::microseconds(&text) {
            Some(time) => Ok(Bound::Time(time)),
            None if timestamp::is_like_one(&text) => {
                Err("it looks like a timestamp, but is not a valid one".into())
            }
            None => Ok(Bound::Text(text)),
        },
        (Key::Field(_), Some(text)) => Ok(Bound::Text(text)),
        (Key::Field(field), None) => Err(format!("{} must be compared with a string", field.name())),
        (Key::Metadata(_), None) if value.is_number() => Ok(Bound::Number(value.clone())),
        (Key::Metadata(_), None) => Err(format!("{operator} takes a number, a string or a timestamp")),
    }
}

fn time(value: &Json) -> Result<i64, String> {
    value.text().and_then(|text| timestamp::microseconds(&text)).ok_or_else(|| {
        "$created_at must be compared with a timestamp such as \"2024-12-31T23:59:59Z\"".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(filter: Value) -> Result<Filter, String> {
        Filter::parse(&Json::new(filter.to_string()))
    }

    fn equals(key: &str, value: &str) -> Filter {
        Filter::Is(Key::Metadata(key.into()), Test::Equals(Json::new(value)))
    }

    #[test]
    fn a_filter_of_too_many_values_is_refused_however_they_are_nested() {
        let many: Vec<usize> = (0..MAX_VALUES).collect();
        let keys: serde_json::Map<String, Value> = many.iter().map(|i| (format!("k{i}"), json!(i))).collect();
        assert!(parse(json!({"a": 1, "b": {"c": [1, "x", null]}})).is_ok());
        assert!(parse(Value::Object(keys.clone())).is_ok());
        let more: Vec<usize> = (0..=MAX_VALUES).collect();
        let empty = vec![json!({}); MAX_VALUES + 1];
        let (more, empty) = (json!({"a": more}), json!({"a": empty}));
        for filter in [more, empty, json!({"a": {"b": [keys]}, "c": 1}), json!([1]), json!("x")] {
            assert!(parse(filter.clone()).is_err(), "{filter}");
        }
        let nested = |levels: usize| {
            (0..levels).fold(json!({"a": 1}), |part, _| json!({"type": "not", "filter": part}))
        };
        assert!(parse(nested(MAX_DEPTH)).is_ok());
        assert!(parse(nested(MAX_DEPTH + 1)).is_err());
    }

    #[test]
    fn the_short_form_is_every_key_with_its_value_as_it_was_written() {
        let filter = Filter::parse(&Json::new(r#"{"a\"b": 1.50, "c": {"d": [1, "}"]}}"#)).unwrap();
        assert_eq!(filter, Filter::All(vec![equals("a\"b", "1.50"), equals("c", r#"{"d": [1, "}"]}"#)]));
        assert!(!filter.is_always());
        let parsed = |filter: Value| parse(filter).unwrap();
        let nothing = json!({"type": "or", "filters": []});
        for all in [
            json!({}),
            json!({"type": "nin", "key": "a", "value": []}),
            json!({"type": "nin", "key": "$created_at", "value": []}),
            json!({"type": "and", "filters": [{}]}),
            json!({"type": "or", "filters": [{"a": 1}, {}]}),
            json!({"type": "not", "filter": nothing}),
        ] {
            assert!(parsed(all.clone()).is_always(), "{all}");
        }
        assert!(
            !parsed(nothing).is_always()
                && !parsed(json!({"type": "ne", "key": "a", "value": 1})).is_always()
        );
        // Keys of metadata may have these names.
        assert_eq!(parse(json!({"type": "report"})), Ok(Filter::All(vec![equals("type", "\"report\"")])));
        assert_eq!(parse(json!({"type": "or"})), Ok(Filter::All(vec![equals("type", "\"or\"")])));
        assert_eq!(parse(json!({"key": "a"})), Ok(Filter::All(vec![equals("key", "\"a\"")])));
    }

    #[test]
    fn the_long_form_has_operators_and_combines_them() {
        let number = |comparison, text| Test::Compares(comparison, Bound::Number(Json::new(text)));
        let filter = parse(json!({"type": "and", "filters": [
            {"type": "eq", "key": "lang", "value": "en"}, {"type": "gte", "key": "year", "value": 2024},
            {"type": "or", "filters": [{"type": "nin", "key": "n", "value": [1, 2]}, {"lang": "de"}]}]}));
        let is = |key: &str, test| Filter::Is(Key::Metadata(key.into()), test);
        let one_of = Test::OneOf(vec![Json::new("1"), Json::new("2")]);
        let expected = Filter::All(vec![
            equals("lang", "\"en\""),
            is("year", number(Comparison::GreaterOrEqual, "2024")),
            Filter::Any(vec![
                Filter::Not(Box::new(is("n", one_of))),
                Filter::All(vec![equals("lang", "\"de\"")]),
            ]),
        ]);
        assert_eq!(filter.as_ref(), Ok(&expected));
        assert_eq!(filter.unwrap().metadata_keys(), ["lang", "year", "n", "lang"]);
    }

    #[test]
    fn fields_are_named_with_a_dollar() {
        let key = |name: &str| match parse(json!({"type": "exists", "key": name})) {
            Ok(Filter::Is(key, Test::Exists)) => Ok(key),
            Ok(other) => Err(format!("{other:?}")),
            Err(problem) => Err(problem),
        };
        assert_eq!(key("$title"), Ok(Key::Field(Field::Title)));
        assert_eq!(key("$tags"), Ok(Key::Metadata("tags".into())));
        assert_eq!(key("$$ref"), Ok(Key::Metadata("$ref".into())));
        assert!(key("$nothing").unwrap_err().contains("$external_id"));
        assert!(parse(json!({"$nothing": 1})).is_err());
        let is = |test| Filter::Is(Key::Field(Field::CreatedAt), test);
        assert_eq!(
            parse(json!({"type": "gt", "key": "$created_at", "value": "1970-01-01T00:00:01Z"})),
            Ok(is(Test::Compares(Comparison::Greater, Bound::Time(1_000_000))))
        );
    }

    #[test]
    fn in_accepts_any_number_of_values() {
        let test = |values: Value| match parse(json!({"type": "in", "key": "a", "value": values})) {
            Ok(Filter::Is(_, test)) => test,
            other => panic!("{other:?}"),
        };
        assert_eq!(test(json!([1])), Test::Equals(Json::new("1")));
        assert_eq!(test(json!([])), Test::OneOf(Vec::new()));
        assert_eq!(
            test(json!([{"a": [1]}, null])),
            Test::OneOf(vec![Json::new("{\"a\":[1]}"), Json::new("null")])
        );
    }

    #[test]
    fn timestamps_are_equal_by_time_and_other_values_as_json() {
        let is = |key: &str, test| Filter::Is(Key::Metadata(key.into()), test);
        let at = |seconds: i64| Test::At(vec![seconds * 1_000_000]);
        let eq = |operator: &str, value: Value| parse(json!({"type": operator, "key": "a", "value": value}));
        assert_eq!(eq("eq", json!("1970-01-01T01:00:01+01:00")), Ok(is("a", at(1))));
        assert_eq!(eq("ne", json!("1970-01-01")), Ok(Filter::Not(Box::new(is("a", at(0))))));
        assert_eq!(parse(json!({"a": "1970-01-01 00:00:01"})), Ok(Filter::All(vec![is("a", at(1))])));
        let mixed = Filter::Any(vec![is("a", Test::Equals(Json::new("\"x\""))), is("a", at(0))]);
        assert_eq!(eq("in", json!(["1970-01-01", "x"])), Ok(mixed.clone()));
        assert_eq!(eq("nin", json!(["1970-01-01", "x"])), Ok(Filter::Not(Box::new(mixed))));
        // These are not timestamps, and a title is always a text.
        for text in ["1970", "1970-02-30", "1970-01-01x"] {
            let value = Json::new(json!(text).to_string());
            assert_eq!(eq("eq", json!(text)), Ok(is("a", Test::Equals(value))), "{text}");
        }
        let title = Filter::Is(Key::Field(Field::Title), Test::Equals(Json::new("\"1970-01-01\"")));
        assert_eq!(parse(json!({"$title": "1970-01-01"})), Ok(Filter::All(vec![title])));
    }

    #[test]
    fn a_malformed_filter_is_refused_with_the_reason() {
        for (wrong, word) in [
            (json!({"type": "equals", "key": "a", "value": 1}), "equals"),
            (json!({"type": "exist", "key": "a"}), "exist"),
            (json!({"type": "eq", "field": "a", "value": 1}), "field"),
            (json!({"type": "ne", "value": 1}), "key"),
            (json!({"type": "eq", "key": 5, "value": 1}), "key"),
            (json!({"type": "eq", "key": "a", "value": 1, "filter": {}}), "filter"),
            (json!({"type": "and", "filters": [], "key": "x"}), "key"),
            (json!({"type": "or", "fliters": []}), "fliters"),
            (json!({"type": "gt", "key": "a", "value": "2024-01-01T24:00:00Z"}), "timestamp"),
            (json!({"type": "eq", "key": "a", "value": "x".repeat(MAX_BYTES)}), "bytes"),
            (json!({"type": "eq", "key": "a"}), "value"),
            (json!({"type": "in", "key": "a", "value": 1}), "array"),
            (json!({"type": "gt", "key": "a", "value": true}), "number"),
            (json!({"type": "gt", "key": "a", "value": null}), "number"),
            (json!({"type": "and", "filters": {"a": 1}}), "array"),
            (json!({"type": "and", "filter": {"a": 1}}), "filters"),
            (json!({"type": "not", "filters": [{"a": 1}]}), "filter"),
            (json!({"type": "xor", "filters": [{"a": 1}]}), "xor"),
            (json!({"type": "and", "filters": [1]}), "object"),
            (json!({"type": "eq", "key": "a", "value": 1, "more": 2}), "more"),
            (json!({"type": "contains", "key": "a", "value": {"b": 1}}), "contains"),
            (json!({"type": "contains", "key": "$title", "value": "a"}), "$title"),
            (json!({"type": "exists", "key": "a", "value": 1}), "exists"),
            (json!({"type": "gt", "key": "$title", "value": 1}), "string"),
            (json!({"type": "gt", "key": "$created_at", "value": "yesterday"}), "2024"),
            (json!({"$created_at": 5}), "2024"),
            (json!({"$title": 5}), "string"),
        ] {
            let problem = parse(wrong.clone()).unwrap_err();
            assert!(problem.contains(word), "{wrong}: {problem}");
        }
    }
}
