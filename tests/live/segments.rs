//! Vectors lie in segments, each with an index of its own: answers contain the nearest of all, and segments
//! survive whatever happens while they are built, merged or dropped.

use crate::index::indexes;
use crate::support::{
    APP, Cluster, Db, Document, LONG, PRELOAD, WHOLE, assert_sound, signal, texts, until, vector_table,
};

fn documents(numbers: std::ops::Range<u64>) -> Vec<Document> {
    numbers
        .map(|i| {
            let mut document = Document::new(format!("d{i}"), texts::paragraph(i, 20));
            document.metadata = serde_json::json!({"half": i % 2 == 0, "rare": i % 500 == 0});
            document
        })
        .collect()
}

pub fn put(db: &mut Db, kb: &str, numbers: std::ops::Range<u64>) {
    for part in documents(numbers).chunks(1000) {
        db.put_all(kb, part);
    }
}

/// The segments and the vectors without an index, from kb.status.
pub fn state(db: &mut Db) -> (i64, i64) {
    let row = db.0.query_one("SELECT segments, unindexed FROM kb.status WHERE kb_id = 'k'", &[]).unwrap();
    (row.get(0), row.get(1))
}

pub fn until_state(db: &mut Db, expected: (i64, i64)) {
    until(LONG, &format!("segments and vectors without an index are {expected:?}"), || state(db) == expected);
}

/// How the vectors of `k` were searched.
fn scan(db: &mut Db, arguments: &str) -> String {
    db.one(&format!("SELECT kb.explain('k', 'the harbor', {arguments}) #>> '{{dense,scans,0,scan}}'"))
}

#[test]
fn an_answer_has_the_nearest_of_all_segments_and_of_what_has_no_index_yet() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    let mut total = 0;
    for (more, expected) in [(3000, (1, 0)), (1000, (2, 0)), (500, (2, 500))] {
        put(&mut db, "k", total..total + more);
        db.wait("k");
        total += more;
        until_state(&mut db, expected);
    }
    assert_eq!(scan(&mut db, "5"), "index");
    // In each part, a text is nearest to itself, with a filter and without.
    let mut missed = 0;
    for i in [0, 800, 1500, 2990, 3000, 3500, 3998, 4000, 4200, 4498] {
        let text = texts::paragraph(i, 20);
        missed += i32::from(db.found("k", &text, 1) != [format!("d{i}")]);
        let filtered: Vec<String> = db
            .all_with("SELECT external_id FROM kb.query('k', $1, 1, filter => '{\"half\": true}')", &[&text]);
        missed += i32::from(filtered != [format!("d{i}")]);
    }
    assert!(missed <= 1, "{missed} of 20 were not found");
    let recall: f64 = db.one("SELECT recall FROM kb.measure_recall('k', 300)");
    assert!(recall >= 0.97, "{recall}");
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    let chosen: i32 = db.one("SELECT ef_search FROM kb.measure_recall('k', 300) WHERE recall >= 0.97");
    let used: i32 = db.one("SELECT (kb.explain('k', 'the harbor', 5) #>> '{dense,scans,0,ef_search}')::int");
    assert_eq!(used, chosen);
    for (arguments, expected) in [
        ("1000", 1000),
        ("4600", 4500),
        ("300, filter => '{\"half\": true}'", 300),
        ("50, filter => '{\"rare\": true}'", 9),
    ] {
        let sql = format!("SELECT count(*) FROM kb.query('k', 'the harbor', {arguments})");
        assert_eq!(db.one::<i64>(&sql), expected, "{arguments}");
    }
    // All rows of a segment are deleted.
    db.run("SELECT kb.delete_document('k', external_id) FROM kb.documents WHERE substr(external_id, 2)::int BETWEEN 3000 AND 3999");
    assert_eq!(db.found("k", &texts::paragraph(4200, 20), 1), ["d4200"]);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.query('k', 'the harbor', 3600)"), 3500);
    assert_sound(&mut db, "k", 3500, 0);
}

/// A segment of 4,000 and a draft of 1,000, which is too small to be merged with it; and their table.
fn with_a_draft(cluster: &Cluster) -> (Db, String) {
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", WHOLE);
    for (numbers, segments) in [(0..4000, 1), (4000..5000, 2)] {
        put(&mut db, "k", numbers);
        db.wait("k");
        until_state(&mut db, (segments, 0));
        // As soon as there are 1,000 they get an index, although more may follow.
        db.run("ALTER SYSTEM SET kb.forced_tail = 1300");
        db.run("SELECT pg_reload_conf()");
        if segments == 1 {
            // The next one reads it when it starts.
            until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
        }
    }
    let table = vector_table(&mut db, "k");
    (db, table)
}

