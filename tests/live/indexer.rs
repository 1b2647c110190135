//! When the indexer is asked for an index, and what happens to one that cannot be built.

use crate::index::indexes;
use crate::stub::{Options, Stub};
use crate::support::{
    APP, Cluster, Db, LONG, PENDING_CHUNKS, SOON, WHOLE, assert_sound, texts, until, vector_table,
};

/// The lines of the log about indexes or housekeeping that went wrong.
fn complaints(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let kb = log.lines().filter(|line| line.contains("LOG:  kb: "));
    let is_complaint = |line: &&str| ["index", "housekeeping", "lock"].iter().any(|word| line.contains(word));
    kb.filter(is_complaint).map(String::from).collect()
}

const BEING_BUILT: &str = "pg_stat_progress_create_index WHERE phase <> 'initializing'";

#[test]
fn dropping_a_knowledge_base_while_its_index_is_built_is_no_failure() {
    let (cluster, mut db) = crate::connected!();
    let mut other = cluster.connect(APP);
    let documents = texts::documents(0..1200, 10);
    for round in 0..12 {
        let kb = format!("k{round}");
        db.create_kb(&kb, "hash", WHOLE);
        db.put_all(&kb, &documents);
        // When the documents are done, or when the build has begun, which may end soon after.
        if round % 2 == 0 {
            db.wait(&kb);
        } else {
            let table = vector_table(&mut db, &kb);
            let being_built = format!("{BEING_BUILT} AND relid = '{table}'::regclass");
            until(LONG, "the index is being built", || other.count(&being_built) == 1);
        }
        db.run(&format!("SELECT kb.drop_knowledge_base('{kb}')"));
    }
    until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
    assert_eq!(complaints(&cluster), [""; 0]);
}

#[test]
fn a_transaction_that_an_index_build_waits_for_can_drop_its_knowledge_base() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    let documents = texts::documents(0..1200, 10);
    for end in ["ROLLBACK", "COMMIT"] {
        db.create_kb(end, "hash", WHOLE);
        let table = vector_table(&mut db, end);
        db.put_and_wait(end, "first", "Ships lie in the harbor.");
        // The build waits for this writer before it begins, so the snapshot is older than the end of the
        // build.
        let mut writer = cluster.connect(APP);
        writer.run(&format!("BEGIN; LOCK TABLE {table} IN ROW EXCLUSIVE MODE"));
        db.put_all_and_wait(end, &documents);
        // What the worker writes after the snapshot could not be dropped under it.
        until(LONG, "words are folded", || db.count(PENDING_CHUNKS) < 256);
        db.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
        writer.run("COMMIT");
        until(LONG, "the index waits for the snapshot", || {
            other.count("pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots'") == 1
        });
        // It has waited for longer than deadlock_timeout, so it has looked, and there was no deadlock.
        db.run("SELECT pg_sleep(0.3)");
        db.run(&format!("SELECT kb.drop_knowledge_base('{end}'); {end}"));
        if end == "ROLLBACK" {
            until(LONG, "the index is there and valid", || indexes(&mut other, &table) == [true]);
        }
    }
    until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
    assert_eq!(complaints(&cluster), [""; 0]);
}

/// Puts enough documents for an index into `k`, while the database refuses to create one. Returns the vector
/// table.
fn with_an_index_that_cannot_be_built(db: &mut Db) -> String {
    db.create_kb("k", "hash", WHOLE);
    let table = vector_table(db, "k");
    db.run(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no indexes here'; END$$;
         CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION refuse()",
    );
    db.put_all("k", &texts::documents(0..1200, 10));
    table
}

#[test]
fn an_index_that_cannot_be_built_is_logged_once_with_its_knowledge_base_and_table() {
    let (cluster, mut db) = crate::connected!();
    let table = with_an_index_that_cannot_be_built(&mut db);
    db.wait("k");
    let line = format!("the index of table {table} (knowledge base \"k\") cannot be built: ");
    until(LONG, "it is logged", || cluster.log().contains(&line));
    until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
    assert_eq!(complaints(&cluster).len(), 1, "{:?}", complaints(&cluster));
}

#[test]
fn an_index_for_which_several_processes_have_too_little_memory_is_built_by_one() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE, ["max_parallel_maintenance_workers = 2"]);
    let table = vector_table(&mut db, "k");
    db.run(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN
             IF current_setting('max_parallel_maintenance_workers')::int > 0 THEN
                 RAISE WARNING 'too little for several';
                 RAISE USING ERRCODE = 'disk_full', MESSAGE = 'could not resize shared memory segment';
             END IF;
         END$$;
         CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION refuse()",
    );
    db.put_all_and_wait("k", &texts::documents(0..1200, 10));
    let mut other = cluster.connect(APP);
    until(LONG, "the index is there and valid", || indexes(&mut other, &table) == [true]);
    assert!(cluster.log().contains("too little for several"), "several processes were to build it");
    assert_eq!(complaints(&cluster), [""; 0]);
}

