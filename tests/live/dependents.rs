//! Objects of other users that depend on a vector table block neither its drop nor its sweeping.

use crate::support::{APP, Cluster, Db, LONG, SOON, WHOLE, until, vector_table};

/// A session of a writer, as tenant a, and a session of a reader who may create objects in a schema of its
/// own.
fn roles(cluster: &Cluster) -> (Db, Db, Db) {
    let mut db = cluster.connect(APP);
    db.run(
        "CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_reader; CREATE SCHEMA b AUTHORIZATION b",
    );
    let (mut a, mut b) = (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"));
    a.run("SET kb.tenant = 'a'");
    b.run("SET kb.tenant = 'b'");
    (db, a, b)
}

/// Every object that a role that knows the table's name can make depend on it, and what only a superuser can
/// make.
fn hang_on(db: &mut Db, b: &mut Db, table: &str) {
    let name = table.trim_start_matches("kb.");
    for statement in [
        "CREATE VIEW b.v_NAME AS SELECT * FROM TABLE",
        "CREATE VIEW b.w_NAME AS SELECT * FROM b.v_NAME",
        "CREATE MATERIALIZED VIEW b.m_NAME AS SELECT * FROM TABLE WITH NO DATA",
        "CREATE TABLE b.t_NAME (a bigint, row TABLE, rows TABLE[])",
        "CREATE RULE r AS ON INSERT TO b.t_NAME DO ALSO SELECT 1 FROM TABLE",
        "CREATE FUNCTION b.f_NAME() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM TABLE; END",
        "CREATE FUNCTION b.g_NAME(TABLE) RETURNS SETOF TABLE LANGUAGE sql AS 'SELECT $1'",
        "CREATE DOMAIN b.d_NAME AS TABLE",
        "CREATE TABLE b.typed_NAME OF TABLE",
    ] {
        let statement = statement.replace("TABLE", "\u{1}").replace("CREATE \u{1}", "CREATE TABLE");
        let result = b.try_run(&statement.replace('\u{1}', table).replace("NAME", name));
        // Not everything can be made for every table, and rights may be missing.
        assert!(result.is_ok() || !statement.starts_with("CREATE VIEW"), "{statement}: {result:?}");
    }
    for statement in [
        format!(
            "CREATE TABLE b.fk_{name} (n bigint, c uuid, FOREIGN KEY (n, c) REFERENCES {table} (build_no, chunk_id))"
        ),
        format!("CREATE TABLE b.child_{name} () INHERITS ({table})"),
        format!(
            "CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        format!(
            "CREATE TABLE b.policed_{name} (a bigint); CREATE POLICY p ON b.policed_{name} USING (EXISTS (SELECT FROM {table}))"
        ),
        format!("CREATE PUBLICATION p_{name} FOR TABLE {table}"),
    ] {
        if let Err(fault) = db.try_run(&statement) {
            panic!("{statement}: {fault:?}");
        }
    }
    db.run(&format!("DROP TRIGGER t ON {table}"));
    let hanging = format!("pg_depend WHERE refobjid = '{table}'::regclass AND deptype = 'n'");
    assert!(db.count(&hanging) >= 5, "too little depends on {table}");
}

fn is_there(db: &mut Db, table: &str) -> bool {
    db.one(&format!("SELECT to_regclass('{table}') IS NOT NULL"))
}

fn filled(a: &mut Db, kb: &str) -> String {
    a.create_kb(kb, "hash", WHOLE);
    for i in 0..3 {
        a.put(kb, &format!("d{i}"), &format!("Text {i}."));
    }
    a.wait(kb);
    vector_table(a, kb)
}

#[test]
fn dependents_of_a_vector_table_do_not_block_the_drop_of_its_knowledge_base() {
    let cluster = crate::cluster!();
    let (mut db, mut a, mut b) = roles(&cluster);
    let table = filled(&mut a, "k");
    hang_on(&mut db, &mut b, &table);
    a.run("SELECT kb.drop_knowledge_base('k')");
    until(SOON, "its table is dropped", || !is_there(&mut db, &table));
    assert_eq!(db.count("kb.knowledge_bases") + db.count("kb.chunks"), 0);
    // An empty knowledge base creates its table again when its settings change.
    a.create_kb("l", "hash", "{}");
    let table = vector_table(&mut a, "l");
    hang_on(&mut db, &mut b, &table);
    a.run("SELECT kb.alter_knowledge_base('l', 'static')");
    until(SOON, "the table of before is dropped", || !is_there(&mut db, &table));
    // Only objects that depended on these tables were dropped.
    assert!(is_there(&mut db, "b.fk_vectors_1") && db.count("pg_namespace WHERE nspname = 'b'") == 1);
}

#[test]
fn dependents_of_a_vector_table_do_not_block_sweeping_it() {
    let cluster = crate::cluster!();
    let (mut db, mut a, mut b) = roles(&cluster);
    let table = filled(&mut a, "k");
    hang_on(&mut db, &mut b, &table);
    a.run_and_wait("k", "SELECT kb.ingest('k', 'replace')");
    until(LONG, "the old build is swept", || {
        db.count("kb.builds WHERE state <> 'live'") == 0 && !is_there(&mut db, &table)
    });
    crate::support::assert_sound(&mut db, "k", 3, 0);
    assert!(!cluster.log().contains("stays for now"), "{}", cluster.log());
}

#[test]
fn an_old_build_that_somebody_keeps_locked_is_said_once_and_swept_later() {
    let cluster = crate::cluster!();
    let (mut db, mut a, _) = roles(&cluster);
    let table = filled(&mut a, "k");
    let mut holder = cluster.connect(APP);
    holder.run(&format!("BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE"));
    a.run_and_wait("k", "SELECT kb.ingest('k', 'replace')");
    // The worker returns to it again and again: it is seen at the lock ten times.
    let waiting = format!("pg_locks WHERE relation = '{table}'::regclass AND NOT granted");
    for _ in 0..10 {
        until(SOON, "the worker tries to drop the table", || db.count(&waiting) == 1);
        until(SOON, "and gives up for now", || db.count(&waiting) == 0);
    }
    let said = cluster
        .log()
        .lines()
        .filter(|line| line.contains("LOG:  ") && line.contains("stays for now"))
        .count();
    assert!(said <= 2, "{said} lines of one old build:\n{}", cluster.log());
    holder.run("COMMIT");
    until(LONG, "the old build is swept", || {
        db.count("kb.builds WHERE state <> 'live'") == 0 && !is_there(&mut db, &table)
    });
}
