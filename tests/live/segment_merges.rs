//! Segments are merged, and the replaced ones are dropped: a kill meanwhile loses nothing, and no session
//! waits.

use crate::index::indexes;
use crate::segments::{put, state, until_state};
use crate::support::{
    APP, Cluster, Db, LONG, PRELOAD, WHOLE, assert_sound, signal, texts, until, vector_table,
};

const ROWS: u64 = 2400;

/// A knowledge base of two segments, which are merged as soon as it has been quiet for a while, and its
/// vector table. The merge takes some seconds.
pub fn with_two_segments(cluster: &Cluster) -> (Db, String) {
    let mut db = cluster.connect(APP);
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"m\": 32, \"ef_construction\": 500}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')");
    let table = put_two_segments(&mut db);
    (db, table)
}

fn put_two_segments(db: &mut Db) -> String {
    // This many get an index as soon as they exist.
    db.run(&format!("ALTER SYSTEM SET kb.forced_tail = {}", ROWS * 2 / 3));
    db.run("SELECT pg_reload_conf()");
    for (numbers, segments) in [(0..ROWS / 2, 1), (ROWS / 2..ROWS, 2)] {
        // All in one commit, so that none of them has its index before the others exist.
        db.run("BEGIN");
        put(db, "k", numbers);
        db.run("COMMIT");
        db.wait("k");
        until_state(db, (segments, 0));
    }
    vector_table(db, "k")
}

/// The indexer that merges segments, if it is in this phase.
fn merger(db: &mut Db, phase: &str) -> Option<i32> {
    let sql = format!(
        "SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_progress_create_index p ON p.pid = a.pid
         WHERE a.backend_type = 'kb indexer' AND a.query LIKE '%gives way to writers%' AND p.phase LIKE '{phase}%'"
    );
    db.all(&sql).pop()
}

/// The indexer that drops an index, if it waits for another session.
pub fn dropper(db: &mut Db) -> Option<i32> {
    let drops =
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'kb indexer' AND wait_event_type = 'Lock'
                 AND query LIKE 'DROP INDEX CONCURRENTLY%'";
    db.all(drops).pop()
}

/// An older snapshot, for which a build waits before it ends.
const OLD_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents";
/// A transaction that has asked and keeps no snapshot: the drop of an index waits for it, but no build does.
const HAS_ASKED: &str = "BEGIN; SELECT count(*) FROM kb.query('k', 'the harbor', 5)";

/// The index that kb.status shows as being built: what it is, and the phase.
fn building_phase(db: &mut Db) -> Option<String> {
    db.one("SELECT building ->> 'what' || ', ' || (building ->> 'phase') FROM kb.status WHERE kb_id = 'k'")
}

/// Every row is found, and none twice.
fn assert_all_found(db: &mut Db, rows: u64) {
    let mut ids: Vec<String> = db.all("SELECT external_id FROM kb.query('k', 'the harbor', 3000)");
    let found = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((found as u64, ids.len() as u64), (rows, rows));
    let mut missed = 0;
    for i in [0, ROWS / 2 - 1, ROWS / 2, ROWS / 4, ROWS * 3 / 4, ROWS - 1] {
        missed += i32::from(db.found("k", &texts::paragraph(i, 20), 1) != [format!("d{i}")]);
    }
    assert!(missed <= 1, "{missed} of 6 were not found by their own texts");
}

/// Kills the indexer when `pid` returns it, while another session delays its work by `holds`.
fn survives_a_kill(holds: &str, what: &str, pid: impl Fn(&mut Db) -> Option<i32>) {
    let mut cluster = crate::cluster!(PRELOAD, "kb.launcher_naptime = 1");
    cluster.expects_crashes = true;
    let (mut db, table) = with_two_segments(&cluster);
    let mut holder = cluster.connect(APP);
    holder.run(holds);
    let mut victim = None;
    until(LONG, what, || {
        victim = pid(&mut db);
        victim.is_some()
    });
    signal(victim.unwrap(), libc::SIGKILL);
    let mut db = cluster.reconnect_after_crash(db);
    assert_all_found(&mut db, ROWS);
    // The next worker looks at all tables.
    db.put_and_wait("k", "last", "Ships lie in the harbor.");
    until(LONG, "one segment is left, and no other index, valid or not", || {
        indexes(&mut db, &table) == [true] && state(&mut db).1 <= 1
    });
    assert_all_found(&mut db, ROWS + 1);
    assert_sound(&mut db, "k", ROWS as i64 + 1, 0);
    let recall: f64 = db.one("SELECT recall FROM kb.measure_recall('k', 200)");
    assert!(recall >= 0.97, "{recall}");
}

