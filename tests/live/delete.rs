//! Promise 2: deleted documents leave the answers at that commit.

use crate::support::{APP, SOON, assert_sound, texts, until, vector_table};

const CHUNKING: &str = r#"{"size": 60, "overlap": 0}"#;

#[test]
fn a_deletion_applies_to_the_next_statement_and_to_others_at_commit() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.create_kb("k", "minilm", "{}");
    db.put("k", "gone", "The harbor of the island lies in the storm.");
    db.put_and_wait("k", "stays", "Butter and cheese stand on the kitchen table.");
    assert_eq!(db.found("k", "storm at the harbor", 5), ["gone", "stays"]);
    db.run("BEGIN");
    assert!(db.one::<bool>("SELECT kb.delete_document('k', 'gone')"));
    assert_eq!(db.found("k", "storm at the harbor", 5), ["stays"]);
    assert_eq!(other.found("k", "storm at the harbor", 5), ["gone", "stays"], "not committed yet");
    db.run("COMMIT");
    assert_eq!(db.found("k", "storm at the harbor", 5), ["stays"]);
    assert_eq!(other.found("k", "storm at the harbor", 5), ["stays"]);
    assert_sound(&mut db, "k", 1, 0);
    // A deletion that is rolled back has no effect.
    db.run("BEGIN; SELECT kb.delete_document('k', 'stays'); ROLLBACK");
    assert_eq!(other.found("k", "storm at the harbor", 5), ["stays"]);
}

#[test]
fn a_document_deleted_while_it_is_processed_does_not_come_back() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    for round in 0..3 {
        db.put("k", "gone", &texts::text(1 + round, 60, 40));
        db.until_halfway("k", 8);
        db.run("SELECT kb.delete_document('k', 'gone')");
        for table in ["kb.documents", "kb.chunks", "kb.jobs"] {
            assert_eq!(db.count(&format!("{table} WHERE kb_no = 1")), 0, "{table}");
        }
        assert_eq!(db.vectors("k"), 0);
        assert_eq!(db.count("kb.query('k', 'river', 5)"), 0);
        // When this one is done, so are the batches that were in flight for the other.
        db.put_and_wait("k", "after", &texts::text(90 + round, 3, 40));
        assert_sound(&mut db, "k", 1, 0);
        db.run("SELECT kb.delete_document('k', 'after')");
        assert_eq!(db.vectors("k"), 0);
    }
}

#[test]
fn a_document_deleted_and_put_again_while_it_is_processed_is_the_new_one() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    let old = texts::text(1, 60, 40);
    db.put("k", "d", &old);
    db.until_halfway("k", 8);
    // The first paragraphs are the same, so chunks of the same identity return at once.
    let new = texts::text(1, 3, 40);
    db.run("BEGIN; SELECT kb.delete_document('k', 'd')");
    db.put("k", "d", &new);
    db.run("COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    let whole: String = db.one("SELECT string_agg(content, E'\\n\\n' ORDER BY ordinal) FROM kb.chunks");
    assert_eq!(whole, new);
}

#[test]
fn deleting_a_document_takes_no_job_of_one_that_is_put_in_its_place_meanwhile() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.create_kb("k", "hash", CHUNKING);
    db.put_and_wait("k", "d", "The first text.");
    other.run("BEGIN; SELECT kb.delete_document('k', 'd')");
    other.put("k", "d", "The second text.");
    let waits = "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT kb.delete_document%'";
    let is_deleted = std::thread::scope(|scope| {
        // It finds the document that the other session has deleted, and waits for that session.
        let deleting =
            scope.spawn(|| cluster.connect(APP).one::<bool>("SELECT kb.delete_document('k', 'd')"));
        until(SOON, "it waits", || db.count(waits) == 1);
        other.run("COMMIT");
        deleting.join().unwrap()
    });
    assert!(!is_deleted);
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.one::<String>("SELECT content FROM kb.chunks"), "The second text.");
}

#[test]
fn a_job_whose_document_the_owner_deleted_by_hand_is_dropped() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    for how in ["DELETE FROM kb.documents", "TRUNCATE kb.documents CASCADE"] {
        db.run("BEGIN");
        db.put("k", "gone", "A short life.");
        db.run(&format!("{how}; COMMIT"));
        assert_eq!(db.count("kb.documents"), 0);
        db.wait("k");
        assert_eq!((db.jobs(), db.count("kb.failures")), (0, 0), "{how}");
        db.put_and_wait("k", "gone", "Another life.");
        assert_sound(&mut db, "k", 1, 0);
    }
}

