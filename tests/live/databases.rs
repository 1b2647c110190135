//! Several databases, and drops of databases and of the extension while the worker works.

use crate::stub::{Options, Stub};
use crate::support::{
    APP, Cluster, Db, Document, LONG, PRELOAD, SOON, WHOLE, assert_sound, chunk_set, texts, until,
    vector_table,
};
use std::time::Duration;

fn documents(count: u64) -> Vec<Document> {
    (0..count).map(|i| Document::new(format!("d{i}"), texts::text(i + 1, 3, 35))).collect()
}

/// A knowledge base in the middle of much work.
fn at_work(cluster: &Cluster, database: &str, count: u64) -> Db {
    let mut db = cluster.connect(database);
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    db.put_all("k", &documents(count));
    db.until_halfway("k", 8);
    db
}

#[test]
fn two_databases_are_served_at_once() {
    let cluster = crate::cluster!();
    cluster.create_database("other");
    let mut one = at_work(&cluster, APP, 200);
    let mut two = at_work(&cluster, "other", 200);
    assert!(one.jobs() > 0 && two.jobs() > 0);
    assert_ne!(cluster.worker(APP), cluster.worker("other"));
    // Each makes progress while the other does.
    for _ in 0..3 {
        let before = (one.vectors("k"), two.vectors("k"));
        until(SOON, "both move on", || one.vectors("k") > before.0 && two.vectors("k") > before.1);
        assert!(one.jobs() > 0 && two.jobs() > 0);
    }
}

#[test]
fn drop_extension_succeeds_while_the_worker_works_and_the_extension_can_come_back() {
    let cluster = crate::cluster!(PRELOAD);
    let stub = Stub::start(Options::default());
    let mut db = cluster.connect(APP);
    db.create_stub_embedder("e", &stub, r#"{"timeout_ms": 600000}"#);
    db.create_kb("e", "e", WHOLE);
    stub.hold(true);
    db.put_all("e", &documents(3));
    until(SOON, "the provider is asked", || stub.request_count() > 0);
    let mut db = at_work(&cluster, APP, 200);
    // The test does not wait for the end of the work, which does not come, because the provider does not
    // answer.
    db.run("DROP EXTENSION kb");
    until(SOON, "the worker leaves", || cluster.processes("kb worker", Some(APP)).is_empty());
    assert_eq!(db.count("pg_class WHERE relnamespace = 'kb'::regnamespace"), 0);
    db.run("CREATE EXTENSION kb");
    db.create_kb("k", "hash", "{}");
    db.put_and_wait("k", "d", "A new beginning.");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.found("k", "new beginning", 5), ["d"]);
}

#[test]
fn an_extension_made_again_at_once_is_served_without_preload() {
    let (cluster, mut db) = crate::connected!();
    let oid: u32 = db.one("SELECT oid FROM pg_database WHERE datname = current_database()");
    let pid_file = cluster.data().join(format!("pg_stat_tmp/kb.worker.{oid}.pid"));
    for i in 0..4 {
        db.create_kb("k", "hash", "{}");
        db.put("k", "d", &texts::paragraph(i, 20));
        // kb.wait would start a worker, so this does without it: the commit alone must.
        until(SOON, "the document is ready", || db.jobs() == 0);
        assert_sound(&mut db, "k", 1, 0);
        db.run("DROP EXTENSION kb");
        until(SOON, "the worker leaves", || !pid_file.exists());
        db.run("CREATE EXTENSION kb");
    }
}

#[test]
fn drop_database_succeeds_while_the_worker_works() {
    for settings in [&[][..], &[PRELOAD]] {
        let Some(cluster) = Cluster::start(settings) else { return };
        drop(at_work(&cluster, APP, 200));
        // PostgreSQL itself waits for at most five seconds.
        cluster.connect("postgres").run(&format!("DROP DATABASE {APP}"));
        cluster.create_database("next");
        let mut db = cluster.connect("next");
        db.create_kb("k", "hash", "{}");
        db.put_and_wait("k", "d", "The gateway and the launcher go on.");
        assert_sound(&mut db, "k", 1, 0);
    }
}

#[test]
fn drop_database_succeeds_while_an_index_is_built() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_vector_db('v', 'pgvector', 384, config => '{\"ef_construction\": 1000, \"m\": 64}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')");
    let documents = texts::documents(0..6000, 30);
    db.put_all("k", &documents);
    until(LONG, "an index is being built", || {
        db.count("pg_stat_progress_create_index WHERE phase LIKE 'building index%'") == 1
    });
    drop(db);
    cluster.connect("postgres").run(&format!("DROP DATABASE {APP}"));
}

