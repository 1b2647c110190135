//! Builds of indexes: how many run at the same time on a server, and what kb.status shows of them.

use crate::index::indexes;
use crate::segment_merges::{dropper, with_two_segments};
use crate::segments::{put, state};
use crate::support::{APP, Db, LONG, WHOLE, texts, until, vector_table};
use std::time::{Duration, Instant};

/// Keeps the next build on a table from beginning until the transaction ends.
fn hold(writer: &mut Db, table: &str) {
    writer.run(&format!("BEGIN; LOCK TABLE {table} IN ROW EXCLUSIVE MODE"));
}

#[test]
fn no_more_indexes_are_built_at_a_time_than_may_be() {
    for most in [1, 2] {
        let setting = format!("kb.max_index_builds = {most}");
        let cluster = crate::cluster!("max_worker_processes = 20", setting.as_str());
        let mut watch = cluster.connect("postgres");
        let (mut sessions, mut writers) = (Vec::new(), Vec::new());
        let names = ["one", "two", "three"];
        for name in names {
            cluster.create_database(name);
            let (mut db, mut writer) = (cluster.connect(name), cluster.connect(name));
            db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"m\": 32, \"ef_construction\": 500}')");
            db.run(
                "SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')",
            );
            hold(&mut writer, &vector_table(&mut db, "k"));
            put(&mut db, "k", 0..1200);
            db.wait("k");
            sessions.push(db);
            writers.push(writer);
        }
        // An indexer that waits for older snapshots has built its index.
        let under_way = "pg_stat_progress_create_index WHERE phase <> 'waiting for old snapshots'";
        let mut built = || {
            let built = watch.count(under_way);
            assert!(built <= most, "{built} are built at a time");
            built
        };
        until(LONG, "as many are built as may be, and the other indexers are there", || {
            built() == most
                && names.iter().all(|name| !cluster.processes("kb indexer", Some(*name)).is_empty())
        });
        writers.iter_mut().for_each(|writer| writer.run("COMMIT"));
        until(LONG, "each has its index", || {
            built();
            sessions.iter_mut().all(|db| state(db).0 == 1)
        });
    }
}

#[test]
fn a_drop_of_an_index_that_waits_delays_no_build_in_another_database() {
    let cluster = crate::cluster!("max_worker_processes = 20", "kb.max_index_builds = 1");
    let (mut db, table) = with_two_segments(&cluster);
    let mut reader = cluster.connect(APP);
    reader.run("BEGIN; SELECT count(*) FROM kb.query('k', 'the harbor', 5)");
    until(LONG, "the drop of a replaced index waits for the reader", || dropper(&mut db).is_some());
    cluster.create_database("other");
    let mut other = cluster.connect("other");
    other.create_kb("k", "hash", WHOLE);
    put(&mut other, "k", 0..1200);
    other.wait("k");
    until(LONG, "the other database has its index", || state(&mut other).0 == 1);
    assert!(dropper(&mut db).is_some(), "the drop has ended: it kept nobody waiting");
    reader.run("COMMIT");
    until(LONG, "one segment is left", || indexes(&mut db, &table) == [true]);
}

#[test]
fn a_tenant_that_wants_many_indexes_keeps_no_other_tenant_waiting_for_its_first() {
    let cluster = crate::cluster!();
    let (mut db, mut writer) = (cluster.connect(APP), cluster.connect(APP));
    let mut tables = Vec::new();
    for (tenant, kb) in [("a", "k1"), ("a", "k2"), ("a", "k3"), ("b", "k1")] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.create_kb(kb, "hash", WHOLE);
        let table: String = db.one(&format!(
            "SELECT format('kb.%I', b.table_name) FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = '{kb}' AND k.tenant_id = '{tenant}'"
        ));
        // The first one begins when all want theirs.
        if tables.is_empty() {
            hold(&mut writer, &table);
        }
        put(&mut db, kb, 0..1200);
        db.wait(kb);
        tables.push(table);
    }
    let of = |table: &str| {
        format!(
            "pg_index WHERE indisvalid AND indrelid = '{table}'::regclass AND indexrelid IN (SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw')"
        )
    };
    until(LONG, "the first one is begun", || db.count("pg_stat_progress_create_index") == 1);
    writer.run("COMMIT");
    let mut order: Vec<(u32, usize)> = Vec::new();
    for (place, table) in tables.iter().enumerate() {
        until(LONG, "it has its index", || db.count(&of(table)) == 1);
        order.push((db.one(&format!("SELECT indexrelid FROM {}", of(table))), place));
    }
    order.sort_unstable();
    assert_eq!(order.into_iter().map(|(_, place)| place).collect::<Vec<_>>(), [0, 3, 1, 2]);
}

#[test]
fn a_database_that_wants_many_indexes_keeps_no_other_database_waiting_for_its_first() {
    let cluster = crate::cluster!("max_worker_processes = 20", "kb.max_index_builds = 1");
    let (mut db, mut writer) = (cluster.connect(APP), cluster.connect(APP));
    let kbs: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    for kb in &kbs {
        db.create_kb(kb, "hash", WHOLE);
        if kb == "k0" {
            hold(&mut writer, &vector_table(&mut db, kb));
        }
        put(&mut db, kb, 0..1200);
        db.wait(kb);
    }
    until(LONG, "the first one is begun", || db.count("pg_stat_progress_create_index") == 1);
    cluster.create_database("other");
    let mut other = cluster.connect("other");
    other.create_kb("k", "hash", WHOLE);
    put(&mut other, "k", 0..1200);
    other.wait("k");
    until(LONG, "the other one's indexer is there", || {
        !cluster.processes("kb indexer", Some("other")).is_empty()
    });
    writer.run("COMMIT");
    until(LONG, "the other one has its index", || state(&mut other).0 == 1);
    let built = "pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam WHERE i.indisvalid AND a.amname = 'hnsw'";
    let so_far = db.count(built);
    assert!(so_far <= 5, "{so_far} of {} came first", kbs.len());
    until(LONG, "each has its index", || db.count(built) == kbs.len() as i64);
}

