//! A knowledge base that grows large in a shared vector table gets a table of its own: nothing is lost on the
//! way, no session waits, and the rest has no index.

use crate::stub::{Options, Stub};
use crate::support::{
    APP, Cluster, Db, Document, LONG, SOON, assert_sound, signal, texts, until, vector_table,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MIN_ROWS: usize = 300;

/// Small and large knowledge bases that share a vector table; with the stub as embedder, if one is given.
fn sharing(stub: Option<&Stub>) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&["kb.worker_idle_timeout = '1h'"])?;
    let (embedder, dimension) = if stub.is_some() { ("stub", 8) } else { ("hash", 384) };
    db.run(&format!(
        "SELECT kb.create_vector_db('both', dimension => {dimension},
             config => '{{\"min_rows\": {MIN_ROWS}, \"table\": \"vectors_both\"}}')"
    ));
    if let Some(stub) = stub {
        db.create_stub_embedder("stub", stub, r#"{"batch_size": 8, "max_concurrency": 2}"#);
    }
    for kb in ["small", "large"] {
        db.run(&format!(
            "SELECT kb.create_knowledge_base('{kb}', '{embedder}', 'both', chunking => '{{\"strategy\": \"none\"}}')"
        ));
    }
    Some((cluster, db))
}

fn documents(numbers: std::ops::Range<u64>) -> Vec<Document> {
    numbers.map(|i| Document::new(format!("d{i}"), texts::text(i + 1, 1, 20))).collect()
}

fn indexes(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT i.indrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
         WHERE a.amname = 'hnsw' AND i.indisvalid ORDER BY 1",
    )
}

/// Sets a flag when it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn until_moved(db: &mut Db) -> String {
    until(LONG, "large has a table of its own", || vector_table(db, "large") != "kb.vectors_both");
    vector_table(db, "large")
}

#[test]
fn a_large_knowledge_base_leaves_the_shared_table_and_its_answers_stay() {
    let Some((cluster, mut db)) = sharing(None) else { return };
    db.put_all("small", &documents(0..MIN_ROWS as u64 - 10));
    db.put_all("large", &documents(5000..5000 + MIN_ROWS as u64 - 50));
    db.wait("small");
    db.wait("large");
    assert_eq!(vector_table(&mut db, "large"), "kb.vectors_both");
    let question = "SELECT string_agg(external_id, ' ' ORDER BY rank) FROM kb.query('large', 'a ship in the harbor', 10)";
    let before: String = db.one(question);
    // A transaction that began before sees what it saw.
    let mut old = cluster.connect(APP);
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(old.one::<String>(question), before);
    db.put_all_and_wait("large", &documents(6000..6000 + 2 * MIN_ROWS as u64));
    let own = until_moved(&mut db);
    assert_eq!(old.one::<String>(question), before);
    old.run("COMMIT");
    let count = 3 * MIN_ROWS as i64 - 50;
    assert_sound(&mut db, "large", count, 0);
    assert_sound(&mut db, "small", MIN_ROWS as i64 - 10, 0);
    assert_eq!(db.count(&own), count);
    assert_eq!(db.count("kb.vectors_both"), MIN_ROWS as i64 - 10);
    until(LONG, "its own table has an index", || indexes(&mut db) == [own.as_str()]);
    // Edits and deletes continue there, and new documents of the other go into the shared table.
    db.put("large", "d5000", "The lighthouse was painted in the spring.");
    db.run("SELECT kb.delete_document('large', 'd5001')");
    db.put("small", "more", "The keeper has a dog.");
    db.wait("large");
    db.wait("small");
    assert_eq!(db.found("large", "Who painted the lighthouse in spring?", 1), ["d5000"]);
    assert_sound(&mut db, "large", count - 1, 0);
    assert_eq!(db.count("kb.vectors_both"), MIN_ROWS as i64 - 9);
    // Another model: the next build begins in the shared table again, and leaves it again.
    db.run("SELECT kb.create_embedder('other', 'hash', dimension => 384, config => '{\"document_prefix\": \"x \"}')");
    db.run(
        "SELECT kb.alter_knowledge_base('large', embedder => 'other'); SELECT kb.ingest('large', 'replace')",
    );
    db.wait("large");
    until(SOON, "the old table is gone", || db.one::<bool>(&format!("SELECT to_regclass('{own}') IS NULL")));
    let next = until_moved(&mut db);
    assert_ne!(next, own);
    assert_sound(&mut db, "large", count - 1, 0);
    db.refused("SELECT kb.drop_vector_db('both')", "2BP01");
    db.run("SELECT kb.drop_knowledge_base('large')");
    let is_gone = format!("SELECT to_regclass('{next}') IS NULL");
    until(SOON, "its table is dropped", || db.one::<bool>(&is_gone));
    db.run("SELECT kb.drop_knowledge_base('small'); SELECT kb.drop_vector_db('both')");
    assert_eq!(db.count("pg_class WHERE relname LIKE 'vectors\\_%' AND relkind = 'r'"), 0);
}

