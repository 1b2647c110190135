//! Tables that are detached, dropped, restored and repaired.

use super::{ready, with_articles, without_worker};
use crate::support::{APP, Db, SOON, assert_sound, succeed, until};

#[test]
fn a_job_that_is_enqueued_beside_a_detach_is_done_or_gone() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    for keep in [true, false] {
        db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'Ships lie in the harbor.')");
        db.create_kb("k", "hash", "{}");
        db.run_and_wait("k", "SELECT kb.attach_table('k', 't', '{body}')");
        // The order is that of kb.retry: documents first, then their jobs.
        other.run(
            "BEGIN; UPDATE kb.documents SET status = 'pending' WHERE external_id = '1';
             INSERT INTO kb.jobs (kb_no, tenant_id, kind, subject, source_no)
             SELECT kb_no, tenant_id, 'document', '1', source_no FROM kb.sources",
        );
        let waits =
            "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT kb.detach_table%'";
        std::thread::scope(|scope| {
            let detach = format!("SELECT kb.detach_table('k', 't', keep => {keep})");
            let cluster = &cluster;
            let detaching = scope.spawn(move || cluster.connect(APP).run(&detach));
            until(SOON, "it waits", || db.count(waits) == 1);
            other.run("COMMIT");
            detaching.join().unwrap();
        });
        db.wait("k");
        assert_eq!(
            (db.count("kb.documents WHERE status = 'ready'"), db.jobs()),
            (i64::from(keep), 0),
            "{keep}"
        );
        // A document that belongs to no source any more.
        db.run(
            "INSERT INTO kb.jobs (kb_no, tenant_id, kind, subject, source_no)
             SELECT kb_no, tenant_id, 'document', 'lost', 999999 FROM kb.knowledge_bases",
        );
        db.wait("k");
        assert_eq!(db.jobs(), 0);
        db.run("SELECT kb.drop_knowledge_base('k'); DROP TABLE t");
    }
}

#[test]
fn a_table_that_is_detached_or_dropped_leaves_nothing_behind() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.create_kb("second", "hash", "{}");
    db.run("SELECT kb.attach_table('second', 'articles', 'body')");
    db.run_and_wait("k", "INSERT INTO articles (body, status) VALUES ('One', 'published'), ('Two', 'draft')");
    db.wait("second");
    assert_eq!((ready(&mut db, "k").len(), ready(&mut db, "second").len()), (1, 2));
    db.run("UPDATE articles SET body = body || '!'");
    assert_eq!(db.one::<i64>("SELECT kb.detach_table('k', 'articles')"), 1);
    assert_eq!(db.count("pg_trigger WHERE tgname LIKE 'kb\\_%'"), 4);
    db.wait("second");
    assert_sound(&mut db, "k", 0, 0);
    db.run("SELECT kb.drop_knowledge_base('second'); UPDATE articles SET body = 'x'");
    assert_eq!(db.count("pg_trigger WHERE tgname LIKE 'kb\\_%'"), 0);
    assert_eq!(db.count("kb.sources") + db.count("kb.changes"), 0);
    db.run("SELECT kb.attach_table('k', 'articles', 'body'); DROP EXTENSION kb");
    assert_eq!(db.count("pg_trigger WHERE NOT tgisinternal"), 0);
    db.run("UPDATE articles SET body = 'y'");
}

