//! Filters and metadata: JSON that is passed on as text is unchanged, and what `Json` reports about it is
//! true. SQL decides what a filter keeps, which tests/live/filters.rs tests.

use super::Target;
use crate::memory::{Limits, measure};
use kb_types::filter::{Filter, Key, Test};
use kb_types::json::Json;
use kb_types::timestamp;
use serde_json::Value;

pub const TARGET: Target = Target {
    name: "filters",
    run,
    seeds: || {
        let not = "{\"type\":\"not\",\"filter\":";
        vec![
            format!("{}1{}", "{\"a\":[".repeat(60), "]}".repeat(60)).into_bytes(),
            format!("{}{{\"$title\":null}}{}", not.repeat(20), "}".repeat(20)).into_bytes(),
            br#"{"type":"or","filters":[{"type":"gte","key":"$created_at","value":"2024-01-01T00:00:00Z"},{"type":"in","key":"$$a","value":[1,"x",[]]}]}"#.to_vec(),
        ]
    },
    words: r##"
        { } [ ] , : "a": "": "a\"b": "\\": "é": "\u0000" "\ud83e\udd80" "[{" null true 1 -0.0 1.50 1e308
        1e400 12345678901234567890123 0.1234567890123456789 {"a":1} {"type":"and","filters":[
        {"type":"not","filter": {"type":"lt","key":"a","value": {"type":"contains","key":"$tags","value":
        "$uri": "2024-02-29␣10:00:00+01" [[[[[[[[ ]]]]]]]] ␣ ⏎ \ "
    "##,
};

const LIMITS: Limits = Limits { bytes: (1 << 16, 100), allocations: (500, 4) };

fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Any text is tried, although PostgreSQL passes nothing but JSON.
    said_of(&Json::new(text), text.len());
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    // As in PostgreSQL, each key is kept once.
    let mut json = Json::new(value.to_string());
    let is_container = |value: &Value| value.is_object() || value.is_array();
    assert_eq!(json.is_object(), value.is_object());
    assert_eq!(json.is_scalar(), !is_container(&value));
    assert_eq!(json.leaves(), leaves(&value), "{json}");
    if let Value::Array(items) = &value {
        let expected: Vec<Json> = items.iter().map(|item| Json::new(item.to_string())).collect();
        assert_eq!(json.elements(), Some(expected.clone()), "{json}");
        assert_eq!(Json::array(&expected).elements(), Some(expected));
    }
    if let Ok(read) = json.value() {
        assert_eq!(read, value, "read as something else");
    }
    let Value::Object(mut members) = value else { return };
    let pairs = json.members().unwrap();
    let expected = members.iter().map(|(key, value)| (key.clone(), Json::new(value.to_string())));
    assert_eq!(pairs, expected.collect::<Vec<_>>(), "{json}");
    let filter = Filter::parse(&json);
    let is_short = |(key, _): &(String, Json)| key != "type" && !key.starts_with('$');
    if let Ok(Filter::All(parts)) = &filter
        && pairs.iter().all(is_short)
    {
        let equals = |(key, value): (String, Json)| {
            let time = value.text().and_then(|text| timestamp::microseconds(&text));
            Filter::Is(Key::Metadata(key), time.map_or(Test::Equals(value), |time| Test::At(vec![time])))
        };
        assert_eq!(*parts, pairs.into_iter().map(equals).collect::<Vec<_>>(), "{json}");
    }
    // This is longer than any key of it.
    let absent = format!("{json}.");
    assert_eq!(json.take(&absent), None);
    while let Some(key) = members.keys().nth(members.len() / 2).cloned() {
        let expected = members.remove(&key).unwrap();
        let taken = json.take(&key).unwrap();
        assert_eq!(taken.as_str(), expected.to_string(), "{key:?} of {json}");
        let rest: Vec<(&String, Json)> =
            members.iter().map(|(key, value)| (key, Json::new(value.to_string()))).collect();
        assert_eq!(json, Json::object(&rest), "without {key:?}");
        if members.len() > 64 {
            return;
        }
    }
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(leaves).sum(),
        Value::Object(members) if !members.is_empty() => members.values().map(leaves).sum(),
        _ => 1,
    }
}

fn said_of(json: &Json, size: usize) {
    let (_, cost) =
        measure(|| (json.is_object(), json.leaves(), json.is_scalar(), json.members(), json.value()));
    cost.within(&LIMITS, size);
}
