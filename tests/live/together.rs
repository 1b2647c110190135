//! Calls of several sessions at once: none of them deadlocks, and a later one sees what an earlier one did.

use crate::support::{APP, Cluster, Db, SOON, assert_sound, until};

/// A session that gives up on a lock, so that a test which fails ends.
fn session(cluster: &Cluster) -> Db {
    let mut session = cluster.connect(APP);
    session.run("SET lock_timeout = '60s'");
    session
}

/// Waits until so many sessions wait for a lock.
fn until_waiting(db: &mut Db, sessions: i64) {
    until(SOON, &format!("{sessions} sessions wait for a lock"), || {
        db.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'")
            == sessions
    });
}

/// Puts documents in one call; what it answers.
fn put_in_order(db: &mut Db, ids: &[&str]) -> Vec<String> {
    let json: Vec<String> = ids
        .iter()
        .map(|id| serde_json::json!({"external_id": id, "content": format!("{id} of {ids:?}")}).to_string())
        .collect();
    db.all_with(
        "SELECT external_id || ' ' || status FROM kb.put_documents('k', $1::text[]::jsonb[])",
        &[&json],
    )
}

#[test]
fn calls_that_put_the_same_new_documents_in_opposite_orders_do_not_deadlock() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    // The first call waits for this one in the middle of its documents; the second for the first.
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN");
    holder.put("k", "m", "Not committed yet.");
    std::thread::scope(|scope| {
        let put = |ids: &'static [&'static str]| {
            let mut session = session(&cluster);
            scope.spawn(move || put_in_order(&mut session, ids))
        };
        let first = put(&["a", "m", "b"]);
        until_waiting(&mut db, 1);
        let second = put(&["b", "a"]);
        until_waiting(&mut db, 2);
        holder.run("COMMIT");
        // Each answers in its own order.
        assert_eq!(first.join().unwrap(), ["a added", "m updated", "b added"]);
        assert_eq!(second.join().unwrap(), ["b updated", "a updated"]);
    });
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
}

#[test]
fn a_run_or_a_retry_beside_a_put_of_the_same_documents_does_not_deadlock() {
    let cluster = crate::cluster!();
    for statement in ["SELECT kb.ingest('k')", "SELECT kb.retry('k')"] {
        let mut db = cluster.connect(APP);
        db.create_kb("k", "hash", "{}");
        // Without text, so that they fail. In the table and by name, the second comes first.
        for id in ["b.html", "a.html"] {
            db.put("k", id, "<html><body><script>let ship = 1;</script></body></html>");
        }
        db.wait("k");
        db.run("UPDATE kb.documents SET title = 'moved' WHERE external_id = 'b.html'");
        assert_eq!(db.count("kb.failures"), 2);
        let mut holder = session(&cluster);
        holder.run("BEGIN");
        holder.put("k", "b.html", "<p>Ships lie in the harbor.</p>");
        std::thread::scope(|scope| {
            let mut other = session(&cluster);
            let other = scope.spawn(move || other.run(statement));
            until_waiting(&mut db, 1);
            holder.put("k", "a.html", "<p>Knights live in the castle.</p>");
            holder.run("COMMIT");
            other.join().unwrap();
        });
        db.wait("k");
        assert_sound(&mut db, "k", 2, 0);
        db.run("SELECT kb.drop_knowledge_base('k')");
    }
}

#[test]
fn of_two_replaces_at_once_the_second_is_told_of_the_first() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    db.put("k", "d", "Ships lie in the harbor.");
    db.wait("k");
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        let mut first = session(&cluster);
        first.run("BEGIN; SELECT kb.ingest('k', 'replace')");
        std::thread::scope(|scope| {
            let mut second = session(&cluster);
            second.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM kb.builds"));
            let second = scope.spawn(move || second.fault("SELECT kb.ingest('k', 'replace')"));
            until_waiting(&mut db, 1);
            first.run("COMMIT");
            let fault = second.join().unwrap();
            assert_eq!(fault.code, "55000", "{isolation}: {fault:?}");
            assert!(fault.message.contains("is being replaced by run"), "{isolation}: {fault:?}");
        });
        db.wait("k");
    }
    until(SOON, "the old builds are swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 1, 0);
}

#[test]
fn a_run_counts_documents_that_come_while_it_begins() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; SELECT FROM kb.builds FOR UPDATE");
    holder.put("k", "a", "Ships lie in the harbor.");
    holder.put("k", "b", "Knights live in the castle.");
    std::thread::scope(|scope| {
        let mut other = session(&cluster);
        let other = scope.spawn(move || other.one::<i64>("SELECT kb.ingest('k')"));
        until_waiting(&mut db, 1);
        holder.run("COMMIT");
        let run = other.join().unwrap();
        db.run(&format!("SELECT kb.wait({run}::bigint, 60)"));
    });
    db.wait("k");
    let sums =
        "SELECT scanned = 2 AND skipped BETWEEN 0 AND 2 AND added + updated + skipped <= 2 FROM kb.runs";
    assert!(db.one::<bool>(sums), "{:?}", db.all::<String>("SELECT r::text FROM kb.runs r"));
}
