//! The filter language against a plain model of it: random filters keep the same ones of random documents.

use crate::filter_plans::until_metadata_indexes;
use crate::support::random::Rng;
use crate::support::{APP, Db, WHOLE};
use serde_json::{Value, json};

const CASES: usize = 10_000;
const DOCUMENTS: usize = 80;
const KEYS: &[&str] = &["a", "b", "é \"'", "$x", "tags"];
/// The values that are timestamps, with their times.
const TIMES: [(&str, i64); 4] = [
    ("2024-01-01", 1_704_067_200),
    ("2024-01-01T00:00:00Z", 1_704_067_200),
    ("2024-01-01T00:30:00+01:00", 1_704_065_400),
    ("2025-06-01 12:00:00.5", 1_748_779_200),
];

#[derive(Debug)]
struct Document {
    external_id: String,
    title: Option<String>,
    uri: Option<String>,
    content_type: &'static str,
    created_at: &'static str,
    metadata: Value,
}

fn scalar(random: &mut Rng) -> Value {
    match random.usize(..9) {
        0 => json!(null),
        1 => json!(random.usize(..2) == 0),
        2 => json!(*random.choice(&[-1.5, 1e10, 0.1]).unwrap()),
        3..=5 => json!(random.usize(..4) as i64 - 1),
        6 => json!(random.choice(&TIMES).unwrap().0),
        _ => json!(*random.choice(&["", "a", "A", "b", "é", "\u{1F600}", "a'; --", "2024", "1"]).unwrap()),
    }
}

fn value(random: &mut Rng) -> Value {
    match random.usize(..8) {
        0 | 1 => (0..random.usize(..4)).map(|_| scalar(random)).collect(),
        2 => json!({*random.choice(&["a", "b"]).unwrap(): scalar(random)}),
        3 => json!([[scalar(random)], {"a": scalar(random)}]),
        _ => scalar(random),
    }
}

fn document(random: &mut Rng, number: usize) -> Document {
    let mut metadata = json!({});
    for key in KEYS {
        if random.usize(..3) > 0 {
            metadata[key] = value(random);
        }
    }
    let maybe = |random: &mut Rng, text: &str| {
        (random.usize(..3) > 0).then(|| format!("{text}{}", random.usize(..5)))
    };
    Document {
        external_id: format!("d{number}"),
        title: maybe(random, "Title "),
        uri: maybe(random, "uri:"),
        content_type: ["text/plain", "text/markdown"][random.usize(..2)],
        created_at: random.choice(&TIMES).unwrap().0,
        metadata,
    }
}

