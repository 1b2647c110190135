//! The HNSW index is built automatically, and a query returns top_k rows whenever so many qualify.

use crate::support::{APP, Db, Document, LONG, assert_sound, texts, until, vector_table};

const DOCUMENTS: u64 = 5000;

/// Whether each of the HNSW indexes on a table is valid.
pub fn indexes(db: &mut Db, table: &str) -> Vec<bool> {
    db.all(&format!(
        "SELECT indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
         WHERE indrelid = '{table}'::regclass AND amname = 'hnsw'"
    ))
}

#[test]
fn with_and_without_an_index_a_query_returns_top_k_rows_whenever_so_many_qualify() {
    let (_cluster, mut db) = crate::connected!();
    // The same documents in a table that gets its index and in one that never does.
    db.run(
        "SELECT kb.create_vector_db('unindexed', dimension => 384, config => '{\"min_rows\": 100000000}')",
    );
    db.run("SELECT kb.create_knowledge_base('indexed', 'hash', chunking => '{\"strategy\": \"none\"}')");
    db.run("SELECT kb.create_knowledge_base('exact', 'hash', 'unindexed', chunking => '{\"strategy\": \"none\"}')");
    let documents: Vec<Document> = (0..DOCUMENTS)
        .map(|i| {
            let mut document = Document::new(format!("d{i}"), texts::paragraph(i, 25));
            document.metadata = serde_json::json!({"rare": i % 1000 == 0, "half": i % 2 == 0, "n": i});
            document
        })
        .collect();
    for kb in ["indexed", "exact"] {
        for part in documents.chunks(1000) {
            db.put_all(kb, part);
        }
    }
    db.wait("exact");
    db.wait("indexed");
    let (indexed, exact) = (vector_table(&mut db, "indexed"), vector_table(&mut db, "exact"));
    until(LONG, "the index is there and valid", || indexes(&mut db, &indexed) == [true]);
    assert_eq!(indexes(&mut db, &exact), [false; 0]);
    for kb in ["indexed", "exact"] {
        assert_sound(&mut db, kb, DOCUMENTS as i64, 0);
        for seed in 0..10 {
            let question = texts::paragraph(7_000_000 + seed, 8);
            let mut ask = |arguments: &str| -> Vec<String> {
                db.all_with(
                    &format!("SELECT external_id FROM kb.query('{kb}', $1, {arguments}) ORDER BY rank"),
                    &[&question],
                )
            };
            // 0.1 % of them: 5.
            assert_eq!(ask("5, filter => '{\"rare\": true}'").len(), 5, "{kb}");
            assert_eq!(ask("50, filter => '{\"rare\": true}'").len(), 5, "{kb}");
            assert_eq!(ask("20, filter => '{\"half\": true}'").len(), 20, "{kb}");
            assert_eq!(ask("1, filter => '{\"n\": 4321}'"), ["d4321"], "{kb}");
            assert_eq!(ask("5, filter => '{\"n\": -1}'").len(), 0, "{kb}");
            assert_eq!(ask("1000").len(), 1000, "{kb}");
            // With the score of the 30th row as the least score, the answer has all rows that have at least
            // this score.
            let scores = format!("SELECT score FROM kb.query('{kb}', $1, 1000) ORDER BY rank");
            let scores: Vec<f64> = db.all_with(&scores, &[&question]);
            assert!(scores.windows(2).all(|w| w[0] >= w[1]));
            let least = scores[29];
            let qualify = scores.iter().filter(|s| **s >= least).count();
            let sql = format!("SELECT score FROM kb.query('{kb}', $1, 500, min_score => $2)");
            let kept: Vec<f64> = db.all_with(&sql, &[&question, &least]);
            assert_eq!(kept.len(), qualify.min(500), "{kb}: min_score {least}");
            assert!(kept.iter().all(|score| *score >= least));
        }
    }
    // The approximate answer mostly equals the exact one.
    let (mut same, mut all) = (0, 0);
    for seed in 0..20 {
        let question = texts::paragraph(8_000_000 + seed, 8);
        let (approximate, exact) = (db.found("indexed", &question, 10), db.found("exact", &question, 10));
        all += exact.len();
        same += exact.iter().filter(|id| approximate.contains(id)).count();
    }
    assert!(same * 10 >= all * 8, "recall is {same} of {all}");
    // Later writes go into the indexed table at once, and are found. (An approximate index may miss a text
    // that is unlike any other, which this test does not examine.)
    let late = texts::paragraph(9_999_999, 25);
    db.put_and_wait("indexed", "late", &late);
    assert_eq!(db.found("indexed", &late, 1), ["late"]);
}

