//! Rows that return, and rows and documents that have the same key.

use super::without_worker;
use crate::support::{APP, Db, SOON, assert_sound, signal, until};

fn by_words(db: &mut Db, kb: &str, words: &str) -> Vec<String> {
    let sql =
        format!("SELECT content FROM kb.query('{kb}', '{words}', 9, mode => 'keyword') ORDER BY content");
    db.all(&sql)
}

fn contents(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT external_id || ' ' || content || ' ' || status FROM kb.documents ORDER BY kb_id, external_id",
    )
}

#[test]
fn a_row_that_returns_with_another_text_is_never_found_by_its_old_text() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, pub boolean DEFAULT true);
         INSERT INTO t VALUES (1, 'secret salary of Ada'), (2, 'secret salary of Bob'), (3, 'salary of all');
         SELECT kb.attach_table('k', 't', 'body', published_when => 'pub')",
    );
    db.wait("k");
    assert_eq!(by_words(&mut db, "k", "salary").len(), 3);
    // No vector is made meanwhile: changed rows wait as jobs.
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGSTOP);
    without_worker(&cluster, || {
        db.run(
            "BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1, 'opening hours'); COMMIT;
             UPDATE t SET pub = false WHERE id = 2; UPDATE t SET body = 'redacted' WHERE id = 2; UPDATE t SET pub = true WHERE id = 2;
             BEGIN; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (3, 'salary of all'); COMMIT",
        );
        assert_eq!(by_words(&mut db, "k", "salary"), [""; 0]);
    });
    until(SOON, "the changes are taken up", || db.count("kb.changes") == 0);
    // A row that returns unchanged is answered again, without another vector.
    assert_eq!(by_words(&mut db, "k", "salary"), ["salary of all"]);
    signal(gateway, libc::SIGCONT);
    db.wait("k");
    assert_eq!(contents(&mut db), ["1 opening hours ready", "2 redacted ready", "3 salary of all ready"]);
    assert_sound(&mut db, "k", 3, 0);
}

#[test]
fn deleting_a_document_that_is_not_there_yet_leaves_the_row_that_becomes_it() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE FUNCTION waits(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); RETURN true; END$$;
         CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (0, 'an owl');
         SELECT kb.attach_table('k', 't', 'body', published_when => 'waits(id)')",
    );
    db.wait("k");
    let mut holder = cluster.connect(APP);
    without_worker(&cluster, || {
        db.run("INSERT INTO t VALUES (1, 'a crow')");
        holder.run("SELECT pg_advisory_lock(7)");
    });
    until(SOON, "the row is a job", || db.count("kb.jobs") == 1 && db.count("kb.changes") == 0);
    assert!(!db.one::<bool>("SELECT kb.delete_document('k', '1')"));
    holder.run("SELECT pg_advisory_unlock(7)");
    db.wait("k");
    assert_eq!(contents(&mut db), ["0 an owl ready", "1 a crow ready"]);
}

#[test]
fn a_key_that_is_equal_but_printed_differently_is_the_same_row_under_a_new_name() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE TABLE t (id numeric PRIMARY KEY, body text); SELECT kb.attach_table('k', 't', 'body');
         INSERT INTO t VALUES (1.0, 'a crow')",
    );
    db.wait("k");
    assert_eq!(contents(&mut db), ["1.0 a crow ready"]);
    db.run_and_wait("k", "UPDATE t SET id = 1.00");
    assert_eq!(contents(&mut db), ["1.00 a crow ready"]);
    assert_eq!(db.one::<i64>("SELECT missing + changed + orphaned FROM kb.reconcile('k')"), 0);
    db.run_and_wait("k", "DELETE FROM t");
    assert_sound(&mut db, "k", 0, 0);
}

#[test]
fn a_row_with_the_key_of_a_put_document_loses_no_edit_of_that_document() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE TABLE a (id int PRIMARY KEY, body text); CREATE TABLE b (id int PRIMARY KEY, body text);
         SELECT kb.put_document('k', '5', 'put first'); INSERT INTO a VALUES (1, 'a first');
         SELECT kb.attach_table('k', 'a', 'body'), kb.attach_table('k', 'b', 'body')",
    );
    db.wait("k");
    assert_eq!(contents(&mut db), ["1 a first ready", "5 put first ready"]);
    db.run(
        "BEGIN; SELECT kb.put_document('k', '5', 'put second'); INSERT INTO b VALUES (5, 'row five'); COMMIT;
         BEGIN; INSERT INTO b VALUES (1, 'b first'); UPDATE a SET body = 'a second' WHERE id = 1; COMMIT;
         BEGIN; UPDATE a SET body = 'a third' WHERE id = 1; UPDATE b SET body = 'b second' WHERE id = 1; COMMIT",
    );
    db.wait("k");
    assert_eq!(contents(&mut db), ["1 a third ready", "5 put second ready"]);
    assert_sound(&mut db, "k", 2, 0);
}

#[test]
fn documents_that_are_kept_when_their_table_is_detached_become_ready() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'a crow');
         SELECT kb.attach_table('k', 't', 'body')",
    );
    db.wait("k");
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGSTOP);
    db.run("UPDATE t SET body = 'an owl'; INSERT INTO t VALUES (2, 'a wren')");
    until(SOON, "the documents wait for vectors", || db.count("kb.documents WHERE status = 'pending'") == 2);
    assert_eq!(db.one::<i64>("SELECT kb.detach_table('k', 't', true)"), 2);
    signal(gateway, libc::SIGCONT);
    db.wait("k");
    assert_eq!(contents(&mut db), ["1 an owl ready", "2 a wren ready"]);
    assert_sound(&mut db, "k", 2, 0);
}

#[test]
fn a_role_that_does_not_see_all_documents_of_a_table_cannot_detach_it() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'a crow')");
    // A table that is not attached yet has no documents.
    db.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    db.run("SELECT kb.attach_table('k', 't', 'body'); COMMIT");
    db.wait("k");
    for call in ["kb.detach_table('k', 't')", "kb.attach_table('k', 't', 'body', published_when => 'id > 1')"]
    {
        db.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let error = db.0.simple_query(&format!("SELECT {call}")).unwrap_err();
        assert_eq!(error.as_db_error().unwrap().code().code(), "55000", "{call}: {error}");
        db.run("ROLLBACK");
    }
}

#[test]
fn deleted_rows_are_looked_up_by_key_even_without_statistics_of_their_table() {
    let (_cluster, mut db) = crate::connected!("autovacuum = off");
    db.create_kb("a", "hash", "{}");
    db.create_kb("b", "hash", "{}");
    db.run(
        "CREATE TABLE ta (id int PRIMARY KEY, body text); CREATE TABLE tb (id int PRIMARY KEY, body text);
         SELECT kb.attach_table('a', 'ta', 'body'); INSERT INTO ta SELECT n, 'row a ' || n FROM generate_series(1, 1000) n",
    );
    db.wait("a");
    db.run("ANALYZE kb.documents");
    db.run("SELECT kb.attach_table('b', 'tb', 'body'); INSERT INTO tb SELECT n, 'row b ' || n FROM generate_series(1, 3000) n");
    db.wait("b");
    let read = "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'documents_source_no'";
    let before = db.one::<i64>(read);
    db.run_and_wait("b", "DELETE FROM tb WHERE id <= 2000");
    assert_sound(&mut db, "b", 1000, 0);
    db.run("SELECT pg_stat_force_next_flush()");
    let read = db.one::<i64>(read) - before;
    assert!(read < 100_000, "{read} entries were read");
}