fn filter(random: &mut Rng, depth: usize) -> Value {
    let parts =
        |random: &mut Rng| (0..random.usize(..4)).map(|_| filter(random, depth - 1)).collect::<Value>();
    match random.usize(..if depth == 0 { 6 } else { 10 }) {
        6 => json!({"type": "and", "filters": parts(random)}),
        7 => json!({"type": "or", "filters": parts(random)}),
        8 => json!({"type": "not", "filter": filter(random, depth - 1)}),
        9 => {
            let mut short = json!({});
            for _ in 0..1 + random.usize(..2) {
                short[name(KEYS[random.usize(..KEYS.len())])] = value(random);
            }
            short
        }
        5 => field(random),
        _ => {
            let key = name(KEYS[random.usize(..KEYS.len())]);
            match *random
                .choice(&["eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "exists"])
                .unwrap()
            {
                "exists" => json!({"type": "exists", "key": key, "value": random.usize(..2) == 0}),
                operator @ ("in" | "nin") => {
                    // More than are looked up one by one.
                    let count = if random.usize(..8) == 0 { 40 } else { random.usize(..4) };
                    let values: Value = (0..count).map(|_| value(random)).collect();
                    json!({"type": operator, "key": key, "value": values})
                }
                operator @ ("gt" | "gte" | "lt" | "lte") => {
                    let bound = loop {
                        let bound = scalar(random);
                        if bound.is_number() || bound.is_string() {
                            break bound;
                        }
                    };
                    json!({"type": operator, "key": key, "value": bound})
                }
                "contains" if random.usize(..2) == 0 => {
                    let values: Value = (0..random.usize(..3)).map(|_| scalar(random)).collect();
                    json!({"type": "contains", "key": key, "value": values})
                }
                "contains" => json!({"type": "contains", "key": key, "value": scalar(random)}),
                operator => json!({"type": operator, "key": key, "value": value(random)}),
            }
        }
    }
}

/// In the form in which a filter names a key of metadata.
fn name(key: &str) -> String {
    if key.starts_with('$') { format!("${key}") } else { key.to_string() }
}

fn field(random: &mut Rng) -> Value {
    let key =
        *random.choice(&["$external_id", "$title", "$uri", "$content_type", "$created_at", "$tags"]).unwrap();
    if key == "$tags" {
        return json!({"type": "contains", "key": key, "value": scalar(random)});
    }
    let some = |random: &mut Rng| match key {
        "$created_at" if random.usize(..4) == 0 => {
            json!(*random.choice(&["1999-12-31", "2999-01-01T00:00:00Z"]).unwrap())
        }
        "$created_at" => json!(random.choice(&TIMES).unwrap().0),
        _ => json!(*random.choice(&["d1", "d22", "Title 1", "uri:3", "text/plain", "U"]).unwrap()),
    };
    let operator = *random.choice(&["eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists"]).unwrap();
    match operator {
        "exists" => json!({"type": "exists", "key": key}),
        "in" | "nin" => {
            let mut values: Vec<Value> = (0..random.usize(..4)).map(|_| some(random)).collect();
            if key != "$created_at" && random.usize(..3) == 0 {
                values.push(json!(null));
            }
            json!({"type": operator, "key": key, "value": values})
        }
        _ => json!({"type": operator, "key": key, "value": some(random)}),
    }
}

/// Whether a document passes, according to docs/how-to/filters.md.
fn keeps(filter: &Value, document: &Document) -> bool {
    let parts = || filter["filters"].as_array().unwrap().iter();
    match filter["type"].as_str() {
        Some("and") => return parts().all(|part| keeps(part, document)),
        Some("or") => return parts().any(|part| keeps(part, document)),
        Some("not") => return !keeps(&filter["filter"], document),
        _ => {}
    }
    let Some(operator) = filter["type"].as_str() else {
        let mut members = filter.as_object().unwrap().iter();
        return members.all(|(key, value)| is(document, key).is_some_and(|found| equal(&found, value)));
    };
    let found = is(document, filter["key"].as_str().unwrap());
    let value = &filter["value"];
    let is_one_of = || {
        let mut values = value.as_array().unwrap().iter();
        values.any(|value| found.as_ref().is_some_and(|found| equal(found, value)))
    };
    match operator {
        "eq" => found.is_some_and(|found| equal(&found, value)),
        "ne" => !found.is_some_and(|found| equal(&found, value)),
        "in" => is_one_of(),
        "nin" => !is_one_of(),
        "exists"
            if filter["key"].as_str().unwrap().starts_with('$')
                && filter["key"] != "$tags"
                && filter["key"] != "$$x" =>
        {
            found.is_some_and(|found| !found.is_null()) != (value == &json!(false))
        }
        "exists" => found.is_some() != (value == &json!(false)),
        "contains" => {
            let wanted = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            found.as_ref().and_then(Value::as_array).is_some_and(|elements| {
                wanted.iter().all(|wanted| elements.iter().any(|element| same(element, wanted)))
            })
        }
        _ => found.and_then(|found| compare(&found, value)).is_some_and(|order| match operator {
            "gt" => order.is_gt(),
            "gte" => order.is_ge(),
            "lt" => order.is_lt(),
            _ => order.is_le(),
        }),
    }
}

/// The value of a key or field; a field that is NULL counts as JSON's null.
fn is(document: &Document, key: &str) -> Option<Value> {
    match key {
        "$external_id" => Some(json!(document.external_id)),
        "$title" => Some(json!(document.title)),
        "$uri" => Some(json!(document.uri)),
        "$content_type" => Some(json!(document.content_type)),
        "$created_at" => Some(json!(document.created_at)),
        "$tags" => document.metadata.get("tags").cloned(),
        "$$x" => document.metadata.get("$x").cloned(),
        key => document.metadata.get(key).cloned(),
    }
}

/// Whether a document's value equals the value of eq: by time, if it is a timestamp.
fn equal(found: &Value, value: &Value) -> bool {
    match value.as_str().and_then(time) {
        Some(time_asked) => found.as_str().and_then(time) == Some(time_asked),
        None => same(found, value),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn compare(found: &Value, bound: &Value) -> Option<std::cmp::Ordering> {
    if let (Some(found), Some(bound)) = (found.as_f64(), bound.as_f64()) {
        return found.partial_cmp(&bound);
    }
    let (found, bound) = (found.as_str()?, bound.as_str()?);
    match time(bound) {
        Some(bound) => time(found)?.partial_cmp(&bound),
        None => Some(found.cmp(bound)),
    }
}

/// The seconds since 1970 of a text that is a timestamp.
fn time(text: &str) -> Option<f64> {
    match text {
        "1999-12-31" => Some(946_598_400.0),
        "2999-01-01T00:00:00Z" => Some(32_472_144_000.0),
        text => TIMES
            .iter()
            .find(|(known, _)| *known == text)
            .map(|(text, seconds)| *seconds as f64 + if text.ends_with(".5") { 0.5 } else { 0.0 }),
    }
}

fn put(db: &mut Db, document: &Document) {
    db.0.execute(
        "SELECT kb.put_document('k', $1, $2, metadata => $3::text::jsonb, title => $4, uri => $5, content_type => $6)",
        &[
            &document.external_id,
            &format!("The harbor of {}.", document.external_id),
            &document.metadata.to_string(),
            &document.title,
            &document.uri,
            &document.content_type,
        ],
    )
    .unwrap();
    db.0.execute(
        "UPDATE kb.documents SET created_at = $2::text::timestamptz WHERE external_id = $1",
        &[&document.external_id, &document.created_at],
    )
    .unwrap();
}

/// Indexes on every key and type, which the planner is made to use although the table is small.
fn index_all_keys(db: &mut Db) {
    for key in KEYS {
        for index_type in ["text", "number", "timestamp"] {
            let sql = "SELECT kb.index_metadata('k', $1, $2)";
            assert!(db.one_with::<bool>(sql, &[&name(key), &index_type]), "{key}");
        }
    }
    until_metadata_indexes(db, 3 * KEYS.len() as i64);
    db.run("SET enable_seqscan = off");
}

#[test]
fn ten_thousand_filters_keep_what_a_plain_model_of_them_keeps() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    db.run("SET timezone = 'UTC'");
    let mut random = Rng::with_seed(3);
    let documents: Vec<Document> = (0..DOCUMENTS).map(|number| document(&mut random, number)).collect();
    documents.iter().for_each(|document| put(&mut db, document));
    // Times in filters are in UTC, whatever the time zone of the session is.
    db.run("SET timezone = 'Asia/Kolkata'");
    db.wait("k");
    let sql = db.0.prepare(
        "SELECT external_id FROM kb.query('k', 'harbor', 1000, min_score => -1, filter => $1::text::jsonb)",
    );
    let (sql, mut telling) = (sql.unwrap(), 0);
    for case in 0..CASES {
        // The second half looks up ranges in indexes, where there are any.
        if case == CASES / 2 {
            index_all_keys(&mut db);
        }
        let filter = filter(&mut random, 3);
        let rows = db.0.query(&sql, &[&filter.to_string()]);
        let rows = rows.unwrap_or_else(|error| panic!("{filter}: {error:?}"));
        let mut found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        found.sort();
        let mut kept: Vec<String> = documents
            .iter()
            .filter(|document| keeps(&filter, document))
            .map(|document| document.external_id.clone())
            .collect();
        kept.sort();
        assert_eq!(found, kept, "{filter}");
        telling += usize::from(!kept.is_empty() && kept.len() < DOCUMENTS);
    }
    assert!(telling * 3 > CASES, "{telling} filters told documents apart");
    // A reader, under row-level security, gets the same, and a deletion by filter deletes what the filter
    // keeps.
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut reader = cluster.connect_as(APP, "reader");
    let filter = json!({"type": "and", "filters": [{"type": "exists", "key": "a"}, {"type": "ne", "key": "$title", "value": "Title 1"}]});
    let kept = documents.iter().filter(|document| keeps(&filter, document)).count() as i64;
    let count = format!("kb.query('k', 'harbor', 1000, min_score => -1, filter => '{filter}')");
    assert_eq!((reader.count(&count), db.count(&count)), (kept, kept));
    reader.refused(&format!("SELECT kb.delete_by_filter('k', '{filter}')"), "42501");
    assert_eq!(db.one::<i64>(&format!("SELECT kb.delete_by_filter('k', '{filter}')")), kept);
    assert_eq!(db.count("kb.documents"), DOCUMENTS as i64 - kept);
    assert_eq!(db.count(&count) + db.one::<i64>(&format!("SELECT kb.delete_by_filter('k', '{filter}')")), 0);
}

#[test]
fn a_knowledge_base_that_names_its_keys_takes_no_others() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', retrieval => '{\"allowed_metadata_keys\": [\"lang\", \"year\"]}');
         CREATE TABLE t (id int PRIMARY KEY, body text, lang text, secret text)",
    );
    db.run("SELECT kb.put_document('k', 'a', 'The harbor', metadata => '{\"lang\": \"en\"}'), kb.put_document('k', 'b', 'The village')");
    db.wait("k");
    for wrong in [
        "SELECT kb.put_document('k', 'c', 'x', metadata => '{\"lang\": \"en\", \"mood\": 1}')",
        "SELECT kb.put_documents('k', ARRAY['{\"external_id\": \"c\", \"content\": \"x\", \"metadata\": {\"mood\": 1}}'::jsonb])",
        "SELECT kb.attach_table('k', 't', 'body', metadata => '{lang, secret}')",
        "SELECT * FROM kb.query('k', 'harbor', filter => '{\"mood\": 1}')",
        "SELECT * FROM kb.query('k', 'harbor', filter => '{\"type\": \"not\", \"filter\": {\"type\": \"exists\", \"key\": \"mood\"}}')",
        // Though they keep everything.
        "SELECT * FROM kb.query('k', 'harbor', filter => '{\"type\": \"or\", \"filters\": [{\"mood\": 1}, {}]}')",
        "SELECT * FROM kb.query('k', 'harbor', filter => '{\"type\": \"nin\", \"key\": \"mood\", \"value\": []}')",
        "SELECT kb.delete_by_filter('k', '{\"mood\": 1}')",
    ] {
        let fault = db.refused(wrong, "22023");
        assert!(fault.text.contains("lang, year"), "{wrong}: {fault:?}");
    }
    db.run("SELECT kb.attach_table('k', 't', 'body', metadata => '{lang}')");
    let found = "SELECT string_agg(external_id, ' ') FROM kb.query('k', 'harbor', min_score => -1, filter => '{\"lang\": \"en\", \"$external_id\": \"a\"}')";
    assert_eq!(db.one::<String>(found), "a");
    // A filter that keeps everything by mistake is refused.
    db.refused("SELECT kb.delete_by_filter('k', '{}')", "22023");
    // Rows go by their table.
    db.run_and_wait("k", "INSERT INTO t VALUES (1, 'A row', 'en', 'x')");
    db.refused("SELECT kb.delete_by_filter('k', '{\"lang\": \"en\"}')", "55000");
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{}'); SELECT kb.put_document('k', 'c', 'x', metadata => '{\"mood\": 1}')");
}
