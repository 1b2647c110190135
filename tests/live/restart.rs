//! Waiting work survives a restart, with and without shared_preload_libraries, and a machine that was
//! suspended.

use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, LONG, PRELOAD, SOON, WHOLE, assert_sound, signal, texts, until};
use std::collections::BTreeSet;

const DOCUMENTS: i64 = 30;

/// Documents that certainly wait: no background process can have started on them.
fn with_pending(databases: &[&str]) -> Option<Cluster> {
    let cluster = Cluster::start(&["max_worker_processes = 0"])?;
    for database in databases {
        if *database != APP {
            cluster.create_database(database);
        }
        let mut db = cluster.connect(database);
        db.create_kb("k", "minilm", "{}");
        let documents = texts::documents(0..DOCUMENTS as u64, 20);
        db.put_all("k", &documents);
        assert_eq!(db.jobs(), DOCUMENTS);
    }
    Some(cluster)
}

fn restart(cluster: &Cluster, settings: &[&str]) {
    cluster.stop("fast", 30);
    cluster.configure(settings);
    cluster.up();
}

#[test]
fn with_preload_waiting_work_is_done_after_a_restart_without_a_connection() {
    let Some(cluster) = with_pending(&[APP, "untouched"]) else { return };
    restart(&cluster, &[PRELOAD, "kb.worker_idle_timeout = '1s'"]);
    let mut watch = cluster.connect("postgres");
    let workers = "SELECT datname::text FROM pg_stat_activity
                   WHERE backend_type = 'kb worker' AND datname IN ('app', 'untouched')";
    // Both at once: one may have had its worker before the other's leaves.
    let mut served = BTreeSet::new();
    until(LONG, "each database has had a worker, and all workers have left", || {
        let now: Vec<String> = watch.all(workers);
        let is_quiet = now.is_empty();
        served.extend(now);
        is_quiet && served.len() == 2
    });
    for database in [APP, "untouched"] {
        let mut db = cluster.connect(database);
        assert_sound(&mut db, "k", DOCUMENTS, 0);
    }
}

#[test]
fn without_preload_the_first_wait_query_or_commit_after_a_restart_resumes_work() {
    let Some(cluster) = with_pending(&[APP, "queried", "committed"]) else { return };
    restart(&cluster, &[]);
    assert!(cluster.processes("kb worker", Some(APP)).is_empty());

    let mut db = cluster.connect(APP);
    assert_eq!(db.jobs(), DOCUMENTS);
    db.wait("k");
    assert_sound(&mut db, "k", DOCUMENTS, 0);

    let mut db = cluster.connect("committed");
    assert_eq!(db.jobs(), DOCUMENTS);
    db.put("k", "one more", "The last one brings the others along.");
    until(LONG, "a commit takes waiting work up", || db.jobs() == 0);
    assert_sound(&mut db, "k", DOCUMENTS + 1, 0);

    let mut db = cluster.connect("queried");
    assert_eq!(db.jobs(), DOCUMENTS);
    db.run("SELECT * FROM kb.query('k', 'river')");
    until(SOON, "a query takes waiting work up", || db.jobs() == 0);
    assert_sound(&mut db, "k", DOCUMENTS, 0);
}

#[test]
fn a_commit_succeeds_when_no_process_slot_is_free() {
    let Some(cluster) = with_pending(&[APP]) else { return };
    let mut db = cluster.connect(APP);
    assert_eq!(db.put("k", "d0", "Another text."), "updated");
    assert_eq!(db.jobs(), DOCUMENTS);
    // What cannot be done is reported, and kb.wait does not wait for it for ever.
    let fault = db.fault("SET kb.gateway_timeout = '2s'; SELECT * FROM kb.query('k', 'river')");
    assert!(fault.text.contains("max_worker_processes"), "{fault:?}");
    db.refused("SELECT kb.wait('k', 1)", "55P03");
}

#[test]
fn a_commit_right_after_the_worker_was_ended_starts_another() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    for i in 0..3 {
        db.put("k", &format!("d{i}"), &texts::paragraph(i, 20));
        // kb.wait would start a worker, so this does without it: the commit alone must.
        until(SOON, &format!("document {i} is ready"), || db.jobs() == 0);
        let worker = "pg_stat_activity WHERE backend_type = 'kb worker'";
        db.run(&format!("SELECT pg_terminate_backend(pid) FROM {worker}"));
        until(SOON, "the worker is gone", || db.count(worker) == 0);
    }
    assert_sound(&mut db, "k", 3, 0);
}

#[test]
fn a_worker_that_slept_longer_than_its_leases_pays_for_nothing_twice() {
    let latency = std::time::Duration::from_millis(300);
    let stub = Stub::start(Options { latency, ..Options::default() });
    let (cluster, mut db) = crate::connected!("kb.lease_duration = '10s'");
    db.create_stub_embedder("e", &stub, r#"{"batch_size": 4, "max_concurrency": 2}"#);
    db.create_kb("k", "e", WHOLE);
    let documents = texts::documents(0..200, 20);
    db.put_all("k", &documents);
    until(SOON, "some are done", || db.vectors("k") >= 20);
    assert_eq!(db.count("kb.status WHERE pending > 0 AND rate > 0 AND eta > interval '0'"), 1);
    let worker = cluster.stop_worker(APP);
    until(SOON, "its leases have run out", || {
        db.count("kb.jobs WHERE leased_until > clock_timestamp()") == 0
    });
    assert!(db.count("kb.jobs WHERE leased_until IS NOT NULL") > 0, "nothing was leased");
    signal(worker, libc::SIGCONT);
    db.wait("k");
    assert_sound(&mut db, "k", 200, 0);
    let twice = stub.counts().values().filter(|(seen, _)| *seen > 1).count();
    assert_eq!(twice, 0, "texts were sent again");
}