#[test]
fn a_restored_dump_continues_to_follow_its_tables() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (body, status) SELECT 'Text ' || n, 'published' FROM generate_series(1, 5) n",
    );
    db.wait("k");
    without_worker(&cluster, || {
        db.run("UPDATE articles SET body = 'Changed before the dump' WHERE id = 1; DELETE FROM articles WHERE id = 2");
        succeed(
            cluster.program("pg_dump").args(["--format=custom", "--file"]).arg(cluster.path("dump")).arg(APP),
        );
    });
    // In another order of oids.
    let mut postgres = cluster.connect("postgres");
    postgres.run("CREATE DATABASE other");
    cluster.connect("other").run("CREATE TABLE filler (a int); DROP TABLE filler");
    succeed(
        cluster.program("pg_restore").args(["--exit-on-error", "--dbname=other"]).arg(cluster.path("dump")),
    );
    let mut other = cluster.connect("other");
    other.run("INSERT INTO articles (id, body, status) VALUES (77, 'After the restore', 'published')");
    other.wait("k");
    assert_eq!(ready(&mut other, "k"), ["1", "3", "4", "5", "77"]);
    assert_eq!(
        other.one::<String>("SELECT content FROM kb.documents WHERE external_id = '1'"),
        "Changed before the dump"
    );
    assert_sound(&mut other, "k", 5, 0);
    assert!(other.one::<bool>("SELECT relation = 'articles'::regclass FROM kb.sources"));
}

#[test]
fn changes_made_while_triggers_were_off_are_found_and_repaired() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.run("INSERT INTO articles (body, status) SELECT 'Text ' || n, 'published' FROM generate_series(1, 1200) n");
    db.wait("k");
    let drift = |db: &mut Db| -> String {
        db.one("SELECT concat_ws(' ', relation, rows, missing, changed, orphaned) FROM kb.reconcile('k')")
    };
    assert_eq!(drift(&mut db), "public.articles 1200 0 0 0");
    db.run(
        "SET session_replication_role = replica;
         DELETE FROM articles WHERE id <= 3; UPDATE articles SET status = 'draft' WHERE id = 4;
         UPDATE articles SET body = 'Changed' WHERE id IN (5, 6); INSERT INTO articles (id, body, status) VALUES
             (9001, 'New', 'published'), (9002, 'New draft', 'draft'), (9003, ' ', 'published');
         RESET session_replication_role",
    );
    assert_eq!(drift(&mut db), "public.articles 1197 1 2 4");
    db.wait("k");
    assert_eq!(drift(&mut db), "public.articles 1197 0 0 0");
    assert_sound(&mut db, "k", 1197, 0);
}

#[test]
fn rows_that_were_gone_when_their_table_was_detached_are_not_kept() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (body, status) SELECT 'Text ' || n, 'published' FROM generate_series(1, 4) n",
    );
    db.wait("k");
    without_worker(&cluster, || {
        db.run("DELETE FROM articles WHERE id = 1; UPDATE articles SET status = 'draft' WHERE id = 2");
        assert_eq!(db.one::<i64>("SELECT kb.detach_table('k', 'articles', keep => true)"), 2);
        assert_eq!(ready(&mut db, "k"), ["3", "4"]);
    });
    db.wait("k");
    assert_sound(&mut db, "k", 2, 0);
    db.run("SELECT kb.delete_document('k', '3'), kb.delete_document('k', '4'), kb.attach_table('k', 'articles', 'body')");
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
    without_worker(&cluster, || {
        db.run("TRUNCATE articles");
        assert_eq!(db.one::<i64>("SELECT kb.detach_table('k', 'articles', keep => true)"), 0);
    });
    db.wait("k");
    assert_sound(&mut db, "k", 0, 0);
}

#[test]
fn a_row_that_is_read_while_its_table_is_detached_becomes_no_document() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t SELECT n, 'Text' FROM generate_series(1, 20) n");
    db.create_kb("k", "hash", "{}");
    for n in 0..30 {
        db.run(&format!("SELECT kb.attach_table('k', 't', '{{{{body}}}} {n}')"));
        db.run("UPDATE t SET body = body || '.'");
        // At a moment between finding the changes and making documents of them.
        until(SOON, "the worker is at it", || db.count("kb.changes") < 1 + n % 2);
        db.run("SELECT kb.detach_table('k', 't')");
        assert_eq!(db.count("kb.documents"), 0);
    }
    db.wait("k");
    assert_sound(&mut db, "k", 0, 0);
}
