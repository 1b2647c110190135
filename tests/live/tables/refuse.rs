//! What cannot be attached, and what goes wrong later: it is reported, and makes no statement of users fail.

use super::{ready, with_articles};
use crate::support::{APP, Db, SOON, assert_sound, until};

#[test]
fn a_table_that_cannot_be_attached_is_refused_with_a_hint() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, status text, at timestamptz);
         CREATE VIEW v AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
         CREATE TEMP TABLE tmp (id int PRIMARY KEY, body text); CREATE TABLE nokey (body text);
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
         CREATE FOREIGN TABLE f (id int, body text) SERVER s;
         CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF parts DEFAULT;
         CREATE TABLE parent (id int PRIMARY KEY, body text);
         CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
         CREATE ROLE writer LOGIN IN ROLE kb_writer; GRANT SELECT ON t TO writer",
    );
    db.create_kb("k", "hash", "{}");
    for (table, code, says) in [
        ("v", "55000", "is a view\nAttach the tables"),
        ("m", "55000", "is a materialized view"),
        ("f", "55000", "is a foreign table"),
        ("tmp", "55000", "temporary"),
        ("nokey", "55000", "has no primary key\n"),
        ("part", "55000", "is a partition or takes part in inheritance"),
        ("parent", "55000", "is a partition or takes part in inheritance"),
        ("child", "55000", "is a partition or takes part in inheritance"),
        ("kb.documents", "55000", "is a system table"),
        ("t_pkey", "55000", "is not a table"),
        ("nowhere", "42P01", "does not exist"),
    ] {
        let fault = db.refused(&format!("SELECT kb.attach_table('k', '{table}', 'body')"), code);
        assert!(fault.text.contains(says), "{table}: {fault:?}");
    }
    let fault = db.fault("SELECT kb.attach_table('k', 't', '{body, nope}', title => 'none', tenant => 'x')");
    assert_eq!(fault.code, "22023");
    for problem in [
        "content: column \"nope\" does not exist",
        "title: column \"none\" does not exist",
        "tenant: column \"x\"",
    ] {
        assert!(fault.text.contains(problem), "{fault:?}");
    }
    for (condition, code, says) in [
        ("at <= now()", "22023", "not IMMUTABLE"),
        ("t.ctid = '(0,1)'", "22023", "system column"),
        ("t IS NOT NULL", "22023", "whole row"),
        ("status = 'x') OR (true", "42601", "syntax error"),
        ("true FROM pg_authid", "22023", "a single condition"),
        ("true; DROP TABLE t", "42601", "syntax error"),
        ("EXISTS (SELECT FROM pg_authid)", "0A000", "cannot use subquery in condition"),
        ("count(*) > 1", "42803", "aggregate"),
        ("status", "42804", "boolean"),
        ("nope = 1", "42703", "does not exist"),
        ("", "22023", "a single condition"),
    ] {
        let fault = db
            .fault(&format!("SELECT kb.attach_table('k', 't', 'body', published_when => $x${condition}$x$)"));
        assert_eq!(fault.code, code, "{condition}: {fault:?}");
        assert!(fault.text.contains(says), "{condition}: {fault:?}");
        assert!(fault.text.contains("published_when"), "{condition}: {fault:?}");
    }
    let mut writer = cluster.connect_as(APP, "writer");
    writer.refused("SELECT kb.attach_table('k', 't', 'body')", "42501");
    assert_eq!(db.count("kb.sources"), 0);
    assert_eq!(db.count("pg_trigger WHERE tgname LIKE 'kb\\_%'"), 0);
}

