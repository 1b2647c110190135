//! Simultaneous calls of several sessions: none of them deadlocks, and a later one sees what an earlier one
//! did.

use crate::support::{APP, Cluster, Db, SOON, assert_sound, until};

/// A session that gives up on a lock, so that a test that fails ends.
fn session(cluster: &Cluster) -> Db {
    let mut session = cluster.connect(APP);
    session.run("SET lock_timeout = '60s'");
    session
}

/// Waits until this many sessions wait for a lock.
fn until_waiting(db: &mut Db, sessions: i64) {
    until(SOON, &format!("{sessions} sessions wait for a lock"), || {
        db.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'")
            == sessions
    });
}

/// Puts documents in one call, and returns its result.
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
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    // The first call waits for this one in the middle of its documents; the second waits for the first.
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
        // They are nested too deeply, so they fail. In the table and by name, the second comes first.
        for id in ["b.html", "a.html"] {
            db.put("k", id, &"<div>".repeat(300));
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
fn the_second_of_two_simultaneous_replaces_is_refused() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
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
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
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

/// The embedder of the live build of `k`.
fn live_embedder(db: &mut Db) -> String {
    db.one(
        "SELECT b.embedder FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
         WHERE k.id = 'k' AND b.state = 'live'",
    )
}

#[test]
fn two_simultaneous_alters_both_take_effect() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let mut first = session(&cluster);
    first.run("BEGIN; SELECT kb.alter_knowledge_base('k', description => 'Ships')");
    std::thread::scope(|scope| {
        let mut second = session(&cluster);
        let alter = r#"SELECT kb.alter_knowledge_base('k', metadata => '{"n": 1}')"#;
        let second = scope.spawn(move || second.run(alter));
        until_waiting(&mut db, 1);
        first.run("COMMIT");
        second.join().unwrap();
    });
    let both = r#"kb.knowledge_bases WHERE description = 'Ships' AND metadata = '{"n": 1}'"#;
    assert_eq!(db.count(both), 1);
}

#[test]
fn documents_put_while_an_alter_of_an_empty_knowledge_base_waits_stay_searchable() {
    let (cluster, mut db) = crate::connected!();
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        db.create_kb("k", "hash", "{}");
        let mut holder = cluster.connect(APP);
        holder.run("BEGIN; SELECT FROM kb.knowledge_bases FOR NO KEY UPDATE");
        std::thread::scope(|scope| {
            let mut other = session(&cluster);
            other.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM kb.documents"));
            let alter = "SELECT kb.alter_knowledge_base('k', 'static'); COMMIT";
            let other = scope.spawn(move || other.run(alter));
            until_waiting(&mut db, 1);
            db.put_and_wait("k", "d", "Ships lie in the harbor.");
            holder.run("COMMIT");
            other.join().unwrap();
        });
        db.wait("k");
        assert_sound(&mut db, "k", 1, 0);
        assert_eq!(db.found("k", "harbor", 1), ["d"], "{isolation}");
        db.run("SELECT kb.drop_knowledge_base('k')");
    }
}

#[test]
fn an_empty_knowledge_base_is_altered_before_a_put_or_after_it_and_never_in_between() {
    let (cluster, mut db) = crate::connected!();
    let put = "SELECT kb.put_document('k', 'd', 'Ships lie in the harbor.')";
    let alter = "SELECT kb.alter_knowledge_base('k', 'static')";
    for (first, second, embedder) in [(put, alter, "hash"), (alter, put, "static")] {
        db.create_kb("k", "hash", "{}");
        let mut holder = session(&cluster);
        holder.run(&format!("BEGIN; {first}"));
        std::thread::scope(|scope| {
            let mut other = session(&cluster);
            let other = scope.spawn(move || other.run(second));
            until_waiting(&mut db, 1);
            holder.run("COMMIT");
            other.join().unwrap();
        });
        db.wait("k");
        assert_sound(&mut db, "k", 1, 0);
        assert_eq!(live_embedder(&mut db), embedder);
        db.run("SELECT kb.drop_knowledge_base('k')");
    }
}

#[test]
fn an_alter_during_a_replace_of_an_empty_knowledge_base_is_refused() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("BEGIN");
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.run("SAVEPOINT s");
    let fault = db.refused("SELECT kb.alter_knowledge_base('k', 'static')", "55000");
    assert!(fault.message.contains(&format!("is being replaced by run {run}")), "{fault:?}");
    // Settings that need no other build are altered all the same.
    db.run("ROLLBACK TO s; SELECT kb.alter_knowledge_base('k', description => 'Ships'); COMMIT");
    db.run(&format!("SELECT kb.wait({run}::bigint, 60)"));
    db.run("SELECT kb.alter_knowledge_base('k', 'static')");
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_eq!(live_embedder(&mut db), "static");
}

#[test]
fn a_drop_while_a_run_begins_leaves_no_vector_table() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    let mut first = session(&cluster);
    first.run("BEGIN; SELECT kb.ingest('k', 'replace')");
    std::thread::scope(|scope| {
        let mut second = session(&cluster);
        let second = scope.spawn(move || second.run("SELECT kb.drop_knowledge_base('k')"));
        until_waiting(&mut db, 1);
        first.run("COMMIT");
        second.join().unwrap();
    });
    assert_eq!(db.count("kb.knowledge_bases"), 0);
    let tables = "pg_class WHERE relnamespace = 'kb'::regnamespace AND relname ~ '^vectors_[0-9]+$'";
    until(SOON, "they are dropped by the worker", || db.count(tables) == 0);
}
