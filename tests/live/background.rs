//! How background processes behave: shutdown, settings, and no transaction during a call of a model.

use crate::support::{APP, Document, LONG, PRELOAD, SOON, WHOLE, assert_sound, signal, texts, until};
use std::time::{Duration, Instant};

fn documents(count: u64) -> Vec<Document> {
    (0..count).map(|i| Document::new(format!("d{i}"), texts::text(i + 1, 3, 35))).collect()
}

#[test]
fn a_fast_shutdown_in_the_middle_of_work_takes_seconds_and_loses_nothing() {
    let (cluster, mut db) = crate::connected!(PRELOAD);
    db.create_slow_embedder(32);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    db.put_all("k", &documents(60));
    db.until_halfway("k", 1);
    cluster.stop("fast", 10);
    cluster.up();
    let mut db = cluster.connect(APP);
    assert!(db.jobs() > 0);
    until(LONG, "the work is taken up again, though nobody asks for it", || db.jobs() == 0);
    assert_sound(&mut db, "k", 60, 0);
}

#[test]
fn a_reload_gives_worker_and_gateway_their_new_settings() {
    let (cluster, mut db) = crate::with_kb!("minilm", "{}", ["kb.worker_idle_timeout = '1h'"]);
    db.put_and_wait("k", "d", "A text.");
    let worker = cluster.worker(APP);
    cluster.configure(&["kb.worker_idle_timeout = '1s'", "kb.model_dir = '/nonexistent'"]);
    cluster.reload();
    until(SOON, "the worker leaves", || !cluster.processes("kb worker", Some(APP)).contains(&worker));
    until(SOON, "the gateway looks for models elsewhere", || {
        db.one::<bool>("SELECT NOT ok AND problem LIKE '%all-MiniLM-L6-v2%' FROM kb.check_embedder('minilm')")
    });
    cluster.configure(&[]);
    cluster.reload();
    until(SOON, "the gateway finds the model again", || {
        db.one::<bool>("SELECT ok FROM kb.check_embedder('minilm')")
    });
}

#[test]
fn sessions_and_the_gateway_have_the_processor_before_worker_and_indexer() {
    let (cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1h'");
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"min_rows\": 1}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v')");
    let session = niceness(db.one("SELECT pg_backend_pid()")).unwrap();
    // The index build waits for this snapshot.
    let mut other = cluster.connect(APP);
    other.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    db.put_all_and_wait("k", &documents(3));
    let mut indexer = None;
    until(LONG, "the indexer works", || {
        indexer = cluster.processes("kb indexer", Some(APP)).first().and_then(|pid| niceness(*pid));
        indexer.is_some_and(|niceness| niceness >= nicer(session, 15))
    });
    other.run("COMMIT");
    let expected = (Some(nicer(session, 5)), Some(nicer(session, 15)));
    assert_eq!((niceness(cluster.worker(APP)), indexer), expected);
    assert_eq!(niceness(cluster.gateway()), Some(session));
}

#[test]
fn sessions_have_the_processor_before_the_processes_that_help_to_build_an_index() {
    let (_cluster, mut db) =
        crate::connected!("min_parallel_table_scan_size = 0", "max_parallel_maintenance_workers = 2");
    db.create_kb("k", "hash", WHOLE);
    let session = niceness(db.one("SELECT pg_backend_pid()")).unwrap();
    db.put_all("k", &documents(12_000));
    let mut found = Vec::new();
    until(LONG, "an index is built by several processes, which have begun", || {
        let helpers =
            "SELECT w.pid, i.pid FROM pg_stat_activity w JOIN pg_stat_activity i ON i.pid = w.leader_pid
                       WHERE w.backend_type = 'parallel worker' AND i.backend_type = 'kb indexer'";
        let rows = db.0.query(helpers, &[]).unwrap();
        let pair = |row: &postgres::Row| {
            let pids: [i32; 2] = [row.get(0), row.get(1)];
            let [helper, indexer] = pids.map(niceness);
            Some(((helper?, group_niceness(pids[0])?), (indexer?, group_niceness(pids[1])?)))
        };
        found = rows.iter().filter_map(pair).collect();
        // A process that is starting may not know it yet.
        rows.len() == 2 && found.len() == 2 && found.iter().all(|(helper, _)| helper.1 >= nicer(session, 1))
    });
    for (helper, indexer) in found {
        let expected = nicer(session, 15);
        assert!(helper == indexer && indexer.0 >= expected, "{helper:?}, {indexer:?}, {session}");
    }
}

/// The niceness of a process that is this much nicer than sessions, which have the niceness of the test's
/// caller. Linux has at most 19.
fn nicer(session: i64, by: i64) -> i64 {
    (session + by).min(19)
}

/// The niceness of the group in which the kernel schedules a process, if it groups sessions (sched(7));
/// otherwise the process's own.
fn group_niceness(pid: i32) -> Option<i64> {
    let Ok(group) = std::fs::read_to_string(format!("/proc/{pid}/autogroup")) else { return niceness(pid) };
    group.trim_end().rsplit_once(' ')?.1.parse().ok()
}

/// The niceness that applies to a process, or None if the process has ended.
fn niceness(pid: i32) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
}

/// The most seconds that a transaction of the worker may last on a busy machine.
const LONGEST: f64 = 5.0;

/// Whether the worker has a transaction open, how old that is, and whether it holds back vacuum.
const WORKER: &str =
    "SELECT xact_start IS NOT NULL, extract(epoch FROM clock_timestamp() - xact_start)::float8,
    backend_xmin IS NOT NULL FROM pg_stat_activity WHERE backend_type = 'kb worker' AND datname = 'app'";