#[test]
fn writers_are_not_blocked_while_the_index_is_built() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_vector_db('v', 'pgvector', 384, config => '{\"ef_construction\": 1000, \"m\": 32}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')");
    let documents = texts::documents(0..3000, 25);
    db.put_all("k", &documents);
    let building = "pg_stat_progress_create_index WHERE phase LIKE 'building index%'";
    until(LONG, "the index is being built", || db.count(building) == 1);
    let mut during = 0;
    for i in 0..5 {
        let text = format!("Number {i}: zebra, xylophone, quasar.");
        db.put("k", &format!("late{i}"), &text);
        db.run("SELECT kb.wait('k', 20)");
        let found = db.found("k", &text, 1);
        db.run(&format!("SELECT kb.delete_document('k', 'd{i}')"));
        let is_building = db.count(building) == 1;
        // The finished index may miss a text that is unlike any other.
        assert!(!is_building || found == [format!("late{i}")], "{found:?}");
        during += i32::from(is_building);
    }
    assert!(during > 0, "the build ended before anything was written: build more");
    let table = vector_table(&mut db, "k");
    until(LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    assert_sound(&mut db, "k", 3000, 0);
}

#[test]
fn a_repeated_text_takes_one_place_among_top_k() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_knowledge_base('k', 'hash', chunking => '{\"strategy\": \"none\"}')");
    let often = texts::paragraph(1, 25);
    let documents: Vec<Document> = (0..2000)
        .map(|i| {
            let text = if i % 2 == 0 { often.clone() } else { texts::paragraph(1000 + i, 25) };
            Document::new(format!("d{i}"), text)
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    let table = vector_table(&mut db, "k");
    let mut ask = || {
        let row = db.0.query_one(
            "SELECT count(*), count(DISTINCT content), max(jsonb_array_length(locator->'also_in'))
             FROM kb.query('k', $1, 10)",
            &[&often],
        );
        let row = row.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, Option<i32>>(2))
    };
    assert_eq!(ask(), (10, 10, Some(999)));
    let mut other = cluster.connect(APP);
    until(LONG, "the index is there and valid", || indexes(&mut other, &table) == [true]);
    assert_eq!(ask(), (10, 10, Some(999)));
}

#[test]
fn a_filter_that_keeps_too_many_to_compare_all_still_fills_top_k_by_the_index() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_embedder('tiny', 'hash', dimension => 16)");
    db.run("SELECT kb.create_knowledge_base('k', 'tiny', chunking => '{\"strategy\": \"none\"}')");
    // 21,000 of them pass, which is more than are ever compared one by one.
    let documents: Vec<Document> = (0..24_000)
        .map(|i| {
            let mut document = Document::new(format!("d{i}"), texts::paragraph(i, 8));
            document.metadata = serde_json::json!({"most": i % 8 != 0});
            document
        })
        .collect();
    for part in documents.chunks(6000) {
        db.put_all("k", part);
    }
    db.wait("k");
    let table = vector_table(&mut db, "k");
    // The largest table of these tests, beside others.
    until(2 * LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    for seed in 0..5 {
        let question = texts::paragraph(7_000_000 + seed, 8);
        let ask = "SELECT external_id FROM kb.query('k', $1, 30, filter => '{\"most\": true}') ORDER BY rank";
        let found: Vec<String> = db.all_with(ask, &[&question]);
        assert_eq!(found.len(), 30);
        assert!(found.iter().all(|id| id[1..].parse::<u32>().unwrap() % 8 != 0), "{found:?}");
    }
}

#[test]
fn vectors_too_wide_for_an_index_of_full_numbers_are_kept_and_found_as_halves() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_embedder('wide', 'hash', dimension => 2500)");
    db.run("SELECT kb.create_knowledge_base('k', 'wide', chunking => '{\"strategy\": \"none\"}')");
    let documents = texts::documents(0..2500, 25);
    db.put_all_and_wait("k", &documents);
    let table = vector_table(&mut db, "k");
    let kind: String = db.one(&format!(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = 'embedding'"
    ));
    assert_eq!(kind, "halfvec(2500)");
    until(LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    for i in [3, 1234, 2499] {
        assert_eq!(db.found("k", &texts::paragraph(i, 25), 1), [format!("d{i}")]);
    }
}
