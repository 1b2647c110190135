//! Whatever is done to an attached table, from many sessions and while the worker is killed: at rest its
//! knowledge base equals that of a fresh table with the same rows.

use crate::support::random::Rng;
use crate::support::{APP, Cluster, Db, LONG, PRELOAD, assert_sound, chunk_set, signal, until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SESSIONS: u64 = 8;
const STATEMENTS: usize = 60;
const KILLS: usize = 5;
const ATTACH: &str = "content => '{{title}}: {{body}}', published_when => 'n % 3 <> 0', metadata => '{n}', title => 'title', uri => 'uri'";

/// Changes of one kind each, of different rows.
const LAST: &[&str] = &[
    "UPDATE t SET body = body || ' at last' WHERE id % 6 = 0",
    "UPDATE t SET title = 'Last title' WHERE id % 6 = 1",
    "UPDATE t SET n = n + 1 WHERE id % 6 = 2",
    "UPDATE t SET uri = 'last:' || id WHERE id % 6 = 3",
    "UPDATE t SET id = id + 2000 WHERE id % 6 = 4 AND id < 60",
    "DELETE FROM t WHERE id % 6 = 5",
];

fn statement(random: &mut Rng) -> String {
    let (id, n) = (random.usize(..60), random.usize(..9));
    match random.usize(..22) {
        0..=4 => format!(
            "INSERT INTO t VALUES ({id}, 'Title {n}', 'Body {id} {n}', {n}) ON CONFLICT (id) DO UPDATE SET body = 'Put {n}'"
        ),
        5..=8 => format!("UPDATE t SET body = 'Edited {n}', n = {n} WHERE id = {id}"),
        9..=10 => format!("UPDATE t SET other = other + 1 WHERE id <= {id}"),
        11..=12 => format!("UPDATE t SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 3"),
        13..=14 => format!("DELETE FROM t WHERE id = {id}"),
        15 => format!("UPDATE t SET id = id + 1000 WHERE id = {id}"),
        16 => format!("DELETE FROM t WHERE id > 1000; UPDATE t SET title = NULL, body = ' ' WHERE id = {id}"),
        17 => format!(
            "BEGIN; DELETE FROM t WHERE id = {id}; INSERT INTO t VALUES ({id}, 'Again', 'The same key {n}', {n}); COMMIT"
        ),
        18 => format!(
            "BEGIN; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; UPDATE t SET n = {n} WHERE id = {id}; COMMIT"
        ),
        19 => format!("UPDATE t SET uri = CASE WHEN n % 2 = 0 THEN 'a:{n}' END WHERE id < {id}"),
        20 => format!("UPDATE t SET title = CASE WHEN title IS NULL THEN 'Title {n}' END WHERE id = {id}"),
        _ if random.usize(..10) == 0 => "TRUNCATE t".to_string(),
        _ => format!("BEGIN; UPDATE t SET body = 'Never' WHERE id < {id}; ROLLBACK"),
    }
}

fn disturb(cluster: &Cluster, seed: u64) {
    let mut random = Rng::with_seed(seed * 7919 + 1);
    let mut db = cluster.connect(APP);
    for _ in 0..STATEMENTS {
        let statement = statement(&mut random);
        let Err(fault) = db.try_run(&statement) else { continue };
        match fault.code.as_str() {
            // The server restarts, since a process was killed.
            "" | "57P01" | "57P02" | "57P03" => db = cluster.reconnect(APP),
            // Sessions that change the same rows in different orders.
            "40P01" | "23505" => drop(db.try_run("ROLLBACK")),
            _ => panic!("{statement}: {fault:?}"),
        }
    }
}

/// The pids of workers, also while the server restarts.
fn workers(cluster: &Cluster) -> Vec<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'kb worker' AND datname = $1";
    let rows = cluster.reconnect("postgres").0.query(sql, &[&APP]);
    rows.unwrap_or_default().iter().map(|row| row.get(0)).collect()
}

#[test]
fn an_attached_table_ends_like_a_fresh_one_whatever_happens_and_whoever_is_killed() {
    let (cluster, mut db) = crate::crashing!(PRELOAD);
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, title text, body text, n int, other int DEFAULT 0, uri text)",
    );
    db.create_kb("k", "hash", "{}");
    db.run(&format!("SELECT kb.attach_table('k', 't', {ATTACH})"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|seed| {
                scope.spawn({
                    let cluster = &cluster;
                    move || disturb(cluster, seed)
                })
            })
            .collect();
        let (cluster, is_over) = (&cluster, &is_over);
        scope.spawn(move || {
            for kill in 0..KILLS {
                let mut worker = None;
                until(LONG, "a worker to end", || {
                    worker = workers(cluster).first().copied();
                    worker.is_some() || is_over.load(Ordering::Relaxed)
                });
                if let Some(worker) = worker {
                    // The second takes the whole server down.
                    signal(worker, if kill % 2 == 0 { libc::SIGTERM } else { libc::SIGKILL });
                    until(LONG, "it has ended", || !workers(cluster).contains(&worker));
                }
            }
        });
        for session in sessions {
            session.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut db = cluster.reconnect(APP);
    db.run(
        "INSERT INTO t SELECT id, 'Title', 'Body', 1 FROM generate_series(0, 59) id ON CONFLICT DO NOTHING",
    );
    db.wait("k");
    // Changes that no later one repairs: each row's last change is of one column.
    for last in LAST {
        db.run(last);
    }
    assert_in_step(&mut db);
}

/// The knowledge base equals a fresh one.
fn assert_in_step(db: &mut Db) {
    db.wait("k");
    db.create_kb("fresh", "hash", "{}");
    db.run_and_wait("fresh", &format!("SELECT kb.attach_table('fresh', 't', {ATTACH})"));
    let published = db.count("t WHERE n % 3 <> 0 AND coalesce(title, '') || coalesce(body, '') ~ '\\S'");
    for kb in ["k", "fresh"] {
        assert_sound(db, kb, published, 0);
    }
    assert_eq!(chunk_set(db, "k"), chunk_set(db, "fresh"));
    let documents = |db: &mut Db, kb: &str| -> Vec<String> {
        db.all(&format!(
            "SELECT concat_ws('|', external_id, content, metadata, title, uri) FROM kb.documents WHERE kb_id = '{kb}' ORDER BY 1"
        ))
    };
    assert_eq!(documents(db, "k"), documents(db, "fresh"));
    assert_eq!(db.count("kb.changes") + db.count("kb.jobs"), 0);
}