#[test]
fn a_knowledge_base_dropped_while_it_is_processed_is_gone() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    db.create_kb("other", "slow", CHUNKING);
    db.put("k", "d", &texts::text(1, 60, 40));
    db.until_halfway("k", 8);
    db.run("SET statement_timeout = '10s'; SELECT kb.drop_knowledge_base('k'); RESET statement_timeout");
    db.put_and_wait("other", "d", &texts::text(2, 3, 40));
    assert_sound(&mut db, "other", 1, 0);
    for table in ["kb.knowledge_bases", "kb.documents", "kb.builds"] {
        assert_eq!(db.count(table), 1, "{table}");
    }
    // The worker drops it.
    let tables = "pg_class WHERE relnamespace = 'kb'::regnamespace AND relname ~ '^vectors_[0-9]+$'";
    until(SOON, "its vector table is gone", || db.count(tables) == 1);
}

#[test]
fn a_delete_looks_into_no_vector_table_of_another_knowledge_base() {
    let (cluster, mut db) = crate::connected!();
    for id in ["one", "two", "three"] {
        db.create_kb(id, "hash", r#"{"strategy": "fixed", "size": 5, "overlap": 0}"#);
        db.put_and_wait(id, "d", &texts::text(1, 5, 40));
    }
    let triggers = "pg_trigger WHERE tgrelid IN ('kb.chunks'::regclass, 'kb.builds'::regclass)";
    let (chunks, triggers_before) = (db.count("kb.chunks"), db.count(triggers));
    let table = vector_table(&mut db, "two");
    // The number of table scans, as counted for a session that does nothing else.
    let mut deletes = cluster.connect(APP);
    deletes.run("BEGIN; SELECT kb.delete_document('two', 'd')");
    let scans: Vec<String> = deletes.all(
        "SELECT format('kb.%I %s', relname, seq_scan + idx_scan) FROM pg_stat_xact_user_tables
         WHERE schemaname = 'kb' AND relname ~ '^vectors_[0-9]+$' AND seq_scan + idx_scan > 0",
    );
    deletes.run("COMMIT");
    // Once for all of its chunks.
    assert_eq!(scans, [format!("{table} 1")]);
    assert!(db.count("kb.chunks") <= chunks - 20);
    assert_eq!(db.count(&table), 0);
    assert_sound(&mut db, "one", 1, 0);
    // A further knowledge base does not make another trigger fire.
    db.create_kb("four", "hash", "{}");
    assert_eq!(db.count(triggers), triggers_before);
}

#[test]
fn no_vector_is_without_its_chunk_whoever_writes_or_deletes() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_vector_db('shared', dimension => (SELECT dimension FROM kb.embedders WHERE id = 'hash'))");
    for id in ["a", "b"] {
        let chunking = r#"{"strategy": "fixed", "size": 5, "overlap": 0}"#;
        db.run(&format!(
            "SELECT kb.create_knowledge_base('{id}', 'hash', 'shared', chunking => '{chunking}')"
        ));
        db.put(id, "d", &texts::text(1, 5, 40));
        db.put_and_wait(id, "e", &texts::text(2, 5, 40));
    }
    let table = vector_table(&mut db, "a");
    // A transaction whose snapshot is older than the vectors can neither see them nor leave them behind.
    let mut old = cluster.connect(APP);
    db.run(&format!("CREATE TABLE public.copy AS SELECT * FROM {table}; DELETE FROM {table}"));
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.chunks");
    db.run(&format!("INSERT INTO {table} SELECT * FROM public.copy"));
    old.refused("SELECT kb.delete_document('a', 'd')", "40001");
    old.run("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT kb.delete_document('a', 'd'); COMMIT");
    let orphans = format!(
        "{table} v WHERE NOT EXISTS (SELECT FROM kb.chunks c WHERE c.build_no = v.build_no AND c.chunk_id = v.chunk_id)"
    );
    assert_eq!(db.count(&orphans), 0);
    assert_sound(&mut db, "a", 1, 0);
    // By hand, and with the knowledge base.
    db.run("DELETE FROM kb.chunks WHERE ordinal = 0");
    assert_eq!(db.count(&orphans), 0);
    let columns = "chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding";
    let copy = format!(
        "INSERT INTO {table} ({columns}) SELECT gen_random_uuid(), build_no, kb_no, tenant_id, fingerprint, embedding FROM {table} LIMIT 1"
    );
    db.refused(&copy, "23503");
    db.run("SELECT kb.drop_knowledge_base('a')");
    assert_eq!(db.count(&orphans), 0);
    assert_eq!(db.count(&format!("{table} WHERE build_no NOT IN (SELECT build_no FROM kb.builds)")), 0);
    assert!(db.count(&table) > 0);
}