#[test]
fn a_database_can_be_copied_while_its_worker_works_and_while_it_idles() {
    let cluster = crate::cluster!(PRELOAD, "kb.worker_idle_timeout = '1h'", "kb.launcher_naptime = '1s'");
    let mut db = at_work(&cluster, APP, 60);
    let mut postgres = cluster.connect("postgres");
    let jobs = db.jobs();
    drop(db);
    postgres.run(&format!("CREATE DATABASE copy TEMPLATE {APP}"));
    let mut copy = cluster.connect("copy");
    assert!((1..=jobs).contains(&copy.jobs()));
    copy.wait("k");
    assert_sound(&mut copy, "k", 60, 0);
    let mut db = cluster.connect(APP);
    db.wait("k");
    assert_sound(&mut db, "k", 60, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut copy, "k"));
    drop(db);
    // It is idle now, and would stay for an hour.
    cluster.worker(APP);
    postgres.run(&format!("CREATE DATABASE again TEMPLATE {APP}"));
    let mut again = cluster.connect("again");
    assert_sound(&mut again, "k", 60, 0);
}

#[test]
fn more_databases_than_worker_slots_are_all_served_in_turn() {
    // Two slots in addition to those of the gateway and the launcher.
    let stub = Stub::start(Options { latency: Duration::from_millis(100), ..Options::default() });
    let cluster = crate::cluster!(PRELOAD, "max_worker_processes = 4", "max_logical_replication_workers = 0");
    let names: Vec<String> = (0..5).map(|i| format!("base{i}")).collect();
    let mut all = Vec::new();
    for name in &names {
        cluster.create_database(name);
        let mut db = cluster.connect(name);
        db.create_stub_embedder("e", &stub, r#"{"batch_size": 1, "max_concurrency": 1}"#);
        db.create_kb("k", "e", WHOLE);
        db.put_all("k", &documents(150));
        all.push(db);
    }
    // Each makes progress long before any has finished.
    until(LONG, "every database has had a turn", || {
        all.iter_mut().all(|db| db.count("kb.documents WHERE status = 'ready'") > 0)
    });
    let left: Vec<i64> = all.iter_mut().map(|db| db.count("kb.documents WHERE status = 'pending'")).collect();
    assert!(left.iter().all(|left| *left > 0), "{left:?}");
    assert!(cluster.log().contains("served in turn"));
    assert!(cluster.log().matches("kb: no background worker slot").count() < 20, "the log is flooded");
    // A worker that leaves when its turn ends loses nothing.
    stub.set_latency(Duration::ZERO);
    for db in &mut all {
        db.wait("k");
        assert_sound(db, "k", 150, 0);
    }
}

/// A database that can save nothing (because its disk is full, for example) has a turn like any other, and
/// not a longer one.
#[test]
fn a_database_that_can_save_nothing_leaves_the_slot_to_others() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!(PRELOAD, "max_worker_processes = 3", "max_logical_replication_workers = 0");
    cluster.create_database("other");
    let mut full = cluster.connect(APP);
    full.create_stub_embedder("e", &stub, r#"{"batch_size": 8}"#);
    full.create_kb("k", "e", WHOLE);
    let table = vector_table(&mut full, "k");
    full.run(&format!(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$;
         CREATE TRIGGER full_disk BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION full_disk()"
    ));
    // There is more than one group, so the next one is prepared when the vectors of the first arrive.
    full.put_all("k", &documents(200));
    until(SOON, "vectors cannot be saved", || cluster.log().contains("worker keeps vectors"));
    let mut other = cluster.connect("other");
    other.create_kb("k", "hash", "{}");
    other.put("k", "d", "The other one's document.");
    until(LONG, "the other database is served", || other.jobs() == 0);
    assert_sound(&mut other, "k", 1, 0);
    full.run_and_wait("k", &format!("DROP TRIGGER full_disk ON {table}"));
    assert_sound(&mut full, "k", 200, 0);
}

#[test]
fn a_database_without_the_extension_keeps_no_worker() {
    let cluster = crate::cluster!(PRELOAD, "kb.launcher_naptime = '1s'");
    let mut postgres = cluster.connect("postgres");
    postgres.run("CREATE DATABASE plain");
    let visited = "SELECT xact_commit > 0 FROM pg_stat_database WHERE datname = 'plain'";
    let mut app = cluster.connect(APP);
    app.create_kb("k", "hash", "{}");
    for i in 0..3 {
        app.put_and_wait("k", &format!("d{i}"), &texts::paragraph(i, 10));
        until(SOON, "the launcher has started a worker in it", || postgres.one(visited));
        until(SOON, "no worker in the database without kb", || {
            postgres.count("pg_stat_activity WHERE backend_type = 'kb worker' AND datname <> 'app'") == 0
        });
        postgres.run("DROP DATABASE plain");
        postgres.run("CREATE DATABASE plain");
    }
}

#[test]
fn turns_of_an_earlier_start_mean_nothing_without_preload() {
    let cluster = crate::cluster!();
    // A server that was stopped while slots were short leaves it like this.
    std::fs::write(cluster.data().join("pg_stat_tmp/kb.slots_short"), "").unwrap();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    db.put_and_wait("k", "d", "The harbor is south of the village.");
    assert_sound(&mut db, "k", 1, 0);
}
