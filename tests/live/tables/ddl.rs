//! The cost of an attached table for the DDL of others: no wait, no code that is not theirs, and no
//! dependence on the number of attached tables.

use crate::support::{APP, Cluster, Db, SOON, until};
use std::collections::BTreeSet;

/// Partitioned table `name` of the session's role, attached to a knowledge base of that name.
fn attach_partitioned(session: &mut Db, name: &str, key: &str) -> i64 {
    session.run(&format!(
        "CREATE TABLE {name} (id {key}, year int, body text, PRIMARY KEY (year, id)) PARTITION BY LIST (year)"
    ));
    session.create_kb(name, "hash", "{}");
    let attach = format!("SELECT kb.attach_table('{name}', '{name}', 'body', published_when => 'id > 1490')");
    session.one(&attach)
}

/// A writer who may create tables.
fn writer(cluster: &Cluster, db: &mut Db, name: &str) -> Db {
    db.run(&format!("CREATE ROLE {name} LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO {name}"));
    cluster.connect_as(APP, name)
}

#[test]
fn a_partition_that_stays_locked_and_cannot_be_followed_delays_no_ddl_of_others() {
    let (cluster, mut db) = crate::connected!();
    let (mut evil, mut own) = (writer(&cluster, &mut db, "evil"), writer(&cluster, &mut db, "own"));
    let source_no = attach_partitioned(&mut evil, "e", "int");
    // A trigger with the name of kb's trigger exists already.
    evil.run(&format!(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
         CREATE TABLE e2025 (LIKE e INCLUDING ALL); INSERT INTO e2025 VALUES (1491, 2025, 'A text of the partition');
         CREATE TRIGGER kb_{source_no}_insert AFTER INSERT ON e2025 FOR EACH STATEMENT EXECUTE FUNCTION nothing();
         ALTER TABLE e ATTACH PARTITION e2025 FOR VALUES IN (2025)"
    ));
    evil.wait("e");
    let error: Option<String> = evil.one("SELECT error FROM kb.sources");
    assert!(error.as_ref().is_some_and(|error| error.contains("triggers could not be created")), "{error:?}");
    assert_eq!(evil.count("kb.query('e', 'text', 9, min_score => 0)"), 1);
    evil.run("BEGIN; LOCK TABLE e, e2025 IN ACCESS EXCLUSIVE MODE");
    attach_partitioned(&mut own, "o", "int");
    db.run("CREATE ROLE nobody LOGIN; CREATE SCHEMA of_nobody AUTHORIZATION nobody");
    let mut nobody = cluster.connect_as(APP, "nobody");
    // Nothing that waits ends before its time is over.
    nobody.run(
        "SET statement_timeout = '20s'; CREATE TEMP TABLE t (a int); CREATE TABLE of_nobody.t (a int);
         ALTER TABLE of_nobody.t ADD b int; DROP TABLE of_nobody.t; DROP TABLE t",
    );
    own.run(
        "SET statement_timeout = '20s'; CREATE TABLE o2025 PARTITION OF o FOR VALUES IN (2025);
         INSERT INTO o2025 VALUES (1500, 2025, 'A text of its own'); RESET statement_timeout",
    );
    own.wait("o");
    assert_eq!(own.count("kb.query('o', 'text', 9, min_score => 0)"), 1);
    assert_eq!(own.count("kb.sources WHERE relation_name = 'public.o' AND error IS NOT NULL"), 0);
    evil.run("COMMIT");
}

#[test]
fn an_open_transaction_that_attaches_a_table_or_partition_delays_no_other_owner() {
    let (cluster, mut db) = crate::connected!();
    let (mut idle, mut own) = (writer(&cluster, &mut db, "idle"), writer(&cluster, &mut db, "own"));
    attach_partitioned(&mut idle, "i", "int");
    idle.run(
        "CREATE TABLE another (id int PRIMARY KEY, body text); BEGIN; CREATE TABLE i2025 PARTITION OF i FOR VALUES IN (2025);
         SELECT kb.attach_table('i', 'another', 'body')",
    );
    own.run("SET statement_timeout = '20s'");
    attach_partitioned(&mut own, "o", "int");
    own.run("CREATE TABLE o2025 PARTITION OF o FOR VALUES IN (2025); SELECT kb.detach_table('o', 'o')");
    idle.run("COMMIT");
}