#[test]
fn no_fault_of_kb_or_of_a_condition_fails_the_users_statement() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, n int DEFAULT 1, other text);
         INSERT INTO t VALUES (1, 'One'), (2, 'Two'), (3, 'Three')",
    );
    db.create_kb("k", "hash", "{}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', published_when => '10 / n > 0')");
    let all = |db: &mut Db| -> Vec<String> {
        db.all("SELECT external_id FROM kb.query('k', 'one', 50, min_score => 0) ORDER BY external_id")
    };
    assert_eq!(all(&mut db), ["1", "2", "3"]);
    // The condition divides by zero, so it is unknown whether the row is published, and it counts as not
    // published.
    db.run("UPDATE t SET n = 0 WHERE id = 1");
    assert_eq!(all(&mut db), ["2", "3"]);
    db.run("UPDATE t SET n = 0, body = 'Changed' WHERE id = 2; INSERT INTO t VALUES (4, 'Four', 0), (5, 'Five', 1)");
    db.wait("k");
    assert_eq!(all(&mut db), ["3", "5"]);
    db.run_and_wait("k", "UPDATE t SET n = 1");
    assert_eq!(all(&mut db), ["1", "2", "3", "4", "5"]);
    // A column that is read is renamed: statements continue, the rows are listed, and other tables continue.
    db.run("CREATE TABLE other (id int PRIMARY KEY, body text)");
    db.create_kb("o", "hash", "{}");
    db.run("SELECT kb.attach_table('o', 'other', 'body')");
    db.run("ALTER TABLE t RENAME COLUMN body TO text; UPDATE t SET text = 'Renamed' WHERE id = 1");
    db.run_and_wait("o", "INSERT INTO other VALUES (1, 'Goes on')");
    db.wait("k");
    assert_eq!(all(&mut db).len(), 5);
    assert!(db.one::<String>("SELECT error FROM kb.failures WHERE external_id = '1'").contains("body"));
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'text', published_when => '10 / n > 0')");
    assert_eq!(db.count("kb.failures"), 0);
    assert_eq!(
        db.one::<String>("SELECT content FROM kb.documents WHERE kb_id = 'k' AND external_id = '1'"),
        "Renamed"
    );
    // The key is renamed, the table is dropped.
    db.run(
        "ALTER TABLE t RENAME COLUMN id TO number; INSERT INTO t VALUES (6, 'Six'); UPDATE t SET text = 'x'",
    );
    until(SOON, "health tells of the key", || {
        db.count("kb.health() WHERE component = 'sources' AND status = 'warning' AND detail LIKE '%\"id\"%'")
            == 1
    });
    db.run_and_wait("o", "DROP TABLE t; INSERT INTO other VALUES (2, 'Goes on, too')");
    assert_eq!(ready(&mut db, "o"), ["1", "2"]);
    until(SOON, "its documents are gone, too", || db.count("kb.documents WHERE kb_id = 'k'") == 0);
    let relation: i64 = db.one("SELECT relation::bigint FROM kb.sources WHERE relation_name LIKE '%.t'");
    assert_eq!(db.one::<i64>(&format!("SELECT kb.detach_table('k', {relation})")), 0);
    assert_eq!(db.count("kb.health() WHERE component = 'sources' AND status = 'ok'"), 1);
}

#[test]
fn a_row_is_its_tables_and_nobody_elses() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.put("k", "2", "Put by hand.");
    db.run("INSERT INTO articles (body, status) VALUES ('One', 'published'), ('Two', 'published')");
    db.wait("k");
    assert_eq!(db.one::<String>("SELECT content FROM kb.documents WHERE external_id = '2'"), "Put by hand.");
    assert!(
        db.one::<String>("SELECT detail FROM kb.health() WHERE component = 'sources'")
            .contains("have the keys of rows")
    );
    for statement in [
        "SELECT kb.put_document('k', '1', 'Another')",
        "SELECT kb.put_documents('k', ARRAY['{\"external_id\": \"1\", \"content\": \"One\"}'::jsonb])",
        "SELECT kb.delete_document('k', '1')",
    ] {
        let fault = db.refused(statement, "55000");
        assert!(fault.text.contains("row of an attached table"), "{fault:?}");
    }
    assert_eq!(db.one::<i64>("SELECT kb.detach_table('k', 'articles', keep => true)"), 1);
    db.put("k", "1", "Now it is anybody's.");
    db.run_and_wait("k", "UPDATE articles SET body = 'Nobody looks'; SELECT kb.delete_document('k', '2')");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.count("pg_trigger WHERE tgname LIKE 'kb\\_%'"), 0);
}

