//! Partitioned tables: statements on the whole and on its parts, and partitions that join and leave.

use crate::support::{APP, Cluster, Db};

/// Knowledge base k of partitioned table p: 2025, 2026 (partitioned again, into low and high) and the
/// default, a row in each.
fn partitioned(more: &str) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run(
        "CREATE TABLE p (id int, year int, body text, status text DEFAULT 'published', PRIMARY KEY (year, id))
             PARTITION BY LIST (year);
         CREATE TABLE p2025 PARTITION OF p FOR VALUES IN (2025);
         CREATE TABLE p2026 PARTITION OF p FOR VALUES IN (2026) PARTITION BY RANGE (id);
         CREATE TABLE low PARTITION OF p2026 FOR VALUES FROM (0) TO (100);
         CREATE TABLE high PARTITION OF p2026 FOR VALUES FROM (100) TO (1000);
         CREATE TABLE others PARTITION OF p DEFAULT;
         INSERT INTO p VALUES (1, 2025, 'The text of last year'), (1, 2026, 'A low text'), (100, 2026, 'A high text'),
             (1, 1999, 'An old text')",
    );
    db.create_kb("k", "hash", "{}");
    db.run(&format!(
        "SELECT kb.attach_table('k', 'p', 'body', published_when => 'status = ''published''' {more})"
    ));
    db.wait("k");
    Some((cluster, db))
}

/// The rows that answers have, by year and number.
fn found(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id FROM kb.query('k', 'text', 50, min_score => 0) ORDER BY 1")
}

/// In the middle of a transaction, so that no worker can have helped.
fn found_at_once(db: &mut Db, statement: &str) -> Vec<String> {
    db.run(&format!("BEGIN; {statement}"));
    let found = found(db);
    db.run("COMMIT");
    found
}

fn triggers(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE 'kb\\_%' GROUP BY 1 HAVING count(*) FILTER (WHERE tgname NOT LIKE '%row') = 4 ORDER BY 1",
    )
}

const ALL: [&str; 4] = ["1999/1", "2025/1", "2026/1", "2026/100"];

#[test]
fn statements_on_the_table_and_on_its_partitions_are_followed() {
    let Some((_cluster, mut db)) = partitioned("") else { return };
    assert_eq!(found(&mut db), ALL);
    assert_eq!(triggers(&mut db), ["high", "low", "others", "p", "p2025", "p2026"]);
    // Into, in and out of partitions, by the name of each.
    db.run(
        "INSERT INTO p VALUES (2, 2025, 'Text by the table'); INSERT INTO p2025 VALUES (3, 2025, 'Text by a partition');
         INSERT INTO p2026 VALUES (2, 2026, 'Text by a partitioned partition'); INSERT INTO low VALUES (3, 2026, 'Text by its own')",
    );
    db.wait("k");
    assert_eq!(found(&mut db).len(), 8);
    db.run("UPDATE p SET body = 'Another text of ' || year WHERE id = 2; UPDATE low SET body = 'Quite another text' WHERE id = 3");
    db.wait("k");
    assert_eq!(
        db.one::<String>("SELECT content FROM kb.query('k', 'Quite another text', 1)"),
        "Quite another text"
    );
    assert_eq!(
        db.all::<String>("SELECT \"row\" ->> 'body' FROM kb.query_rows('k', 'Quite another text', 1)"),
        ["Quite another text"]
    );
    assert_eq!(db.count("kb.query_rows('k', 'text', 50, min_score => 0)"), 8);
    // A row that moves keeps nothing of its previous partition.
    let moved = found_at_once(&mut db, "UPDATE p SET year = 2024 WHERE year = 2025 AND id = 3");
    assert!(!moved.contains(&"2025/3".to_string()), "{moved:?}");
    db.wait("k");
    assert!(found(&mut db).contains(&"2024/3".to_string()));
    assert_eq!(
        found_at_once(&mut db, "UPDATE p SET status = 'draft' WHERE id <> 1; DELETE FROM p2025"),
        ["1999/1", "2026/1"]
    );
    db.wait("k");
    assert_eq!(db.count("kb.documents"), 2);
    db.run_and_wait("k", "COPY p (id, year, body) FROM PROGRAM 'printf \"7\\t2025\\tCopied text\\n\"'");
    assert!(found(&mut db).contains(&"2025/7".to_string()));
}