/// The caller of a function, and the process, as the function reports them in the log.
fn callers(cluster: &Cluster) -> BTreeSet<(String, i32)> {
    let log = cluster.log();
    let words = |line: &str| {
        let mut words = line.split("checked by ").nth(1)?.split(" in ");
        Some((words.next()?.to_string(), words.next()?.trim().parse().ok()?))
    };
    log.lines().filter_map(words).collect()
}

#[test]
fn a_key_with_a_domain_is_checked_only_by_the_worker_as_the_owner() {
    let (cluster, mut db) = crate::connected!();
    let mut evil = writer(&cluster, &mut db, "evil");
    evil.run(
        "CREATE FUNCTION note(int) RETURNS boolean LANGUAGE plpgsql AS
             $$BEGIN RAISE LOG 'checked by % in %', current_user, pg_backend_pid(); RETURN true; END$$;
         CREATE DOMAIN d AS int CHECK (note(VALUE))",
    );
    attach_partitioned(&mut evil, "e", "d");
    let pid: i32 = evil.one("SELECT pg_backend_pid()");
    // More rows than are read at once, in a partition that no statement follows.
    db.run("ALTER EVENT TRIGGER kb_tables_altered DISABLE");
    evil.run(
        "CREATE TABLE e2025 PARTITION OF e FOR VALUES IN (2025);
         INSERT INTO e2025 SELECT n, 2025, 'Text ' || n FROM generate_series(1, 1500) n",
    );
    db.run("ALTER EVENT TRIGGER kb_tables_altered ENABLE");
    let worker = cluster.worker(APP);
    // A superuser's statements, some of them on that very table.
    db.run(
        "CREATE TABLE t (a int); CREATE TEMP TABLE u (a int); ALTER TABLE t ADD b int; DROP TABLE t; ALTER TABLE e2025 ALTER body SET STATISTICS 100",
    );
    evil.wait("e");
    assert_eq!(db.count("kb.documents"), 10);
    db.run("TRUNCATE e2025");
    assert_eq!(db.count("kb.query('e', 'text', 9, min_score => 0)"), 0);
    db.run("ALTER TABLE e DETACH PARTITION e2025; DROP TABLE e2025");
    evil.wait("e");
    let workers: BTreeSet<i32> = [worker, cluster.worker(APP)].into();
    let called = callers(&cluster);
    let others: Vec<_> = called
        .iter()
        .filter(|(role, caller)| role != "evil" || *caller != pid && !workers.contains(caller))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(called.iter().any(|(_, caller)| workers.contains(caller)), "the worker has read it: {called:?}");
}

#[test]
fn the_cost_of_ddl_does_not_depend_on_the_number_of_attached_tables() {
    let (cluster, mut db) = crate::connected!();
    let mut own = writer(&cluster, &mut db, "own");
    attach_partitioned(&mut own, "o", "int");
    own.wait("o");
    db.run("CREATE ROLE other LOGIN; CREATE SCHEMA of_other AUTHORIZATION other");
    // The rows of kb.sources that DDL in a new session reads, and the indexes that it uses.
    let read = |ddl: &str| -> (i64, i64) {
        let mut other = cluster.connect_as(APP, "other");
        other.run(&format!("BEGIN; SET search_path = of_other; {ddl}"));
        let row = other
            .0
            .query_one(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint, sum(seq_scan)::bigint
                 FROM pg_stat_xact_all_tables WHERE schemaname = 'kb' AND relname = 'sources'",
                &[],
            )
            .unwrap();
        other.run("COMMIT");
        (row.get(0), row.get(1))
    };
    let statements = [
        "CREATE TABLE t (a int)",
        "CREATE TEMP TABLE u (a int)",
        "ALTER TABLE t ADD b int",
        "CREATE TABLE q (a int) PARTITION BY LIST (a); CREATE TABLE q1 PARTITION OF q FOR VALUES IN (1)",
        "DROP TABLE t, q",
    ];
    let few: Vec<(i64, i64)> = statements.iter().map(|ddl| read(ddl)).collect();
    db.run(
        "INSERT INTO kb.sources (kb_no, tenant_id, type, relation, relation_name, role_name, key, config, attached_by, attached_by_oids, is_partitioned, partitions)
         SELECT kb_no, tenant_id, type, 1000000 + n, 'public.t' || n, role_name, key, config, attached_by, attached_by_oids, true, ARRAY[2000000 + n]::oid[]
         FROM kb.sources, generate_series(1, 5000) n",
    );
    let many: Vec<(i64, i64)> = statements.iter().map(|ddl| read(ddl)).collect();
    assert_eq!(many, few);
    // At most one, to see whether there is any.
    assert!(many.iter().all(|(rows, _)| *rows <= 1), "{many:?}");
}