#[test]
fn a_row_whose_key_is_null_makes_no_statement_fail() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'One')");
    db.create_kb("k", "hash", "{}");
    db.run(
        "SELECT kb.attach_table('k', 't', 'body', published_when => 'body IS NOT NULL', replicated => true)",
    );
    db.wait("k");
    db.run("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ALTER id DROP NOT NULL");
    db.run("INSERT INTO t VALUES (NULL, 'Nameless'), (NULL, 'Too'), (2, 'Two'); UPDATE t SET body = 'x' WHERE id IS NULL; DELETE FROM t WHERE id IS NULL");
    db.run("SET session_replication_role = replica; INSERT INTO t VALUES (NULL, 'Replayed'); RESET session_replication_role");
    assert_eq!(db.count("t"), 3);
}

#[test]
fn attaching_and_waiting_in_one_transaction_is_an_immediate_error() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'One')");
    db.create_kb("k", "hash", "{}");
    db.refused("SELECT kb.attach_table('k', 't', 'body'); SELECT kb.wait('k', 60)", "55000");
}

#[test]
fn a_table_that_becomes_a_partition_is_reported_until_it_is_none() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'One')");
    db.create_kb("k", "hash", "{}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body')");
    db.run(
        "CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
         ALTER TABLE parts ATTACH PARTITION t DEFAULT; INSERT INTO t VALUES (2, 'Two')",
    );
    until(SOON, "health tells of the partition", || {
        db.count("kb.health() WHERE component = 'sources' AND detail LIKE '%has become a partition%'") == 1
    });
    db.run("ALTER TABLE parts DETACH PARTITION t; INSERT INTO t VALUES (3, 'Three')");
    until(SOON, "health tells of nothing", || {
        db.count("kb.health() WHERE component = 'sources' AND status = 'ok'") == 1
    });
    db.run_and_wait("k", "SELECT kb.reconcile('k')");
    assert_eq!(ready(&mut db, "k"), ["1", "2", "3"]);
}

#[test]
fn existing_rows_are_enqueued_even_if_one_cannot_be_read_and_few_are_published() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, n int);
         INSERT INTO t SELECT i, 'Text ' || i, CASE WHEN i = 1500 THEN 0 ELSE 1 END FROM generate_series(1, 2200) i;
         CREATE TABLE sparse (id int PRIMARY KEY, body text, n int);
         INSERT INTO sparse SELECT i, 'Text ' || i, i FROM generate_series(1, 50000) i",
    );
    db.create_kb("k", "hash", "{}");
    db.create_kb("s", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', 'body', published_when => '10 / n > 0')");
    db.run_and_wait(
        "s",
        "SELECT kb.attach_table('s', 'sparse', 'body', published_when => 'n IN (3, 49999)')",
    );
    assert_eq!(ready(&mut db, "s"), ["3", "49999"]);
    db.wait("k");
    assert_eq!(ready(&mut db, "k").len(), 2199);
    assert_eq!(db.all::<String>("SELECT external_id FROM kb.failures"), ["1500"]);
    assert_eq!(db.count("kb.sources WHERE error IS NOT NULL OR backfill IS NOT NULL"), 0);
    // The same row delays nothing when all are compared, or read again.
    let drift: String =
        db.one("SELECT concat_ws(' ', rows, missing, changed, orphaned) FROM kb.reconcile('k')");
    assert_eq!(drift, "2200 0 0 0");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', published_when => '20 / n > 0')");
    assert_eq!(ready(&mut db, "k").len(), 2199);
    db.run_and_wait("k", "UPDATE t SET n = 0 WHERE id = 7; UPDATE t SET n = 2 WHERE id = 1500");
    assert_eq!(db.all::<String>("SELECT external_id FROM kb.failures"), ["7"]);
    assert_sound(&mut db, "k", 2199, 1);
}