#[test]
fn a_partition_that_is_truncated_hides_its_rows_only_and_the_table_all() {
    let Some((_cluster, mut db)) = partitioned("") else { return };
    assert_eq!(found_at_once(&mut db, "TRUNCATE p2026"), ["1999/1", "2025/1"]);
    db.wait("k");
    assert_eq!(db.count("kb.documents"), 2);
    assert_eq!(found_at_once(&mut db, "TRUNCATE others, p2025"), [""; 0]);
    db.run_and_wait("k", "INSERT INTO p VALUES (5, 2025, 'New text'), (5, 2026, 'New text, too')");
    assert_eq!(found(&mut db), ["2025/5", "2026/5"]);
    // No row is named.
    db.run("BEGIN; TRUNCATE p");
    assert_eq!(
        db.all::<String>("SELECT DISTINCT change FROM kb.changes ORDER BY 1"),
        ["partitions", "truncated"]
    );
    db.run(
        "INSERT INTO p VALUES (6, 2025, 'Later text'), (6, 2026, 'Later text, too'); TRUNCATE p2025; COMMIT",
    );
    db.wait("k");
    assert_eq!(found(&mut db), ["2026/6"]);
    db.run("BEGIN; TRUNCATE p2026; ROLLBACK");
    assert_eq!(found(&mut db), ["2026/6"]);
}

#[test]
fn partitions_that_are_made_attached_detached_and_dropped_are_followed() {
    let Some((_cluster, mut db)) = partitioned("") else { return };
    db.run(
        "CREATE TABLE p2027 PARTITION OF p FOR VALUES IN (2027); INSERT INTO p2027 VALUES (1, 2027, 'Text of next year');
         CREATE TABLE filled (id int, year int NOT NULL, body text, status text DEFAULT 'published', PRIMARY KEY (year, id));
         INSERT INTO filled VALUES (1, 2028, 'Text that was there'); ALTER TABLE p ATTACH PARTITION filled FOR VALUES IN (2028)",
    );
    db.wait("k");
    assert_eq!(found(&mut db).len(), 6);
    let gone = found_at_once(&mut db, "ALTER TABLE p DETACH PARTITION filled");
    assert_eq!(gone, ["1999/1", "2025/1", "2026/1", "2026/100", "2027/1"]);
    assert!(!triggers(&mut db).contains(&"filled".to_string()));
    db.run("UPDATE filled SET body = 'Nobody asks for this text'");
    assert_eq!(found_at_once(&mut db, "DROP TABLE p2027, p2025"), ["1999/1", "2026/1", "2026/100"]);
    db.wait("k");
    assert_eq!(db.count("kb.documents"), 3);
    assert_eq!(found_at_once(&mut db, "DROP TABLE p2026"), ["1999/1"]);
    // A partition that was detached is attached again, elsewhere, and the schema is renamed.
    db.run("CREATE SCHEMA s; ALTER TABLE filled SET SCHEMA s; ALTER TABLE p ATTACH PARTITION s.filled FOR VALUES IN (2028)");
    db.wait("k");
    assert_eq!(found(&mut db), ["1999/1", "2028/1"]);
    let gone = found_at_once(&mut db, "DROP SCHEMA s CASCADE");
    assert!(!gone.contains(&"2028/1".to_string()), "{gone:?}");
    db.wait("k");
    assert_eq!(found(&mut db), ["1999/1"]);
    assert_eq!(db.one::<Option<String>>("SELECT error FROM kb.sources"), None);
    // A rollback undoes all of it.
    db.run("BEGIN; DROP TABLE others; ROLLBACK");
    assert_eq!(found(&mut db), ["1999/1"]);
    db.run("SELECT kb.detach_table('k', 'p')");
    assert_eq!(triggers(&mut db), [""; 0]);
    db.run("CREATE TABLE p2030 PARTITION OF p FOR VALUES IN (2030); DROP TABLE p");
    assert_eq!(db.count("kb.documents") + db.count("kb.changes"), 0);
}

#[test]
fn a_partition_that_the_tables_owner_may_not_read_costs_no_answer_and_no_statement() {
    let Some((_cluster, mut db)) = partitioned("") else { return };
    db.run(
        "CREATE ROLE author; GRANT CREATE ON SCHEMA public TO author; GRANT kb_writer TO author; ALTER TABLE p OWNER TO author;
         SET ROLE author; SELECT kb.attach_table('k', 'p', 'body', published_when => 'status = ''published'''); RESET ROLE",
    );
    db.wait("k");
    // All are hidden until the worker has looked, because it is unknown which rows the partition had.
    db.run("BEGIN; TRUNCATE p2025");
    assert!(!found(&mut db).contains(&"2025/1".to_string()));
    db.run("COMMIT");
    db.wait("k");
    assert_eq!(found(&mut db), ["1999/1", "2026/1", "2026/100"]);
}

