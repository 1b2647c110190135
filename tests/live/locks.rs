//! Transactions that stay open and locks that are kept delay only what they lock.

use crate::stub::{Options, Stub};
use crate::support::{APP, Db, Document, LONG, SOON, assert_sound, succeed, texts, until, vector_table};

const CHUNKING: &str = r#"{"size": 60, "overlap": 0}"#;

/// A large document and two small ones are at the provider, which answers when the test lets it.
fn under_way(db: &mut Db, stub: &Stub) -> String {
    stub.hold(true);
    db.create_stub_embedder("e", stub, r#"{"batch_size": 8, "timeout_ms": 60000}"#);
    db.create_kb("k", "e", CHUNKING);
    db.create_kb("other", "hash", CHUNKING);
    let large = texts::text(1, 30, 40);
    db.put_all(
        "k",
        &[
            Document::new("a", texts::paragraph(11, 12)),
            Document::new("large", large.clone()),
            Document::new("z", texts::paragraph(12, 12)),
        ],
    );
    until(SOON, "the provider is asked for all of them", || stub.seen(&texts::paragraph(12, 12)) == 1);
    large
}

#[test]
fn a_transaction_left_open_on_a_document_under_way_stops_no_other() {
    for how in ["changed", "unchanged", "deleted"] {
        for end in ["COMMIT", "ROLLBACK"] {
            let stub = Stub::start(Options::default());
            let (cluster, mut db) = crate::connected!("kb.lease_duration = '10s'");
            let large = under_way(&mut db, &stub);
            let mut open = cluster.connect(APP);
            open.run("BEGIN");
            match how {
                "changed" => drop(open.put("k", "large", &(large.clone() + "\n\nAnd one more thing."))),
                "unchanged" => drop(open.put("k", "large", &large)),
                _ => open.run("SELECT kb.delete_document('k', 'large')"),
            }
            if how == "changed" {
                // Leases are renewed, except for the one that cannot be.
                let lease = "SELECT extract(epoch FROM max(leased_until))::float8 FROM kb.jobs";
                let before: f64 = db.one(lease);
                until(SOON, "leases are renewed", || db.one::<f64>(lease) > before);
            }
            stub.hold(false);
            let ready = "kb.documents WHERE status = 'ready' AND external_id IN ('a', 'z')";
            until(SOON, "the small documents are ready", || db.count(ready) == 2);
            db.put("k", "new", "Put while the other transaction is open.");
            db.put_and_wait("other", "d", "And this one, too.");
            until(SOON, "new documents are taken in", || {
                db.count("kb.documents WHERE status = 'ready' AND external_id = 'new'") == 1
            });
            open.run(end);
            db.wait("k");
            let is_gone = how == "deleted" && end == "COMMIT";
            assert_sound(&mut db, "k", if is_gone { 3 } else { 4 }, 0);
            assert_sound(&mut db, "other", 1, 0);
            assert_eq!(db.count("kb.failures"), 0, "{how} {end}");
            // At most the document that was being deleted is paid for twice.
            let most = if how == "deleted" { 2 } else { 1 };
            assert!(stub.counts().values().all(|(_, answered)| *answered <= most), "{how} {end}");
        }
    }
}

#[test]
fn a_locked_vector_table_delays_only_its_knowledge_base_and_nothing_is_paid_twice() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    under_way(&mut db, &stub);
    let table = vector_table(&mut db, "k");
    let mut open = cluster.connect(APP);
    open.run(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
    stub.hold(false);
    until(SOON, "vectors cannot be saved", || cluster.log().contains("worker keeps vectors"));
    // Jobs that wait for the lock.
    let more: Vec<Document> =
        (0..40).map(|i| Document::new(format!("q{i}"), texts::paragraph(500 + i, 12))).collect();
    db.put_all("k", &more);
    let many = texts::documents(0..50, 12);
    db.put_all("other", &many);
    until(LONG, "the other knowledge base is done", || {
        db.count("kb.documents d JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'other' AND status = 'ready'")
            == 50
    });
    open.run("COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 43, 0);
    assert!(stub.counts().values().all(|(_, answered)| *answered == 1));
}

#[test]
fn a_lock_on_the_queue_itself_loses_nothing_that_was_paid_for() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!("kb.lease_duration = '10s'");
    under_way(&mut db, &stub);
    let mut open = cluster.connect(APP);
    open.run("BEGIN; LOCK TABLE kb.jobs IN ACCESS EXCLUSIVE MODE");
    stub.hold(false);
    until(SOON, "the worker says so", || {
        cluster.log().contains("worker waits for a lock of another session")
    });
    open.run("COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
    assert!(stub.counts().values().all(|(_, answered)| *answered == 1));
}

#[test]
fn an_open_edit_that_delays_a_switch_of_builds_delays_no_other_run() {
    let (stub, cluster, mut db) = crate::with_stub!(r#"{"timeout_ms": 60000}"#, CHUNKING);
    db.create_kb("other", "hash", CHUNKING);
    db.put("k", "small", &texts::paragraph(11, 12));
    db.put("k", "large", &texts::text(1, 30, 40));
    db.put("other", "d", &texts::text(2, 3, 40));
    db.wait("k");
    // In the next build the small one has the chunk that it had, and needs no provider.
    stub.hold(true);
    db.run(r#"SELECT kb.alter_knowledge_base('k', chunking => '{"size": 100, "overlap": 0}')"#);
    db.run("SELECT kb.ingest('k', 'replace')");
    let job = |id: &str| format!("kb.jobs WHERE subject = '{id}'");
    until(SOON, "the small one is done", || db.count(&job("small")) == 0);
    let mut open = cluster.connect(APP);
    open.run("BEGIN");
    open.put("k", "small", "Edited in a transaction that stays open.");
    stub.hold(false);
    until(SOON, "the large one is done, too", || db.count(&job("large")) == 0);
    until(SOON, "the build cannot be switched to", || {
        cluster.log().contains("worker cannot switch to build")
    });
    db.run("SELECT kb.ingest('other')");
    db.wait("other");
    assert_sound(&mut db, "other", 1, 0);
    assert_eq!(db.count("kb.builds WHERE state = 'next'"), 1);
    open.run("COMMIT");
    db.wait("k");
    until(SOON, "the old build is swept", || db.count("kb.builds") == 2);
    assert_sound(&mut db, "k", 2, 0);
    assert_eq!(db.count("kb.chunks WHERE content LIKE 'Edited in a transaction%'"), 1);
}

/// The batches of the live build are refused one by one; documents that are put into both builds must not end
/// with those.
#[test]
fn a_locked_table_of_the_live_build_costs_the_next_build_no_vector() {
    let (cluster, mut db) = crate::connected!();
    db.create_slow_embedder(2);
    db.create_kb("k", "slow", CHUNKING);
    let (live, mut open) = (vector_table(&mut db, "k"), cluster.connect(APP));
    let documents = Document::numbered(0..3, |i| texts::text(1000 + i, 16, 40));
    db.run("BEGIN");
    db.put_all("k", &documents);
    // The next build has more chunks: its batches are in flight when those of the live one have all been
    // refused.
    db.run(
        r#"SELECT kb.alter_knowledge_base('k', chunking => '{"size": 30, "overlap": 0}');
           SELECT kb.ingest('k', 'replace'); COMMIT"#,
    );
    until(SOON, "the chunks of both builds are written", || {
        db.one("SELECT count(DISTINCT build_no) = 2 FROM kb.chunks")
    });
    open.run(&format!("BEGIN; LOCK TABLE {live} IN SHARE MODE"));
    until(LONG, "the next build is live", || db.count("kb.builds WHERE state = 'old'") == 1);
    let next = vector_table(&mut db, "k");
    let without = |table: &str, state: &str| {
        format!(
            "kb.chunks c JOIN kb.builds b USING (build_no) WHERE b.state = '{state}'
             AND NOT EXISTS (SELECT FROM {table} v WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no)"
        )
    };
    assert_eq!(
        db.count(&without(&next, "live")),
        0,
        "chunks without a vector when the build was switched to"
    );
    assert!(db.count(&without(&live, "old")) > 0, "all vectors were written before the table was locked");
    open.run("COMMIT");
    db.wait("k");
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 3, 0);
}

#[test]
fn a_knowledge_base_that_is_dropped_or_replaced_keeps_no_other_from_answering() {
    let (cluster, mut db) = crate::connected!();
    for id in ["dropped", "replaced", "other"] {
        db.create_kb(id, "hash", CHUNKING);
        db.put_and_wait(id, "a", &texts::text(3, 5, 40));
    }
    let question = "SELECT count(*) FROM kb.query('other', 'the harbor', 5)";
    let mut open = cluster.connect(APP);
    open.run("BEGIN; SELECT kb.drop_knowledge_base('dropped')");
    db.run("SET lock_timeout = '2s'");
    assert_eq!(db.one::<i64>(question), 5);
    db.put_and_wait("other", "b", "Another document.");
    open.run("ROLLBACK");
    assert_sound(&mut db, "dropped", 1, 0);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.query('dropped', 'the harbor', 5)"), 5);
    // A transaction that has asked a question and then does nothing.
    open.run(&format!("BEGIN; {question}"));
    db.run("SELECT kb.drop_knowledge_base('dropped'); SELECT kb.ingest('replaced', 'replace')");
    db.wait("replaced");
    until(SOON, "the old build is swept", || db.count("kb.builds WHERE state = 'old'") == 0);
    // A transaction that has only asked or written is not waited for: tables whose builds are gone are
    // dropped.
    until(SOON, "the tables are dropped", || db.count(TABLES) == 2);
    assert_eq!((db.count("kb.builds"), db.one::<i64>(question)), (2, 5));
    open.run("COMMIT");
    assert_sound(&mut db, "replaced", 1, 0);
    assert_sound(&mut db, "other", 2, 0);
}

const TABLES: &str = "pg_class WHERE relnamespace = 'kb'::regnamespace AND relname ~ '^vectors_[0-9]+$'";

#[test]
fn a_knowledge_base_that_is_made_in_an_open_transaction_keeps_nobody_from_writing() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("other", "hash", CHUNKING);
    db.put("other", "a", &texts::text(3, 5, 40));
    db.put_and_wait("other", "b", "A document that is deleted.");
    let mut open = cluster.connect(APP);
    open.run("BEGIN; SELECT kb.create_knowledge_base('new', 'hash'), kb.put_document('new', 'a', 'Its first document.')");
    db.run("SET lock_timeout = '2s'; SELECT kb.delete_document('other', 'b')");
    db.put_and_wait("other", "c", "Another document.");
    // A transaction that has deleted chunks and does nothing does not keep a new knowledge base from becoming
    // ready.
    let mut deletes = cluster.connect(APP);
    deletes.run("BEGIN; SELECT kb.delete_document('other', 'c')");
    open.run("COMMIT");
    db.put("other", "d", "One more document.");
    db.put("new", "b", "Its second document.");
    db.wait("other");
    db.wait("new");
    assert_eq!(db.count("kb.health() WHERE component = 'tables' AND status = 'ok'"), 1);
    assert_sound(&mut db, "new", 2, 0);
    db.run_and_wait("new", "SELECT kb.ingest('new', 'replace')");
    until(SOON, "the old build is swept", || db.count("kb.builds WHERE state = 'old'") == 0);
    deletes.run("COMMIT");
    assert_sound(&mut db, "new", 2, 0);
    assert_sound(&mut db, "other", 2, 0);
    // A knowledge base that has never had a document, and a dump of it.
    db.create_kb("empty", "hash", CHUNKING);
    succeed(
        cluster.program("pg_dump").args(["--format=custom", "--file"]).arg(cluster.path("dump")).arg(APP),
    );
    cluster.connect("postgres").run("CREATE DATABASE restored");
    succeed(
        cluster
            .program("pg_restore")
            .args(["--exit-on-error", "--dbname=restored"])
            .arg(cluster.path("dump")),
    );
    let mut restored = cluster.connect("restored");
    restored.put("empty", "a", "The first document of all.");
    restored.put("new", "c", "Another third one.");
    for (id, documents) in [("empty", 1), ("new", 3)] {
        restored.wait(id);
        assert_sound(&mut restored, id, documents, 0);
    }
}

#[test]
fn a_vector_database_is_created_and_dropped_beside_an_open_deletion_of_documents() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("other", "hash", CHUNKING);
    db.put_and_wait("other", "b", "A document that is deleted.");
    db.run("SELECT kb.create_vector_db('v', dimension => 8)");
    let mut deletes = cluster.connect(APP);
    deletes.run("BEGIN; SELECT kb.delete_document('other', 'b')");
    db.run(
        "SET lock_timeout = '2s'; SELECT kb.create_vector_db('w', dimension => 8), kb.drop_vector_db('v')",
    );
    deletes.run("ROLLBACK");
}

#[test]
fn a_query_during_the_drop_of_its_knowledge_base_gets_an_error_and_no_empty_answer() {
    let (cluster, mut db) = crate::with_kb!("hash", CHUNKING);
    db.put_and_wait("k", "a", &texts::text(3, 5, 40));
    let mut drops = cluster.connect(APP);
    drops.run("BEGIN; SELECT kb.drop_knowledge_base('k')");
    std::thread::scope(|scope| {
        let mut asks = cluster.connect(APP);
        let asked = scope.spawn(move || asks.fault("SELECT * FROM kb.query('k', 'the harbor', 5)"));
        // The worker may wait, too.
        until(SOON, "the question waits", || {
            db.count(
                "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT * FROM kb.query(%'",
            ) == 1
        });
        drops.run("COMMIT");
        let fault = asked.join().unwrap();
        assert_eq!(fault.code, "55000", "{fault:?}");
        assert!(fault.message.contains("have been removed meanwhile"), "{fault:?}");
    });
}

#[test]
fn dropping_a_knowledge_base_succeeds_if_its_vector_table_is_dropped_meanwhile() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "A text.");
    let table = vector_table(&mut db, "k");
    // The worker drops the table of a build that was replaced in this way.
    let (mut dropping, mut other) = (cluster.connect(APP), cluster.connect(APP));
    dropping.run(&format!("BEGIN; DROP TABLE {table}"));
    let asks = std::thread::spawn(move || other.run("SELECT kb.drop_knowledge_base('k')"));
    until(SOON, "it waits", || {
        db.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND query = 'SELECT kb.drop_knowledge_base(''k'')'") == 1
    });
    dropping.run("COMMIT");
    asks.join().unwrap();
    assert_eq!(db.count("kb.knowledge_bases"), 0);
}
