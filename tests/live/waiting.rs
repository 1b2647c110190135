//! A session that waits for documents delays no other session.

use crate::stub::{Options, Stub};
use crate::support::{APP, Db, SOON, until};
use std::thread::scope;

/// Documents of "k" wait for a provider that does not answer.
fn held(db: &mut Db, stub: &Stub) {
    stub.hold(true);
    db.create_stub_embedder("e", stub, r#"{"timeout_ms": 60000}"#);
    db.create_kb("k", "e", "{}");
    db.put("k", "a", "The harbor closes at nine.");
    db.run("CREATE TABLE other (n integer); INSERT INTO other SELECT generate_series(1, 100)");
}

const HAS_SNAPSHOT: &str = "pg_stat_activity WHERE query LIKE '%kb.wait(%' AND state = 'active'
    AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL";
/// Also while they check whether all documents are done.
const CALLED: &str =
    "pg_stat_activity WHERE query LIKE '%kb.wait(%' AND state = 'active' AND pid <> pg_backend_pid()";
const WAITS: &str =
    "pg_stat_activity WHERE query LIKE '%kb.wait(%' AND state = 'active' AND wait_event = 'Extension'
    AND pid <> pg_backend_pid()";

#[test]
fn a_session_in_kb_wait_keeps_no_snapshot_for_which_an_index_is_waiting() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    held(&mut db, &stub);
    scope(|scope| {
        // By either protocol, in a transaction, and fetching a part of the rows at a time.
        let waiters = [
            scope.spawn(|| cluster.connect(APP).run("SELECT kb.wait('k', 60)")),
            scope.spawn(|| drop(cluster.connect(APP).0.query("SELECT kb.wait('k', $1)", &[&60f64]).unwrap())),
            scope.spawn(|| cluster.connect(APP).run("BEGIN; SAVEPOINT s; SELECT kb.wait('k', 60); COMMIT")),
            scope.spawn(|| {
                let mut db = cluster.connect(APP);
                let mut transaction = db.0.transaction().unwrap();
                let portal = transaction.bind("SELECT kb.wait('k', 60)", &[]).unwrap();
                assert_eq!(transaction.query_portal(&portal, 1).unwrap().len(), 1);
                assert_eq!(transaction.query_portal(&portal, 1).unwrap().len(), 0);
                transaction.commit().unwrap();
            }),
        ];
        until(SOON, "all wait", || db.count(WAITS) == waiters.len() as i64);
        // No session checks all the time, so each is seen without a snapshot.
        until(SOON, "no snapshot is kept", || db.count(HAS_SNAPSHOT) == 0);
        // A build that begins just when a session checks waits for it, as for any that has a snapshot then;
        // another try does not.
        db.run("SET statement_timeout = '8s'");
        let is_built = (0..5).any(|_| {
            db.run("DROP INDEX IF EXISTS other_n");
            db.try_run("CREATE INDEX CONCURRENTLY other_n ON other (n)").is_ok()
        });
        assert!(is_built, "an index waits for sessions that wait");
        assert_eq!(db.count(CALLED), waiters.len() as i64, "the index is there before the documents");
        stub.hold(false);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    // The state of the sessions is in order: the same statements end by an error, too.
    let mut db = cluster.connect(APP);
    stub.hold(true);
    db.put("k", "b", "The ferry leaves at ten.");
    for _ in 0..2 {
        db.refused("SELECT kb.wait('k', 0.2)", "55P03");
    }
    stub.hold(false);
    db.run("SELECT kb.wait('k', 60)");
    assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.query('k', 'When does the ferry leave?')"), 2);
}

#[test]
fn a_statement_that_also_reads_keeps_its_snapshot_while_it_waits() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    held(&mut db, &stub);
    db.run(
        "CREATE FUNCTION plain() RETURNS bigint LANGUAGE plpgsql AS
         'BEGIN PERFORM kb.wait(''k'', 60); RETURN (SELECT count(*) FROM other); END';
         CREATE FUNCTION stable() RETURNS bigint LANGUAGE plpgsql STABLE AS
         'BEGIN PERFORM kb.wait(''k'', 60); RETURN (SELECT count(*) FROM other); END';
         CREATE FUNCTION sql_stable() RETURNS bigint LANGUAGE sql STABLE AS
         'SELECT kb.wait(''k'', 60); SELECT count(*) FROM other'",
    );
    // What each counts of rows that are deleted and vacuumed while it waits. Only a volatile function looks
    // again.
    let readers = [
        ("SELECT count FROM (SELECT kb.wait('k', 60), (SELECT count(*) FROM other) OFFSET 0) q", 100),
        ("SELECT count(*) FROM (SELECT kb.wait('k', 60) FROM other LIMIT 1 OFFSET 0) q, other", 100),
        ("SELECT stable()", 100),
        ("SELECT sql_stable()", 100),
        ("SELECT plain()", 0),
    ];
    let waits = WAITS.replace("%kb.wait(%", "SELECT %");
    scope(|scope| {
        let cluster = &cluster;
        let counts = readers.map(|(sql, _)| scope.spawn(move || cluster.connect(APP).one::<i64>(sql)));
        until(SOON, "all wait", || db.count(&waits) == readers.len() as i64);
        db.run("DELETE FROM other");
        db.run("VACUUM other");
        stub.hold(false);
        for (count, (sql, expected)) in counts.into_iter().zip(readers) {
            assert_eq!(count.join().unwrap(), expected, "{sql}");
        }
    });
}