#[test]
fn a_draft_that_is_merged_with_nothing_is_built_again_when_it_is_quiet() {
    let cluster = crate::cluster!();
    let (mut db, table) = with_a_draft(&cluster);
    let indexes = format!(
        "SELECT string_agg(o.option_value, ' ' ORDER BY i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         CROSS JOIN pg_options_to_table(c.reloptions) o
         WHERE i.indrelid = '{table}'::regclass AND i.indisvalid AND o.option_name = 'ef_construction'"
    );
    assert_eq!(db.one::<String>(&indexes), "200 64");
    until(LONG, "both are as they are to be", || db.one::<String>(&indexes) == "200 200");
    assert_eq!(state(&mut db), (2, 0));
    assert_sound(&mut db, "k", 5000, 0);
    assert!(!cluster.log().contains("cannot be built"));
}

#[test]
fn segments_whose_newest_rows_are_deleted_reach_a_stable_state() {
    let cluster = crate::cluster!();
    let (mut db, table) = with_a_draft(&cluster);
    // The largest numbers of the newest segment, which is a draft, are deleted.
    db.run(&format!(
        "SELECT kb.delete_document('k', d.external_id) FROM {table} v
         JOIN kb.chunks c USING (build_no, chunk_id) JOIN kb.documents d USING (document_id)
         WHERE v.segment = (SELECT max(segment) FROM {table})"
    ));
    let left = db.count("kb.documents");
    assert!((4000..5000).contains(&left), "{left}");
    // When the table is quiet the draft is built again, once, and the indexer leaves.
    let drafts = format!(
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE i.indrelid = '{table}'::regclass AND (c.relname LIKE '%_draft' OR NOT i.indisvalid)"
    );
    until(LONG, "no draft is left, and the indexer has left", || {
        db.count(&drafts) == 0 && cluster.processes("kb indexer", Some(APP)).is_empty()
    });
    assert_sound(&mut db, "k", left, 0);
    assert!(!cluster.log().contains("cannot be built"));
}

#[test]
fn rows_that_follow_a_deletion_of_all_are_inserted_into_no_index() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..1500);
    db.wait("k");
    until_state(&mut db, (1, 0));
    db.run_and_wait("k", "SELECT kb.delete_document('k', external_id) FROM kb.documents");
    put(&mut db, "k", 0..500);
    db.wait("k");
    until_state(&mut db, (1, 500));
    assert_sound(&mut db, "k", 500, 0);
    assert_eq!(db.found("k", &texts::paragraph(77, 20), 1), ["d77"]);
}

#[test]
fn segments_are_merged_and_none_is_searched_twice() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..3000);
    db.wait("k");
    until_state(&mut db, (1, 0));
    put(&mut db, "k", 3000..4000);
    db.wait("k");
    until_state(&mut db, (2, 0));
    // 1,000 beside 1,000 are merged, and with 2,000 the 3,000.
    put(&mut db, "k", 4000..5000);
    db.wait("k");
    let table = vector_table(&mut db, "k");
    until(LONG, "one index is left", || indexes(&mut db, &table) == [true]);
    assert_eq!(state(&mut db), (1, 0));
    let ids: Vec<String> = db.all("SELECT external_id FROM kb.query('k', 'the harbor', 5000)");
    let mut once = ids.clone();
    once.sort();
    once.dedup();
    assert_eq!((ids.len(), once.len()), (5000, 5000));
}

#[test]
fn the_first_index_is_built_during_a_long_import_and_new_vectors_are_found() {
    let cluster = crate::cluster!("kb.forced_tail = 5000");
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.run("SELECT kb.create_embedder('small', 'hash', 'hash', 16)");
    db.create_kb("k", "small", WHOLE);
    db.run(
        "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object(
             'external_id', 'e' || i, 'content', 'number ' || i || ' of them') FROM generate_series(1, 15000) i))",
    );
    let table = vector_table(&mut other, "k");
    until(LONG, "there is an index", || indexes(&mut other, &table).contains(&true));
    assert!(other.jobs() > 0, "the import ended before the index was there: import more");
    db.run_and_wait("k", "SELECT kb.put_document('k', 'late', 'Zebras and quasars.')");
    until(LONG, "little is left without an index", || state(&mut db).1 < 1000);
    assert_eq!(db.found("k", "Zebras and quasars.", 1), ["late"]);
    assert_eq!(db.vectors("k"), 15_001);
}