/// The times at which indexers were started, in seconds of the day, from the server's log at debug1.
fn starts(cluster: &Cluster) -> Vec<f64> {
    let log = cluster.log();
    let lines = log.lines().filter(|line| line.contains("starting background worker process \"kb indexer\""));
    let seconds =
        |time: &str| time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap());
    lines.map(|line| seconds(line.split_whitespace().nth(1).unwrap())).collect()
}

#[test]
fn an_index_that_cannot_be_built_is_tried_after_longer_and_longer_pauses() {
    // The same worker runs all the time, because its successor would not know of these pauses.
    let (cluster, mut db) = crate::connected!("log_min_messages = debug1", "kb.worker_idle_timeout = '1h'");
    with_an_index_that_cannot_be_built(&mut db);
    db.wait("k");
    for number in 1..4 {
        until(LONG, "the index is tried", || starts(&cluster).len() >= number);
        // New vectors do not shorten the pause, but without them the build would not be tried again.
        for i in 0..3 {
            let name = format!("late {number} {i}");
            db.put_and_wait("k", &name, &name);
        }
    }
    until(LONG, "the index is tried once more", || starts(&cluster).len() >= 4);
    let starts = starts(&cluster);
    // The pauses are at least 2, 4 and 8 s. The server may start late what the worker requested, but not by 3
    // s.
    let last = (starts[3] - starts[2]).rem_euclid(86_400.0);
    assert!(last > 5.0, "{starts:?}");
}

#[test]
fn an_index_is_built_even_if_a_document_is_put_before_the_indexer_looks() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!("autovacuum = off", "kb.worker_idle_timeout = '1h'");
    let (mut db, mut holder) = (cluster.connect(APP), cluster.connect(APP));
    db.create_stub_embedder("e", &stub, r#"{"timeout_ms": 600000}"#);
    db.run("SELECT kb.create_vector_db('v', dimension => 8, config => '{\"min_rows\": 5}')");
    db.run("SELECT kb.create_knowledge_base('k', 'e', 'v', chunking => '{\"strategy\": \"none\"}')");
    db.put_all_and_wait("k", &texts::documents(0..4, 10));
    // Processes that connect from now on wait for this lock: the indexer, which the fifth document requests.
    holder.run("BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE");
    db.put("k", "fifth", &texts::paragraph(5, 10));
    until(LONG, "the indexer is asked for", || {
        db.count("pg_locks WHERE relation = 'pg_db_role_setting'::regclass AND NOT granted") == 1
    });
    stub.hold(true);
    db.put("k", "sixth", &texts::paragraph(6, 10));
    holder.run("COMMIT");
    let table = vector_table(&mut db, "k");
    until(LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    assert_eq!(db.jobs(), 1);
    stub.hold(false);
    db.wait("k");
    assert_sound(&mut db, "k", 6, 0);
}

#[test]
fn a_table_that_cannot_be_read_keeps_no_other_from_its_index() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("broken", "hash", WHOLE);
    let broken = vector_table(&mut db, "broken");
    // This comes before any worker runs, because a worker that starts looks at all tables. A wrapper without
    // a handler reads nothing.
    db.run(&format!(
        "ALTER TABLE {broken} RENAME TO moved; CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
         CREATE FOREIGN TABLE {broken} (embedding vector(384)) SERVER s"
    ));
    db.create_kb("k", "hash", WHOLE);
    db.put_all_and_wait("k", &texts::documents(0..1200, 10));
    let table = vector_table(&mut db, "k");
    until(LONG, "the index is there and valid", || indexes(&mut db, &table) == [true]);
    let line = format!("cannot determine whether table {broken} (knowledge base \"broken\") needs an index");
    until(SOON, "the other one is in the log", || cluster.log().contains(&line));
}

#[test]
fn a_table_is_looked_at_for_an_index_only_after_it_got_vectors() {
    // The same worker runs all the time, because a worker that starts looks at all tables.
    let (_cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1h'");
    for kb in ["idle", "busy"] {
        db.create_kb(kb, "hash", WHOLE);
        db.put_and_wait(kb, "d", "Ships lie in the harbor.");
    }
    let (idle, busy) = (vector_table(&mut db, "idle"), vector_table(&mut db, "busy"));
    let scans = |db: &mut Db, table: &str| -> i64 {
        let columns = "seq_scan + coalesce(idx_scan, 0)";
        db.one(&format!("SELECT {columns} FROM pg_stat_user_tables WHERE relid = '{table}'::regclass"))
    };
    let mut number = 0;
    let mut round = |db: &mut Db| {
        // A new document reads only its own vector table (an edit reads all); the worker reports its reads
        // together.
        let before = scans(db, &busy);
        number += 1;
        db.put_and_wait("busy", &format!("d{number}"), &texts::paragraph(number, 10));
        until(SOON, "what the worker read is counted", || scans(db, &busy) > before);
    };
    // The remaining work for the idle table is done.
    (0..3).for_each(|_| round(&mut db));
    let before = scans(&mut db, &idle);
    (0..5).for_each(|_| round(&mut db));
    assert_eq!(scans(&mut db, &idle), before);
}