#[test]
fn a_row_whose_value_names_what_does_not_exist_delays_no_other() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, n text);
         INSERT INTO t SELECT i, 'Text ' || i, CASE WHEN i = 7 THEN 'missing' ELSE 'pg_class' END FROM generate_series(1, 20) i;
         CREATE FUNCTION is_there(n text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT n::regclass IS NOT NULL'",
    );
    db.create_kb("k", "hash", "{}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', published_when => 'is_there(n)')");
    assert_eq!(ready(&mut db, "k").len(), 19);
    assert_eq!(db.all::<String>("SELECT external_id FROM kb.failures"), ["7"]);
    let drift = "SELECT concat_ws(' ', rows, missing, changed, orphaned) FROM kb.reconcile('k')";
    assert_eq!(db.one::<String>(drift), "20 0 0 0");
    db.run_and_wait("k", "UPDATE t SET body = body || '!'; UPDATE t SET n = 'pg_class' WHERE id = 7");
    assert_eq!(ready(&mut db, "k").len(), 20);
    assert_eq!(db.count("kb.sources WHERE error IS NOT NULL"), 0);
}

#[test]
fn the_error_of_a_table_is_shown_until_it_is_repaired_without_a_value_of_a_row() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE ROLE author LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO author;
         CREATE TABLE names (id text PRIMARY KEY, body text)",
    );
    let mut author = cluster.connect_as(APP, "author");
    author.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'secret');
         SELECT kb.create_knowledge_base('k', 'hash'); SELECT kb.attach_table('k', 't', 'body')",
    );
    db.wait("k");
    author.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY");
    let error = "SELECT coalesce((SELECT error FROM kb.sources WHERE kb_no = (SELECT min(kb_no) FROM kb.knowledge_bases)), '')";
    // The second is an error about a name, but the name is a value.
    for (condition, sqlstate, id) in [("body::int > 0", "22P02", 2), ("body::regclass IS NULL", "42P01", 3)] {
        author.run(&format!("CREATE POLICY p ON t USING ({condition})"));
        db.run(&format!("UPDATE kb.sources SET backfill = '{{}}'; INSERT INTO t VALUES ({id}, 'secret')"));
        until(SOON, "an error is told", || !db.one::<String>(error).is_empty());
        let told: String = db.one(error);
        assert!(told.contains(&format!("SQLSTATE {sqlstate}")) && !told.contains("secret"), "{told}");
        db.run(
            "DROP POLICY p ON t; CREATE POLICY q ON t USING (true); SELECT kb.attach_table('k', 't', 'body')",
        );
        db.wait("k");
        assert_eq!(db.one::<String>(error), "");
        db.run("DROP POLICY q ON t");
    }
    assert_eq!(ready(&mut db, "k"), ["1", "2", "3"]);
    // A key that no external_id can be is reported until the row is gone and all rows are compared.
    db.create_kb("n", "hash", "{}");
    db.run("INSERT INTO names VALUES (repeat('x', 1100), 'Too long a key'), ('short', 'A short key')");
    db.run_and_wait("n", "SELECT kb.attach_table('n', 'names', 'body')");
    assert_eq!(ready(&mut db, "n"), ["short"]);
    let error = "SELECT coalesce(max(error), '') FROM kb.sources";
    assert!(db.one::<String>(error).contains("1100 bytes"));
    db.run_and_wait("n", "DELETE FROM names WHERE id <> 'short'; SELECT * FROM kb.reconcile('n')");
    assert_eq!(db.one::<String>(error), "");
}
