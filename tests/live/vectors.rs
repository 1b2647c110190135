//! No user reads vectors: their distances would reveal something about other tenants' documents. kb.query
//! reads them for its caller, who gets the documents that it may read.

use crate::support::{APP, Cluster, Db, SOON, until, vector_table};

/// Two tenants, a and b, who share a vector table, with documents that differ in a number.
fn shared_table(documents: usize) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run("SELECT kb.create_vector_db('both', dimension => 384)");
    for tenant in ["a", "b"] {
        db.run(&format!("CREATE ROLE {tenant} LOGIN IN ROLE kb_writer"));
        let mut session = cluster.connect_as_tenant(tenant, tenant);
        session.run(
            r#"SELECT kb.create_knowledge_base('notes', 'hash', 'both', chunking => '{"strategy": "none"}')"#,
        );
        for i in 0..documents {
            session.put("notes", &format!("d{i}"), &format!("the {tenant} note number {i}"));
        }
        session.wait("notes");
    }
    Some((cluster, db))
}

const ANSWER: &str = "SELECT external_id FROM kb.query('notes', 'the note number', 5)";

#[test]
fn no_group_role_reads_a_vector_table_and_queries_still_answer() {
    let Some((cluster, _db)) = shared_table(8) else { return };
    let mut a = cluster.connect_as_tenant("a", "a");
    let table = vector_table(&mut a, "notes");
    for statement in [
        format!("SELECT count(*) FROM {table}"),
        format!(
            "EXPLAIN ANALYZE SELECT * FROM {table} ORDER BY embedding <=> kb.embed('hash', ARRAY['note']) LIMIT 1"
        ),
        format!("CREATE TEMP TABLE copied AS TABLE {table}"),
        "SET ROLE kb_vectors".to_string(),
    ] {
        a.refused(&statement, "42501");
    }
    assert_eq!(a.all::<String>(ANSWER).len(), 5);
    assert_eq!(a.one::<i64>("SELECT vectors FROM kb.status WHERE kb_id = 'notes'"), 8);
    // EXPLAIN shows only that a query is a function. PostgreSQL 18 counts "rows=5.00".
    let options = "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF";
    let plan: Vec<String> = a.all(&format!("EXPLAIN ({options}) {ANSWER}"));
    assert!(plan.len() == 1 && plan[0].starts_with("Function Scan on query (actual rows=5"), "{plan:?}");
}

#[test]
fn vectors_are_read_by_a_role_that_policies_bind() {
    let Some((cluster, mut db)) = shared_table(4) else { return };
    let (is_super, bypasses, logs_in): (bool, bool, bool) = (
        db.one("SELECT rolsuper FROM pg_roles WHERE rolname = 'kb_vectors'"),
        db.one("SELECT rolbypassrls FROM pg_roles WHERE rolname = 'kb_vectors'"),
        db.one("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'kb_vectors'"),
    );
    assert_eq!((is_super, bypasses, logs_in), (false, false, false));
    // Not even a superuser's query is answered with another tenant's vectors, whatever its session sets.
    let mut superuser = cluster.connect(APP);
    superuser.run("SET kb.tenant = 'b'; SET row_security = off");
    let contents: Vec<String> =
        superuser.all("SELECT content FROM kb.query('notes', 'the a note number', 10)");
    assert_eq!(contents.len(), 4);
    assert!(contents.iter().all(|content| content.contains("the b note")), "{contents:?}");
    // A role that sees all tenants sees how many vectors each has.
    let counts: Vec<String> =
        superuser.all("SELECT tenant_id || ' ' || vectors FROM kb.status WHERE kb_id = 'notes' ORDER BY 1");
    assert_eq!(counts, ["a 4", "b 4"]);
}

#[test]
fn a_policy_of_the_database_hides_rows_from_answers_and_others_take_their_place() {
    let Some((cluster, mut db)) = shared_table(60) else { return };
    // By the name of the caller, which must not be the role that reads vectors.
    db.run(
        "CREATE POLICY only_some ON kb.documents AS RESTRICTIVE FOR SELECT TO a
         USING (current_user = 'a' AND right(external_id, 1) = '7')",
    );
    let mut a = cluster.connect_as_tenant("a", "a");
    for top_k in [1, 3, 6] {
        let found: Vec<String> = a.all(&format!(
            "SELECT external_id FROM kb.query('notes', 'the note number 12', {top_k}) ORDER BY rank"
        ));
        assert_eq!(found.len(), top_k, "{found:?}");
        assert!(found.iter().all(|id| id.ends_with('7')), "{found:?}");
    }
    // There are six of them, and no more are promised than can be read.
    assert_eq!(a.all::<String>("SELECT external_id FROM kb.query('notes', 'the note', 50)").len(), 6);
    let mut b = cluster.connect_as_tenant("b", "b");
    assert_eq!(b.all::<String>("SELECT external_id FROM kb.query('notes', 'the note', 50)").len(), 50);
}

#[test]
fn objects_of_others_on_a_vector_table_do_not_prevent_its_drop() {
    let Some((cluster, mut db)) = shared_table(2) else { return };
    db.run("CREATE ROLE meddler LOGIN IN ROLE kb_reader; GRANT CREATE ON SCHEMA public TO meddler");
    let mut a = cluster.connect_as_tenant("a", "a");
    a.run(r#"SELECT kb.create_knowledge_base('own', 'hash', chunking => '{"strategy": "none"}')"#);
    a.put_and_wait("own", "d", "a text");
    let old = vector_table(&mut a, "own");
    let mut meddler = cluster.connect_as(APP, "meddler");
    meddler.run(&format!("CREATE VIEW public.hook AS SELECT * FROM {old}"));
    // Sweeping the old build.
    a.run_and_wait("own", "SELECT kb.ingest('own', 'replace')");
    until(SOON, "the old build's table to be swept", || {
        db.one::<bool>(&format!("SELECT to_regclass('{old}') IS NULL"))
    });
    // Dropping the knowledge base.
    let new = vector_table(&mut a, "own");
    meddler.run(&format!("CREATE VIEW public.hook AS SELECT * FROM {new}"));
    a.run("SELECT kb.drop_knowledge_base('own')");
    let is_gone = format!("SELECT to_regclass('{new}') IS NULL");
    until(SOON, "its table to be dropped", || db.one::<bool>(&is_gone));
}