#[test]
fn no_transaction_is_held_while_a_model_works() {
    let (cluster, mut db) = crate::connected!();
    db.create_slow_embedder(32);
    db.create_kb("k", "slow", r#"{"size": 100, "overlap": 5}"#);
    db.put_all("k", &documents(60));
    until(LONG, "batches are at the gateway", || {
        db.count("kb.chunks") > 0 && db.count("kb.jobs WHERE leased_until IS NOT NULL") > 0
    });
    let mut watch = cluster.connect("postgres");
    let (mut all, mut open, mut holding) = (0, 0, 0);
    while db.jobs() > 0 {
        let Some(row) = watch.0.query_opt(WORKER, &[]).unwrap() else { continue };
        all += 1;
        let (is_open, age, holds): (bool, Option<f64>, bool) = (row.get(0), row.get(1), row.get(2));
        open += i32::from(is_open);
        holding += i32::from(holds);
        assert!(age.unwrap_or(0.0) < LONGEST, "a transaction of {age:?} s");
    }
    assert!(all >= 100, "{all} samples are too few");
    assert!(open * 3 < all, "a transaction was open in {open} of {all} samples");
    assert!(holding * 3 < all, "a snapshot was held in {holding} of {all} samples");
}

#[test]
fn while_the_gateway_does_not_answer_the_worker_holds_no_transaction_and_no_row() {
    let (cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    db.put_all("k", &documents(40));
    db.until_halfway("k", 8);
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGSTOP);
    // The answers that had arrived are written; then nothing changes.
    let mut still = (db.vectors("k"), Instant::now());
    until(SOON, "the worker waits for the gateway", || {
        let vectors = db.vectors("k");
        if vectors != still.0 {
            still = (vectors, Instant::now());
        }
        still.1.elapsed() > Duration::from_secs(1)
    });
    let mut watch = cluster.connect("postgres");
    let samples: Vec<(bool, Option<f64>)> = (0..1000)
        .map(|_| {
            let row = watch.0.query_one(WORKER, &[]).unwrap();
            (row.get(0), row.get(1))
        })
        .collect();
    let open = samples.iter().filter(|(open, _)| *open).count();
    assert!(open < 100, "a transaction was open in {open} of 1000 samples");
    assert!(samples.iter().all(|(_, age)| age.unwrap_or(0.0) < LONGEST), "{samples:?}");
    // Every row can be locked at once, edited and deleted.
    db.run("SET lock_timeout = '2s'");
    db.run("BEGIN; SELECT FROM kb.documents FOR UPDATE; SELECT FROM kb.jobs FOR UPDATE; ROLLBACK");
    assert_eq!(db.put("k", "d0", "Edited."), "updated");
    assert!(db.one::<bool>("SELECT kb.delete_document('k', 'd1')"));
    db.run("ALTER TABLE kb.documents ADD COLUMN x int; ALTER TABLE kb.documents DROP COLUMN x");
    signal(gateway, libc::SIGCONT);
    db.wait("k");
    assert_sound(&mut db, "k", 39, 0);
}

#[test]
fn statistics_count_what_a_worker_changes_while_it_runs() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.worker_idle_timeout = '1h'"]);
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    let worker = cluster.worker(APP);
    // Only the worker claims and ends jobs.
    let counted = "pg_stat_user_tables WHERE relid = 'kb.jobs'::regclass AND n_tup_upd > 0 AND n_tup_del > 0";
    until(SOON, "its changes are counted", || db.count(counted) == 1);
    assert_eq!(cluster.worker(APP), worker);
}

#[test]
fn a_worker_or_gateway_that_cannot_start_is_not_forked_by_every_session() {
    let (cluster, mut db) =
        crate::with_kb!("hash", "{}", ["log_min_messages = debug1", "kb.worker_idle_timeout = '1s'"]);
    let database: u32 = db.one("SELECT oid FROM pg_database WHERE datname = current_database()");
    let sessions = || (0..4).map(|_| cluster.connect(APP)).collect::<Vec<_>>();
    for (process, file) in
        [("worker", format!("kb.worker.{database}.pid")), ("gateway", "kb.gateway.pid".into())]
    {
        // No process can lock that.
        let file = cluster.data().join("pg_stat_tmp").join(file);
        if process == "gateway" {
            // The documents that the sessions put may suffice for an index.
            until(LONG, "the worker leaves", || cluster.processes("kb worker", Some(APP)).is_empty());
            signal(cluster.gateway(), libc::SIGTERM);
            until(SOON, "the gateway has ended", || cluster.processes("kb gateway", None).is_empty());
            // The remains of an ended gateway, which no process has locked.
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::create_dir(&file).unwrap();
        let starts =
            || cluster.log().matches(&format!("starting background worker process \"kb {process}\"")).count();
        let (before, begun) = (starts(), Instant::now());
        std::thread::scope(|scope| {
            for (n, mut session) in sessions().into_iter().enumerate() {
                scope.spawn(move || {
                    let mut i = 0;
                    while begun.elapsed() < Duration::from_secs(3) {
                        i += 1;
                        match process {
                            "worker" => {
                                drop(session.put("k", &format!("{n} {i}"), &format!("Text {i} of {n}")))
                            }
                            _ => drop(session.try_run("SELECT kb.embed('static', '{word}')").unwrap_err()),
                        }
                    }
                    assert!(i > 0);
                });
            }
        });
        // Including the requests of the worker itself.
        let (started, seconds) = (starts() - before, begun.elapsed().as_secs() as usize);
        assert!((1..=seconds + 2).contains(&started), "{started} times a {process} in {seconds} s");
        std::fs::remove_dir(&file).unwrap();
        db.put_and_wait("k", process, &format!("A text after the {process} was ill"));
    }
    assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.embed('static', '{word}')"), 1);
}