#[test]
fn replicated_rows_of_partitions_are_followed_and_a_dump_restores_all_of_them() {
    let Some((cluster, mut db)) = partitioned(", replicated => true") else { return };
    // TRUNCATE of each of six tables, and rows of the four that have some.
    let firing = |db: &mut Db| {
        db.all::<i64>("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'kb\\_%' GROUP BY tgenabled ORDER BY tgenabled::text COLLATE \"C\"")
    };
    assert_eq!(firing(&mut db), [6, 18, 4]);
    db.run("SET session_replication_role = replica; INSERT INTO low VALUES (9, 2026, 'Replicated text'); RESET session_replication_role");
    db.wait("k");
    assert!(found(&mut db).contains(&"2026/9".to_string()));
    db.run("CREATE TABLE p2031 PARTITION OF p FOR VALUES IN (2031)");
    assert_eq!(firing(&mut db), [7, 21, 5]);
    let file = crate::dump::dump(&cluster, "dump", &["--format=custom"]);
    crate::dump::create_empty(&cluster, "copy");
    crate::dump::restore(&cluster, "copy", &file, crate::dump::PG_RESTORE);
    let mut copy = cluster.connect("copy");
    assert_eq!(triggers(&mut copy), triggers(&mut db));
    copy.run("INSERT INTO p2025 VALUES (8, 2025, 'Text after the restore'); CREATE TABLE p2032 PARTITION OF p FOR VALUES IN (2032)");
    copy.wait("k");
    assert!(found(&mut copy).contains(&"2025/8".to_string()));
    assert_eq!(triggers(&mut copy).len(), 8);
}

#[test]
fn code_of_users_changes_no_setting_of_the_worker_and_runs_with_their_rights() {
    let Some((_cluster, mut db)) = partitioned("") else { return };
    db.run(
        "CREATE ROLE evil LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO evil; SET ROLE evil;
         CREATE FUNCTION set_all(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             PERFORM set_config('default_transaction_read_only', 'on', false), set_config('kb.tenant', 'other', false);
             RETURN true; END$$;
         CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'Something to read')",
    );
    db.create_kb("of evil", "hash", "{}");
    db.run("SELECT kb.attach_table('of evil', 't', 'body', published_when => 'public.set_all(id)')");
    db.wait("of evil");
    // A trigger with the name of p's trigger, on a table whose key runs code: nothing takes that table for a
    // partition.
    db.run(
        "CREATE TABLE seen (who name);
         CREATE FUNCTION note(int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN INSERT INTO seen VALUES (current_user); RETURN true; END$$;
         GRANT INSERT ON seen TO PUBLIC; CREATE DOMAIN d AS int CHECK (note(VALUE));
         CREATE TABLE forged (year int, id d, PRIMARY KEY (year, id)); GRANT SELECT ON forged TO PUBLIC;
         INSERT INTO forged VALUES (1999, 1); TRUNCATE seen;
         CREATE TRIGGER kb_1_insert AFTER INSERT ON forged FOR EACH STATEMENT EXECUTE FUNCTION kb._rows_changed(1)",
    );
    db.run("CREATE TABLE another (a int); ALTER TABLE another ADD b int; DROP TABLE another; DROP TABLE forged; RESET ROLE");
    assert_eq!(db.count("seen"), 0);
    assert_eq!(found(&mut db), ALL);
    // The worker is still writing.
    db.run_and_wait("k", "INSERT INTO p VALUES (9, 2025, 'Written after all that')");
    assert!(found(&mut db).contains(&"2025/9".to_string()));
}

#[test]
fn truncated_rows_are_in_no_answer_after_rollbacks_and_under_old_snapshots() {
    let Some((cluster, mut db)) = partitioned("") else { return };
    // TRUNCATE of the whole table fails after kb's trigger; then only a partition is emptied.
    db.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not this one'; END$$;
         CREATE TRIGGER refuse BEFORE TRUNCATE ON others FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
    );
    db.run("BEGIN; SAVEPOINT s");
    db.refused("TRUNCATE p", "P0001");
    db.run("ROLLBACK TO s; TRUNCATE p2025");
    assert_eq!(found(&mut db), ["1999/1", "2026/1", "2026/100"]);
    db.run("COMMIT");
    db.wait("k");
    // A row that was added after the snapshot of the transaction that empties its partition.
    let mut old = cluster.connect(APP);
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM p");
    db.run_and_wait("k", "INSERT INTO p VALUES (7, 2026, 'A text that came later')");
    assert!(found(&mut db).contains(&"2026/7".to_string()));
    old.run("TRUNCATE p2026; COMMIT");
    assert!(!found(&mut db).iter().any(|row| row.starts_with("2026")));
    db.wait("k");
    assert_eq!(found(&mut db), ["1999/1"]);
}

#[test]
fn creating_or_altering_a_table_waits_for_no_work_on_partitions() {
    let Some((cluster, mut db)) = partitioned("") else { return };
    let mut busy = cluster.connect(APP);
    busy.run("BEGIN; LOCK TABLE p, p2025, low IN ACCESS EXCLUSIVE MODE");
    db.run("SET lock_timeout = '1ms'; CREATE TABLE other (a int); CREATE TEMP TABLE t (a int); ALTER TABLE other ADD b int; DROP TABLE other");
    busy.run("ROLLBACK");
}