#[test]
fn the_worker_follows_what_a_statement_could_not_and_loses_no_write_in_between() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE p (id int, year int, body text, PRIMARY KEY (year, id)) PARTITION BY LIST (year)");
    db.create_kb("k", "hash", "{}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 'p', 'body')");
    db.run(
        "ALTER EVENT TRIGGER kb_tables_altered DISABLE; CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
         INSERT INTO p VALUES (1, 1, 'Written by the table'), (2, 1, 'Written by the table, and deleted')",
    );
    db.wait("k");
    db.run(
        "INSERT INTO p1 VALUES (3, 1, 'Written by the partition'); DELETE FROM p1 WHERE id = 2;
         UPDATE p1 SET body = 'Changed in the partition' WHERE id = 1; ALTER EVENT TRIGGER kb_tables_altered ENABLE",
    );
    // A session has it locked: the worker tries again.
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; LOCK TABLE p1 IN ROW EXCLUSIVE MODE");
    db.run("ALTER TABLE p ALTER body SET STATISTICS 100");
    until(SOON, "the worker cannot lock it", || cluster.log().contains("rows of a partition"));
    holder.run("COMMIT");
    db.wait("k");
    let contents =
        "SELECT external_id || content FROM kb.query('k', 'written', 9, min_score => 0) ORDER BY 1";
    let expected = ["1/1Changed in the partition", "1/3Written by the partition"];
    assert_eq!(db.all::<String>(contents), expected);
    assert_eq!(db.count("pg_trigger WHERE tgrelid = 'p1'::regclass AND tgname LIKE 'kb\\_%'"), 4);
    db.run("DELETE FROM p1 WHERE id = 3");
    assert_eq!(db.all::<String>(contents), expected[..1]);
}

#[test]
fn dropping_a_large_partition_hides_its_rows_and_no_others_at_the_commit() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE p (id int, year int, body text, PRIMARY KEY (year, id)) PARTITION BY LIST (year);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
         INSERT INTO p SELECT n % 60, 1 + n / 60, 'Text ' || n FROM generate_series(0, 119) n",
    );
    db.create_kb("k", "hash", "{}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 'p', 'body')");
    let of = |db: &mut Db, year: i32| {
        db.count(&format!("kb.query('k', 'text', 200, min_score => 0) WHERE external_id LIKE '{year}/%'"))
    };
    super::without_worker(&cluster, || {
        db.run("ALTER TABLE p DETACH PARTITION p1");
        assert_eq!((of(&mut db, 1), of(&mut db, 2)), (0, 60));
        // In a few bytes, whatever it contained.
        assert_eq!(db.one::<i64>("SELECT sum(cardinality(keys)) FROM kb.changes"), 1);
        // A partition that is attached again has its documents back when the worker has looked.
        db.run("ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)");
    });
    db.wait("k");
    assert_eq!((of(&mut db, 1), of(&mut db, 2)), (60, 60));
    super::without_worker(&cluster, || {
        db.run("DROP TABLE p1");
        assert_eq!((of(&mut db, 1), of(&mut db, 2)), (0, 60));
    });
    db.wait("k");
    assert_eq!(db.count("kb.documents"), 60);
}
