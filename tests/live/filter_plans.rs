//! A filtered question has the same answer by every plan, and no answer contains what the tenant may not
//! read. Also tests keys of metadata that are indexed.

use crate::support::{APP, Cluster, Db, Document, LONG, SOON, WHOLE, until};
use serde_json::json;

const DOCUMENTS: usize = 3000;

/// A knowledge base with an index: documents on ten topics, whose metadata contain the topic and numbers.
fn fixture() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_kb("k", "hash", WHOLE);
    let documents: Vec<Document> = (0..DOCUMENTS)
        .map(|i| {
            let topic = TOPICS[i % TOPICS.len()];
            let content = format!("{topic} {topic} {topic}, note {i} of shelf {}", i / 7);
            let metadata = json!({"topic": topic, "n": i, "tenth": i / 7 % 10, "day": format!("2024-01-{:02}", i % 28 + 1)});
            Document { id: format!("d{i}"), content, metadata }
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    until(LONG, "the index is built, and statistics are taken", || {
        db.one("SELECT indexed FROM kb.status WHERE kb_id = 'k'")
            && db.count("pg_stats WHERE tablename = 'documents' AND attname = 'metadata'") > 0
    });
    Some((cluster, db))
}

const TOPICS: [&str; 10] = [
    "harbor", "village", "mountain", "library", "kitchen", "railway", "garden", "theater", "bridge", "winter",
];

/// Settings under which the planner uses parallel workers wherever possible.
const PARALLEL: &str =
    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
     SET min_parallel_index_scan_size = 0; SET enable_indexscan = off; SET enable_bitmapscan = off";
const NOT_PARALLEL: &str =
    "RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;
     RESET min_parallel_index_scan_size; RESET enable_indexscan; RESET enable_bitmapscan";

/// The external ids of an answer, the best first.
fn answer(db: &mut Db, query: &str, top_k: i32, filter: &str) -> Vec<String> {
    let sql = "SELECT external_id FROM kb.query('k', $1, $2, min_score => -1, filter => $3::text::jsonb) ORDER BY rank";
    db.all_with(sql, &[&query, &top_k, &filter])
}

/// The same with their similarities.
fn scored(db: &mut Db, query: &str, top_k: i32, filter: &str) -> Vec<(String, f64)> {
    let sql = "SELECT external_id, score FROM kb.query('k', $1, $2, min_score => -1, filter => $3::text::jsonb) ORDER BY rank";
    let rows = db.0.query(sql, &[&query, &top_k, &filter]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Waits until the database has this many indexes on keys of metadata, all valid.
pub fn until_metadata_indexes(db: &mut Db, count: i64) {
    let found = "pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = 'kb.documents'::regclass AND c.relname ~ '^documents_(text|number|timestamp)_'";
    until(SOON, &format!("there are {count} indexes on keys of metadata"), || {
        db.count(found) == count && db.count(&format!("{found} AND i.indisvalid")) == count
    });
}

#[test]
fn every_way_of_looking_gives_the_same_nearest_rows_and_as_many_as_qualify() {
    let Some((_cluster, mut db)) = fixture() else { return };
    for (filter, kept) in [
        (r#"{"type": "exists", "key": "n"}"#, DOCUMENTS),
        (r#"{"type": "lt", "key": "tenth", "value": 5}"#, 1502),
        (r#"{"topic": "village"}"#, 300),
        (
            r#"{"type": "and", "filters": [{"topic": "village"}, {"type": "lt", "key": "n", "value": 400}]}"#,
            40,
        ),
        (r#"{"n": 17}"#, 1),
        (r#"{"n": -1}"#, 0),
    ] {
        // One question that is near to what the filter keeps, and one that is far from it.
        for query in ["the village, note 41 of shelf 5", "winter"] {
            for top_k in [3, 60] {
                let rows = kept.min(top_k as usize);
                db.run("SET kb.forced_scan = 'list'");
                let listed = scored(&mut db, query, top_k, filter);
                assert_eq!(listed.len(), rows, "{filter} {query}");
                for (forced, parallel) in
                    [("join", false), ("index", false), ("", false), ("list", true), ("join", true)]
                {
                    db.run(&format!(
                        "SET kb.forced_scan = '{forced}'; {}",
                        if parallel { PARALLEL } else { "" }
                    ));
                    let found = scored(&mut db, query, top_k, filter);
                    db.run(NOT_PARALLEL);
                    assert!(found.is_sorted_by(|a, b| a.1 >= b.1), "{forced}: {filter} {query}: {found:?}");
                    assert_eq!(found.len(), rows, "{forced}: {filter} {query}");
                    // Of rows with equal similarities, any may be in the answer.
                    let worst = listed.last().map_or(0.0, |(_, score)| score - 1e-6);
                    let near = found.iter().filter(|(_, score)| *score >= worst).count();
                    let least = if parallel || forced == "join" { rows } else { rows * 9 / 10 };
                    assert!(
                        near >= least,
                        "{forced}: {filter} {query}: {near} of {rows}\n{found:?}\n{listed:?}"
                    );
                }
            }
        }
    }
    // Settings are changed for a statement only, also if it fails or is cancelled.
    let before: Vec<String> = db.all("SELECT name || '=' || setting FROM pg_settings ORDER BY name");
    assert!(before.iter().any(|setting| setting.starts_with("hnsw.ef_search=")), "pgvector is loaded");
    for setting in
        ["enable_seqscan", "enable_sort", "hnsw.iterative_scan", "plan_cache_mode", "random_page_cost"]
    {
        let source: String = db.one(&format!("SELECT source FROM pg_settings WHERE name = '{setting}'"));
        assert_eq!(source, "default", "{setting}");
    }
    db.run("SET hnsw.ef_search = 77");
    let set: Vec<String> = db.all("SELECT name || '=' || setting FROM pg_settings ORDER BY name");
    let mut cancelled = 0;
    for forced in ["list", "join", "index"] {
        db.run(&format!("SET kb.forced_scan = '{forced}'"));
        for _ in 0..10 {
            db.run("BEGIN; SET LOCAL statement_timeout = '30ms'");
            let sql = "SELECT count(*) FROM generate_series(1, 200) CROSS JOIN LATERAL
                 kb.query('k', 'winter ' || generate_series, 60, filter => '{\"type\": \"exists\", \"key\": \"n\"}')";
            cancelled += i32::from(db.0.simple_query(sql).is_err());
            db.run("ROLLBACK");
        }
    }
    assert!(cancelled > 0);
    db.run("RESET kb.forced_scan");
    let differs = |now: Vec<String>, then: &[String]| {
        now.into_iter().filter(|s| !then.contains(s) && !s.starts_with("kb.forced_scan")).collect::<Vec<_>>()
    };
    let now = db.all("SELECT name || '=' || setting FROM pg_settings ORDER BY name");
    assert_eq!(differs(now, &set), [""; 0]);
}

#[test]
fn a_filtered_answer_has_only_what_the_tenant_may_read_by_every_kind_of_scan() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_reader");
    // One knowledge base with rows of several tenants: some are tenant b's, some a third tenant's.
    db.run("UPDATE kb.documents SET tenant_id = CASE (metadata->>'n')::int % 3 WHEN 0 THEN '' WHEN 1 THEN 'b' ELSE 'c' END;
            UPDATE kb.chunks c SET tenant_id = d.tenant_id FROM kb.documents d WHERE d.document_id = c.document_id");
    let table = crate::support::vector_table(&mut db, "k");
    db.run(&format!(
        "UPDATE {table} v SET tenant_id = c.tenant_id FROM kb.chunks c WHERE c.chunk_id = v.chunk_id"
    ));
    let mut b = cluster.connect_as_tenant("b", "b");
    let filter =
        r#"{"type": "and", "filters": [{"topic": "village"}, {"type": "gte", "key": "n", "value": 0}]}"#;
    b.refused(&format!("SELECT * FROM kb.query('k', 'village', filter => '{filter}')"), "42704");
    let own = |found: &[String], allowed: &[usize]| {
        assert!(!found.is_empty());
        found.iter().all(|id| allowed.contains(&(id[1..].parse::<usize>().unwrap() % 3)))
    };
    let mut a = cluster.connect_as(APP, "a");
    // The log shows what is done, and so that parallel workers took part.
    db.run("ALTER ROLE a SET session_preload_libraries = 'auto_explain'; ALTER ROLE b SET session_preload_libraries = 'auto_explain'");
    for setting in ["log_min_duration = 0", "log_nested_statements = on", "log_analyze = on"] {
        db.run(&format!("ALTER ROLE a SET auto_explain.{setting}; ALTER ROLE b SET auto_explain.{setting}"));
    }
    let launched = || {
        cluster.log().matches("Workers Launched: ").count()
            - cluster.log().matches("Workers Launched: 0").count()
    };
    for (forced, parallel) in
        [("list", false), ("join", false), ("index", false), ("", false), ("list", true), ("join", true)]
    {
        db.run(&format!(
            "ALTER ROLE a SET kb.forced_scan = '{forced}'; ALTER ROLE b SET kb.forced_scan = '{forced}'"
        ));
        let before = launched();
        let mut owner = cluster.connect_as(APP, "a");
        owner.run(if parallel { PARALLEL } else { "" });
        let found = answer(&mut owner, "the village", 1000, filter);
        assert_eq!((found.len(), own(&found, &[0])), (100, true), "{forced}");
        a.run("SELECT kb.share('k', 'b')");
        let mut reader = cluster.connect_as_tenant("b", "b");
        reader.run(if parallel { PARALLEL } else { "" });
        let found = answer(&mut reader, "the village", 1000, filter);
        assert_eq!((found.len(), own(&found, &[0, 1])), (200, true), "{forced}");
        assert!(!parallel || launched() >= before + 2, "{forced}: parallel workers were launched");
        a.run("SELECT kb.unshare('k', 'b')");
        reader.refused(&format!("SELECT * FROM kb.query('k', 'village', filter => '{filter}')"), "42704");
    }
}

#[test]
fn a_range_of_an_indexed_key_is_looked_up_by_readers_too_and_answers_as_before() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut reader = cluster.connect_as(APP, "reader");
    let ranges = [
        (
            r#"{"type": "and", "filters": [{"type": "gt", "key": "n", "value": 100}, {"type": "lte", "key": "n", "value": 120}]}"#,
            20,
            "number",
        ),
        (r#"{"type": "lt", "key": "day", "value": "2024-01-02"}"#, 108, "timestamp"),
        (r#"{"type": "gt", "key": "topic", "value": "village"}"#, 300, "text"),
    ];
    for (filter, rows, _) in &ranges {
        assert_eq!(answer(&mut reader, "note", 1000, filter).len(), *rows, "{filter}");
    }
    for (key, index_type) in [("n", "number"), ("day", "timestamp"), ("topic", "text")] {
        let sql = format!("SELECT kb.index_metadata('k', '{key}', '{index_type}')");
        assert_eq!((db.one::<bool>(&sql), db.one::<bool>(&sql)), (true, false));
    }
    until_metadata_indexes(&mut db, 3);
    for (filter, rows, index_type) in &ranges {
        let scans = format!(
            "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname LIKE 'documents_{index_type}_%'"
        );
        let before: i64 = db.one(&scans);
        // A session reports its scans when it ends.
        let mut asking = cluster.connect_as(APP, "reader");
        assert_eq!(answer(&mut asking, "note", 1000, filter).len(), *rows, "{filter}");
        drop(asking);
        until(SOON, &format!("the index is scanned for {filter}"), || db.one::<i64>(&scans) > before);
    }
    // Values that no index could hold whole.
    let long = "x".repeat(100_000);
    let digits: String = (0..20_000).map(|i| char::from(b'1' + (i * 7 % 9) as u8)).collect();
    for (id, metadata) in [
        ("long", format!(r#"{{"topic": "zz{long}", "day": "{long}"}}"#)),
        ("large", format!(r#"{{"n": {digits}}}"#)),
        ("small", format!(r#"{{"n": -0.{}}}"#, &digits[..16_000])),
        ("power", r#"{"n": 1e30000}"#.to_string()),
        ("none", r#"{"n": null, "topic": [1], "day": {}}"#.to_string()),
    ] {
        let sql =
            "SELECT kb.put_document('k', $1, 'A note of another kind: ' || $1, metadata => $2::text::jsonb)";
        db.one_with::<String>(sql, &[&id, &metadata]);
    }
    db.wait("k");
    let above = |value: &str| format!(r#"{{"type": "gt", "key": "n", "value": {value}}}"#);
    let mut found = answer(&mut reader, "note", 1000, &above("1e15"));
    found.sort();
    assert_eq!(found, ["large", "power"]);
    assert_eq!(answer(&mut reader, "note", 1000, &above(&digits)), ["power"]);
    assert_eq!(answer(&mut reader, "note", 1000, r#"{"type": "lt", "key": "n", "value": 0}"#), ["small"]);
    let after = format!(r#"{{"type": "gt", "key": "topic", "value": "zz{}"}}"#, "x".repeat(99_999));
    assert_eq!(answer(&mut reader, "note", 1000, &after), ["long"]);
}

/// The report of kb.explain on the search by vectors.
fn explained(db: &mut Db, filter: &str) -> serde_json::Value {
    let sql = "SELECT (kb.explain('k', 'the village', 10, filter => $1::text::jsonb) -> 'dense')::text";
    serde_json::from_str(&db.one_with::<String>(sql, &[&filter])).unwrap()
}

#[test]
fn a_hybrid_question_lists_the_chunks_that_pass_its_filter_once() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", WHOLE);
    let document = |i: usize| Document {
        id: format!("d{i}"),
        content: format!("note {i} of the harbor"),
        metadata: json!({"n": i % 2}),
    };
    db.put_all_and_wait("k", &(0..20).map(document).collect::<Vec<_>>());
    let before = cluster.log().len();
    db.run(
        "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on",
    );
    let found = "kb.query('k', 'harbor', 20, filter => '{\"n\": 1}', mode => 'hybrid', min_score => -1)";
    assert_eq!(db.count(found), 10);
    let log = cluster.log();
    assert_eq!(log[before..].matches("Query Text: SELECT pg_catalog.array_agg(l.chunk_id)").count(), 1);
}

#[test]
fn few_are_compared_all_and_of_many_the_index_is_asked() {
    let Some((_cluster, mut db)) = fixture() else { return };
    for (filter, scan, kept) in [
        (r#"{"type": "exists", "key": "n"}"#, "index", None),
        (r#"{"topic": "village"}"#, "exact", Some(300)),
        (r#"{"n": 17}"#, "exact", Some(1)),
    ] {
        let dense = explained(&mut db, filter);
        assert_eq!(dense["scans"][0]["scan"], scan, "{filter}: {dense}");
        assert_eq!(dense["filter_keeps"]["counted"], kept.is_some(), "{filter}: {dense}");
        let chunks = dense["filter_keeps"]["chunks"].as_u64().unwrap();
        if scan == "index" {
            // It also reports what each segment is searched with.
            let segments = dense["scans"][0]["segments"].as_array().unwrap();
            let vectors: u64 = segments.iter().map(|segment| segment["vectors"].as_u64().unwrap()).sum();
            assert!(vectors > 1500 && segments.iter().all(|segment| segment["ef_search"] == 40), "{dense}");
        }
        // The estimate is approximately right.
        assert!(kept.map_or(chunks > 1500, |kept| kept == chunks), "{filter}: {dense}");
    }
}

#[test]
fn the_estimate_of_a_filter_is_forgotten_when_statistics_change() {
    let Some((cluster, mut db)) = fixture() else { return };
    let filter = r#"{"topic": "village"}"#;
    assert_eq!(explained(&mut db, filter)["filter_keeps"], json!({"chunks": 300, "counted": true}));
    let mut other = cluster.connect(APP);
    other.run(
        r#"UPDATE kb.documents SET metadata = metadata || '{"topic": "village"}'; ANALYZE kb.documents"#,
    );
    let dense = explained(&mut db, filter);
    assert!(dense["filter_keeps"]["chunks"].as_u64().unwrap() > 1500, "{dense}");
}

#[test]
fn an_exact_value_is_looked_up_in_the_index_on_metadata_by_readers_too() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'documents_metadata'";
    let before: i64 = db.one(scans);
    // A session reports its scans when it ends.
    let mut asking = cluster.connect_as(APP, "reader");
    assert_eq!(answer(&mut asking, "note", 10, r#"{"n": 17}"#), ["d17"]);
    drop(asking);
    until(SOON, "the index is scanned", || db.one::<i64>(scans) > before);
}

#[test]
fn an_index_on_a_key_is_shared_and_dropped_with_its_last_user() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader; CREATE ROLE a LOGIN IN ROLE kb_writer");
    for kb in ["k", "l", "m"] {
        db.create_kb(kb, "hash", "{}");
        db.run(&format!("SELECT kb.index_metadata('{kb}', 'it''s \\ \"n\"', 'number')"));
    }
    until_metadata_indexes(&mut db, 1);
    assert_eq!(db.one::<i64>(r#"SELECT kb.unindex_metadata('k', 'it''s \ "n"')"#), 1);
    db.run("SELECT kb.drop_knowledge_base('l')");
    assert_eq!(db.count("kb.metadata_indexes"), 1);
    // Another index is created meanwhile: the worker has looked, and the wanted one stays.
    db.run("SELECT kb.index_metadata('k', 'other', 'text')");
    until_metadata_indexes(&mut db, 2);
    db.run("SELECT kb.drop_knowledge_base('m')");
    until_metadata_indexes(&mut db, 1);
    // However often it is wanted again, it does not wait because of an earlier failure.
    for _ in 0..12 {
        db.run("SELECT kb.index_metadata('k', 'often', 'number')");
        until_metadata_indexes(&mut db, 2);
        db.run("SELECT kb.unindex_metadata('k', 'often')");
        until_metadata_indexes(&mut db, 1);
    }
    // An index that was dropped, or that a restore left out, is created again.
    let name: String = db.one("SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE c.relname LIKE 'documents_text_%'");
    db.run_and_wait("k", &format!("DROP INDEX {name}; SELECT kb.put_document('k', 'd', 'A text.')"));
    until_metadata_indexes(&mut db, 1);

    let mut reader = cluster.connect_as(APP, "reader");
    reader.refused("SELECT kb.index_metadata('k', 'n', 'number')", "42501");
    let mut a = cluster.connect_as_tenant("a", "a");
    a.refused("SELECT kb.index_metadata('k', 'n', 'number')", "42704");
    assert_eq!(a.count("kb.metadata_indexes"), 0);
    for (key, index_type) in
        [("$title", "text"), ("$nothing", "text"), ("n", "boolean"), (&"x".repeat(201), "text")]
    {
        db.refused(&format!("SELECT kb.index_metadata('k', '{key}', '{index_type}')"), "22023");
    }
    // There are no more than the writes of the database can bear.
    db.refused("SELECT kb.index_metadata('k', 'key' || i, 'number') FROM generate_series(1, 32) i", "55000");
    db.run("SELECT kb.drop_knowledge_base('k')");
    until_metadata_indexes(&mut db, 0);
}

#[test]
fn an_index_on_a_key_that_cannot_be_made_is_tried_again_after_pauses_that_double() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["log_min_messages = debug1"]);
    // Its name is taken.
    let name: String = db.one("SELECT 'documents_number_' || left(md5('n'), 24)");
    db.run(&format!("CREATE TABLE kb.{name} (); SELECT kb.index_metadata('k', 'n', 'number')"));
    // The times at which the indexer was started, in seconds of the day.
    let starts = || -> Vec<f64> {
        let log = cluster.log();
        let lines =
            log.lines().filter(|line| line.contains("starting background worker process \"kb indexer\""));
        let second = |line: &str| {
            let time = line.split(' ').nth(1).unwrap();
            time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
        };
        lines.map(second).collect()
    };
    until(SOON, "the indexer was started four times", || starts().len() >= 4);
    let starts = starts();
    for (i, least) in [2.0, 4.0, 8.0].into_iter().enumerate() {
        // Midnight may lie between.
        let pause = (starts[i + 1] - starts[i]).rem_euclid(86_400.0);
        assert!(pause > least - 0.1, "pause {i}: {starts:?}");
    }
    db.run(&format!("DROP TABLE kb.{name}"));
    // If others want it as well, it is still one index.
    db.create_kb("l", "hash", "{}");
    db.run("SELECT kb.index_metadata('l', 'n', 'number'), kb.unindex_metadata('k', 'n')");
    until_metadata_indexes(&mut db, 1);
}