#[test]
fn a_move_in_the_middle_of_the_work_loses_no_vector_and_keeps_nobody_waiting() {
    let stub = Stub::start(Options::default());
    // At most 160 texts a second, on any machine.
    stub.set_latency(Duration::from_millis(100));
    let Some((cluster, mut db)) = sharing(Some(&stub)) else { return };
    db.put_all("small", &documents(0..20));
    db.put_all("large", &documents(1000..1000 + 4 * MIN_ROWS as u64));
    // A transaction that has deleted a document stays open for a while. The move waits for it, and no session
    // waits for the move.
    let mut deleting = cluster.connect(APP);
    until(LONG, "work is under way", || db.vectors("large") > 50);
    deleting.run("BEGIN; SELECT kb.delete_document('small', 'd1')");
    until(LONG, "large is large", || db.vectors("large") > MIN_ROWS as i64 + 100);
    assert_eq!(vector_table(&mut db, "large"), "kb.vectors_both");
    db.run(
        "SET statement_timeout = '60s'; SELECT kb.delete_document('small', 'd2'); RESET statement_timeout",
    );
    let is_over = AtomicBool::new(false);
    let questions = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut session, mut questions) = (cluster.connect(APP), 0);
            while !is_over.load(Ordering::Relaxed) {
                let found: Vec<String> =
                    session.all("SELECT external_id FROM kb.query('large', 'ships', 10, min_score => -1)");
                assert_eq!(found.len(), 10);
                // Edits and deletes all the while.
                session.put("large", &format!("d{}", 1000 + questions), &format!("Edited text {questions}"));
                session.run(&format!("SELECT kb.delete_document('large', 'd{}')", 1100 + questions));
                questions = (questions + 1) % 100;
            }
            questions
        });
        // Also if an assertion fails, because the scope waits for the thread.
        let over = Over(&is_over);
        deleting.run("COMMIT");
        let own = until_moved(&mut db);
        // What is in flight goes there, too.
        let (jobs, vectors) = (db.jobs(), db.count(&own));
        assert!(jobs > 100, "{jobs} jobs are left: give more work");
        until(LONG, "more vectors are written", || {
            db.count(&own) + db.count("kb.vectors_both") > vectors + 100
        });
        assert_eq!(db.count("kb.vectors_both"), 18);
        drop(over);
        asking.join().unwrap()
    });
    assert!(questions > 0);
    // After a kill with documents in progress, it continues in the new table.
    signal(cluster.worker(APP), libc::SIGTERM);
    stub.set_latency(Duration::ZERO);
    db.wait("large");
    db.wait("small");
    let own = vector_table(&mut db, "large");
    let ready = db.count("kb.documents WHERE kb_id = 'large' AND status = 'ready'");
    assert_sound(&mut db, "large", ready, 0);
    assert_sound(&mut db, "small", 18, 0);
    assert_eq!(db.count("kb.vectors_both"), 18);
    assert_eq!(
        db.count(&own),
        db.count("kb.chunks WHERE kb_no = (SELECT kb_no FROM kb.knowledge_bases WHERE id = 'large')")
    );
}

#[test]
fn a_question_reads_only_the_vectors_of_its_own_knowledge_base() {
    let Some((_cluster, mut db)) = sharing(None) else { return };
    db.put_all_and_wait("small", &documents(0..20));
    for i in 0..16 {
        let kb = format!("other{i}");
        db.run(&format!(
            "SELECT kb.create_knowledge_base('{kb}', 'hash', 'both', chunking => '{{\"strategy\": \"none\"}}')"
        ));
        db.put_all_and_wait(&kb, &documents(100..350));
    }
    db.run("ANALYZE kb.vectors_both");
    let read = |db: &mut Db| -> i64 {
        db.run("SELECT pg_stat_force_next_flush()");
        db.one(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
             WHERE relid = 'kb.vectors_both'::regclass",
        )
    };
    let before = read(&mut db);
    for _ in 0..10 {
        assert_eq!(db.found("small", "Ships lie in the harbor.", 5).len(), 5);
    }
    let each = (read(&mut db) - before) / 10;
    assert!((5..200).contains(&each), "{each} of 4,020 vectors were read for an answer from 20");
}