/// The index that kb.status shows as being built: what it is, the phase, and the part that is done.
fn building(db: &mut Db) -> Option<(String, String, Option<f64>)> {
    let sql = "SELECT building ->> 'what', building ->> 'phase', (building ->> 'done')::float8 FROM kb.status
               WHERE kb_id = 'k' AND building IS NOT NULL";
    let row = db.0.query_opt(sql, &[]).unwrap()?;
    Some((row.get(0), row.get(1), row.get(2)))
}

#[test]
fn kb_status_shows_index_progress_to_those_who_see_the_knowledge_base() {
    let cluster = crate::cluster!();
    let (mut db, mut writer) = (cluster.connect(APP), cluster.connect(APP));
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"m\": 32, \"ef_construction\": 1000}')");
    db.run(
        "SET kb.tenant = 'a'; SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')",
    );
    let table = vector_table(&mut db, "k");
    let (mut reader, mut stranger) = (cluster.connect_as(APP, "reader"), cluster.connect_as(APP, "reader"));
    reader.run("SET kb.tenant = 'a'");
    stranger.run("SET kb.tenant = 'b'");
    assert_eq!(building(&mut reader), None);
    hold(&mut writer, &table);
    db.put_all_and_wait("k", &texts::documents(0..3000, 25));
    let waits = Some(("segment".to_string(), "waiting for writers before build".to_string(), None));
    until(LONG, "the build waits for the writer", || building(&mut reader) == waits);
    assert_eq!(building(&mut db), waits);
    let build_no: i64 = db.one("SELECT build_no FROM kb.builds");
    let of_build = format!("SELECT kb._index_progress({build_no})::text");
    assert!(reader.one::<Option<String>>(&of_build).is_some());
    assert_eq!((building(&mut stranger), stranger.one::<Option<String>>(&of_build)), (None, None));
    // If another tenant has a part of the table, the progress would reveal something about that.
    db.run("BEGIN; SET LOCAL kb.tenant = 'b'; SELECT kb.create_knowledge_base('other', 'hash', 'v')");
    assert_eq!(building(&mut db), None);
    db.run("ROLLBACK");
    assert_eq!(building(&mut db), waits);
    writer.run("COMMIT");
    until(LONG, "more than a third of it is built", || {
        let Some((what, phase, Some(done))) = building(&mut reader) else { return false };
        assert!(what == "segment" && phase.starts_with("building index"), "{what}: {phase}");
        assert!((0.0..=1.0).contains(&done), "{done}");
        done > 0.33 && done < 1.0
    });
    until(LONG, "the index is there", || indexes(&mut db, &table) == [true]);
    until(LONG, "nothing is built any more", || building(&mut reader).is_none());
}

#[test]
fn vectors_that_outpace_their_index_wait_for_it_for_a_limited_time() {
    let (cluster, mut db) = crate::connected!("kb.forced_tail = 20000");
    db.run("SELECT kb.create_embedder('small', 'hash', dimension => 16)");
    for kb in ["k", "other"] {
        db.run(&format!(
            "SELECT kb.create_knowledge_base('{kb}', 'small', chunking => '{{\"strategy\": \"none\"}}')"
        ));
    }
    put(&mut db, "k", 0..1200);
    db.wait("k");
    until(LONG, "there is an index", || state(&mut db) == (1, 0));
    // The next one does not come.
    let mut writer = cluster.connect(APP);
    hold(&mut writer, &vector_table(&mut db, "k"));
    put(&mut db, "k", 1200..36_200);
    let (mut last, mut since, mut has_waited) = (0, Instant::now(), false);
    until(LONG, "all of it is written", || {
        // It counts all of them each time, on a core that the worker needs.
        std::thread::sleep(Duration::from_millis(50));
        let (_, unindexed) = state(&mut db);
        if unindexed != last {
            (last, since) = (unindexed, Instant::now());
        }
        if !has_waited && unindexed >= 20_000 && since.elapsed() > Duration::from_secs(3) {
            assert!(unindexed < 30_000, "it waits with {unindexed}");
            has_waited = true;
            db.put_and_wait("other", "d", "Ships lie in the harbor.");
        }
        unindexed == 35_000
    });
    assert!(has_waited);
    writer.run("COMMIT");
    // The oldest rows get an index first, so that a build does not take longer as more rows arrive.
    let drafts =
        "SELECT coalesce(max(c.reltuples), 0)::bigint FROM pg_class c WHERE c.relname LIKE '%_draft'";
    let mut largest = 0;
    // A minute of work, for which the indexer has what other tests leave of a core.
    until(LONG * 3 / 2, "it has its index", || {
        largest = largest.max(db.one::<i64>(drafts));
        state(&mut db).1 < 1000
    });
    assert!((8000..18_000).contains(&largest), "{largest}");
}