#[test]
fn every_vector_is_found_and_indexed_whoever_is_killed_while_segments_are_built() {
    let (cluster, mut db) = crate::crashing!(PRELOAD, "kb.launcher_naptime = 1");
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"m\": 32, \"ef_construction\": 500}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')");
    for round in 0..4 {
        put(&mut db, "k", round * 1500..(round + 1) * 1500);
        let building = "pg_stat_progress_create_index WHERE phase LIKE 'building index%'";
        until(LONG, "an index is being built", || db.count(building) == 1);
        let indexer = cluster.processes("kb indexer", Some(APP));
        // A kill restarts the server; SIGTERM leaves an invalid index.
        let how = if round % 2 == 0 { libc::SIGKILL } else { libc::SIGTERM };
        indexer.into_iter().for_each(|pid| signal(pid, how));
        if how == libc::SIGKILL {
            db = cluster.reconnect_after_crash(db);
        }
        db.wait("k");
        let question = texts::paragraph(round * 1500 + 1400, 20);
        assert_eq!(db.found("k", &question, 1), [format!("d{}", round * 1500 + 1400)]);
    }
    // The next worker looks at all tables.
    db.put_and_wait("k", "last", "Ships lie in the harbor.");
    let table = vector_table(&mut db, "k");
    until(LONG, "indexes are valid and nearly all vectors have one", || {
        indexes(&mut db, &table).iter().all(|valid| *valid) && state(&mut db).1 < 1000
    });
    let recall: f64 = db.one("SELECT recall FROM kb.measure_recall('k', 200)");
    assert!(recall >= 0.97, "{recall}");
    assert_sound(&mut db, "k", 6001, 0);
    cluster.stop("fast", 60);
}

#[test]
fn a_merge_is_put_off_when_much_is_written_meanwhile() {
    let cluster = crate::cluster!("kb.forced_tail = 1600");
    let (mut db, mut holder) = (cluster.connect(APP), cluster.connect(APP));
    db.run("SELECT kb.create_embedder('small', 'hash', 'hash', 16)");
    let put = |db: &mut Db, from: i32, to: i32| {
        db.run(&format!(
            "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object(
                 'external_id', 'e' || i, 'content', 'number ' || i || ' of them') FROM generate_series({from}, {to}) i))"
        ));
        db.wait("k");
    };
    let merge = "pg_stat_activity WHERE backend_type = 'kb indexer' AND query LIKE '%gives way to writers%'";
    // Once more, if the merge was over before it could be delayed.
    let is_held = (0..20).any(|_| {
        db.create_kb("k", "small", WHOLE);
        put(&mut db, 1, 1200);
        until_state(&mut db, (1, 0));
        put(&mut db, 1201, 2400);
        until(LONG, "all have an index", || state(&mut db).1 == 0);
        // The merge does not end while this snapshot exists.
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
        until(LONG, "segments are merged", || db.count(merge) == 1 || state(&mut db) == (1, 0));
        let is_held = db.count(merge) == 1;
        if !is_held {
            holder.run("COMMIT");
            db.run("SELECT kb.drop_knowledge_base('k')");
        }
        is_held
    });
    assert!(is_held, "each merge was over too soon");
    put(&mut db, 2401, 25_000);
    until(LONG, "the merge is ended", || db.count(merge) == 0);
    db.put_and_wait("k", "late", "Zebras and quasars.");
    assert_eq!(db.found("k", "Zebras and quasars.", 1), ["late"]);
    holder.run("COMMIT");
    until(LONG, "little is left without an index", || state(&mut db).1 < 1000);
    assert_eq!(db.vectors("k"), 25_001);
}

#[test]
fn an_index_for_the_whole_table_becomes_a_segment() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..1500);
    db.wait("k");
    let table = vector_table(&mut db, "k");
    until(LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
    let name: String = db.one(&format!(
        "SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_am a ON a.oid = c.relam WHERE amname = 'hnsw' AND indrelid = '{table}'::regclass"
    ));
    // An index without a predicate. Indexes of others stay theirs, whatever REINDEX CONCURRENTLY has left
    // behind.
    let short = &table[3..];
    db.run(&format!(
        "DROP INDEX {name}; CREATE INDEX {short}_hnsw ON {table} USING hnsw (embedding vector_cosine_ops);
         CREATE INDEX {short}_hnsw_ccnew ON {table} USING hnsw (embedding vector_cosine_ops) WHERE segment < 0"
    ));
    assert_eq!(state(&mut db), (1, 0));
    assert_eq!(db.found("k", &texts::paragraph(700, 20), 1), ["d700"]);
    db.put_and_wait("k", "new", "Ships lie in the harbor.");
    until(LONG, "a segment is there and nothing else", || {
        let definitions: Vec<String> = db.all(&format!(
            "SELECT pg_get_expr(indpred, indrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
             JOIN pg_am a ON a.oid = c.relam
             WHERE amname = 'hnsw' AND indisvalid AND indrelid = '{table}'::regclass AND indpred IS NOT NULL"
        ));
        definitions.len() == 2 && indexes(&mut db, &table) == [true, true]
    });
    assert_eq!(db.count(&format!("pg_class WHERE relname = '{short}_hnsw_ccnew'")), 1);
    assert_eq!(db.found("k", "Ships lie in the harbor.", 1), ["new"]);
}