#[test]
fn a_kill_while_segments_are_merged_loses_nothing_and_they_are_merged_in_the_end() {
    let has_some =
        "SELECT coalesce(building ->> 'what' = 'merge' AND (building ->> 'done')::float8 > 0, false)
                FROM kb.status WHERE kb_id = 'k'";
    survives_a_kill("SELECT 1", "a merge has some of its vectors", |db| {
        merger(db, "building index").filter(|_| db.one(has_some))
    });
}

#[test]
fn a_merge_that_is_killed_while_it_waits_for_snapshots_loses_nothing_and_ends() {
    survives_a_kill(OLD_SNAPSHOT, "a merge waits for the snapshot", |db| {
        merger(db, "waiting for old snapshots")
    });
}

#[test]
fn a_kill_during_the_drop_of_replaced_indexes_loses_nothing_and_the_drop_ends() {
    survives_a_kill(HAS_ASKED, "the drop waits for who has asked", dropper);
}

/// Others write, delete and ask, and wait for no lock.
fn assert_others_are_served(cluster: &Cluster, id: &str) {
    let (mut writer, mut reader) = (cluster.connect(APP), cluster.connect(APP));
    for session in [&mut writer, &mut reader] {
        session.run("SET lock_timeout = '2s'; SET statement_timeout = '25s'");
    }
    let text = format!("Who is {id}? A zebra, a xylophone and a quasar.");
    writer.put("k", id, &text);
    writer.run("SELECT kb.wait('k', 20)");
    assert_eq!(reader.found("k", &text, 1), [id]);
    writer.run(&format!("SELECT kb.delete_document('k', '{id}'); SELECT kb.delete_document('k', 'd7')"));
    assert_ne!(reader.found("k", &text, 1), [id]);
    writer.put("k", "d7", &texts::paragraph(7, 20));
    writer.run("SELECT kb.wait('k', 20)");
}

#[test]
fn writes_and_questions_wait_neither_for_a_merge_nor_for_the_drop_after_it() {
    let cluster = crate::cluster!();
    let (mut db, table) = with_two_segments(&cluster);
    let [mut writer, mut old, mut reader] = [(); 3].map(|()| cluster.connect(APP));
    writer.run("BEGIN; SELECT kb.delete_document('k', 'd0')");
    old.run(OLD_SNAPSHOT);
    for (phase, id) in [("waiting for writers before build", "begun"), ("waiting for old snapshots", "built")]
    {
        until(LONG, phase, || merger(&mut db, phase).is_some());
        assert_eq!(building_phase(&mut db), Some(format!("merge, {phase}")));
        assert_others_are_served(&cluster, id);
        assert!(merger(&mut db, phase).is_some(), "{phase} has ended: others were not served during it");
        if id == "begun" {
            writer.run("ROLLBACK");
        }
    }
    reader.run(HAS_ASKED);
    old.run("COMMIT");
    until(LONG, "the drop waits for who has asked", || dropper(&mut db).is_some());
    assert_eq!(building_phase(&mut db), None);
    assert_others_are_served(&cluster, "dropped");
    assert!(dropper(&mut db).is_some(), "the drop has ended: others were not served during it");
    reader.run("COMMIT");
    until(LONG, "one segment is left", || indexes(&mut db, &table) == [true]);
    assert_all_found(&mut db, ROWS);
    assert_sound(&mut db, "k", ROWS as i64, 0);
}

#[test]
fn a_transaction_for_which_the_drop_of_an_index_waits_can_drop_its_knowledge_base() {
    for end in ["ROLLBACK", "COMMIT"] {
        let cluster = crate::cluster!();
        let (mut db, mut open) = (cluster.connect(APP), cluster.connect(APP));
        // It has a table of its own, which is dropped with it.
        db.create_kb("k", "hash", WHOLE);
        let table = put_two_segments(&mut db);
        open.run(HAS_ASKED);
        until(LONG, "the drop waits for who has asked", || dropper(&mut db).is_some());
        // It has waited for longer than deadlock_timeout, so it has looked, and there was no deadlock.
        open.run("SELECT pg_sleep(0.3)");
        open.run(&format!("SELECT kb.drop_knowledge_base('k'); {end}"));
        if end == "ROLLBACK" {
            until(LONG, "one segment is left", || indexes(&mut db, &table) == [true]);
            assert_sound(&mut db, "k", ROWS as i64, 0);
        } else {
            let is_gone = format!("SELECT to_regclass('{table}') IS NULL");
            until(LONG, "its table is dropped", || db.one::<bool>(&is_gone));
        }
        until(LONG, "the indexer has left", || cluster.processes("kb indexer", Some(APP)).is_empty());
        assert!(!cluster.log().contains("cannot be built"));
    }
}
