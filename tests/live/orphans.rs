//! No vector exists without its chunk: triggers ensure this (`sql/tables.sql`), in whichever order and at
//! whichever isolation level sessions write vectors and delete chunks.

use crate::support::{APP, Cluster, Db, Fault, SOON, texts, until, vector_table};

/// A knowledge base of some chunks in a vector database, whose vectors are in `public.copy` only; its table,
/// and the chunks.
fn fixture(cluster: &Cluster) -> (Db, String, Vec<String>) {
    let mut db = cluster.connect(APP);
    db.run("SELECT kb.create_vector_db('v', dimension => (SELECT dimension FROM kb.embedders WHERE id = 'hash'))");
    let chunking = r#"{"strategy": "fixed", "size": 5, "overlap": 0}"#;
    db.run(&format!("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{chunking}')"));
    db.put_and_wait("k", "d", &texts::text(1, 5, 40));
    let table = vector_table(&mut db, "k");
    db.run(&format!("CREATE TABLE public.copy AS SELECT * FROM {table}; DELETE FROM {table}"));
    let chunks = db.all("SELECT chunk_id::text FROM kb.chunks ORDER BY ordinal");
    (db, table, chunks)
}

fn writes(table: &str, chunk: &str) -> String {
    format!("INSERT INTO {table} SELECT * FROM public.copy WHERE chunk_id = '{chunk}'")
}

fn deletes(chunk: &str) -> String {
    format!("DELETE FROM kb.chunks WHERE chunk_id = '{chunk}'")
}

fn orphans(db: &mut Db, table: &str) -> i64 {
    db.count(&format!(
        "{table} v WHERE NOT EXISTS (SELECT FROM kb.chunks c WHERE c.build_no = v.build_no AND c.chunk_id = v.chunk_id)"
    ))
}

/// Does something that has to wait for `first`, which then ends in this way. Returns the result.
fn after(db: &mut Db, first: &mut Db, end: &str, second: &mut Db, statement: &str) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| second.try_run(statement));
        until(SOON, "it waits", || db.count("pg_locks WHERE NOT granted") > 0);
        first.run(end);
        done.join().unwrap()
    })
}

#[test]
fn a_vector_and_the_deletion_of_its_chunk_wait_for_each_other_in_every_order() {
    let cluster = crate::cluster!();
    let (mut db, table, chunks) = fixture(&cluster);
    let (mut first, mut second) = (cluster.connect(APP), cluster.connect(APP));
    let code = |result: Result<(), Fault>| result.err().map(|fault| fault.code);
    let mut chunks = chunks.iter();
    for (isolation, refused, hidden) in [
        ("READ COMMITTED", Some("23503"), None),
        ("REPEATABLE READ", Some("40001"), Some("40001")),
        ("SERIALIZABLE", Some("40001"), Some("40001")),
    ] {
        // The snapshot is older than what the other one does.
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM kb.chunks");
        for (does, end, then, expected, left) in [
            // The writer is waited for, so its vector is found.
            ("writes", "COMMIT", "deletes", hidden, hidden.is_some()),
            ("writes", "ROLLBACK", "deletes", None, false),
            ("deletes", "COMMIT", "writes", refused, false),
            ("deletes", "ROLLBACK", "writes", None, true),
            // An existing vector is deleted with its chunk: ON CONFLICT does nothing when there is none.
            ("deletes what has one", "COMMIT", "writes on conflict", refused, false),
        ] {
            let chunk = chunks.next().unwrap();
            let statement = |what: &str| match what {
                "writes" => writes(&table, chunk),
                "writes on conflict" => format!("{} ON CONFLICT DO NOTHING", writes(&table, chunk)),
                _ => deletes(chunk),
            };
            if does == "deletes what has one" {
                db.run(&writes(&table, chunk));
            }
            first.run(&format!("BEGIN; {}", statement(does)));
            second.run(&begin);
            let came = code(after(&mut db, &mut first, end, &mut second, &statement(then)));
            second.run(if came.is_some() { "ROLLBACK" } else { "COMMIT" });
            let what = format!("{does}, {end}, {then}, {isolation}");
            assert_eq!(came.as_deref(), expected, "{what}");
            assert_eq!(db.count(&format!("{table} WHERE chunk_id = '{chunk}'")), i64::from(left), "{what}");
            assert_eq!(orphans(&mut db, &table), 0, "{what}");
        }
    }
}

#[test]
fn a_vector_and_the_end_of_its_knowledge_base_wait_for_each_other() {
    let cluster = crate::cluster!();
    let (mut db, table, chunks) = fixture(&cluster);
    let (mut first, mut second) = (cluster.connect(APP), cluster.connect(APP));
    let drop = "SELECT kb.drop_knowledge_base('k')";
    first.run(&format!("BEGIN; {}", writes(&table, &chunks[0])));
    second.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.chunks");
    let deleted = after(&mut db, &mut first, "COMMIT", &mut second, "DELETE FROM kb.builds");
    assert_eq!(deleted.unwrap_err().code, "40001");
    second.run("ROLLBACK");
    first.run(&format!("BEGIN; {}", writes(&table, &chunks[1])));
    after(&mut db, &mut first, "COMMIT", &mut second, "BEGIN; DELETE FROM kb.builds").unwrap();
    assert_eq!(second.count(&table), 0);
    second.run("ROLLBACK");
    assert_eq!(db.count(&table), 2);
    first.run(&format!("BEGIN; {}", writes(&table, &chunks[2])));
    after(&mut db, &mut first, "COMMIT", &mut second, drop).unwrap();
    assert_eq!(db.count(&table), 0);
    db.refused(&writes(&table, &chunks[3]), "23503");
}

#[test]
fn part_of_a_transaction_that_is_undone_leaves_no_vector_without_its_chunk() {
    let cluster = crate::cluster!("lock_timeout = '2s'");
    let (mut db, table, chunks) = fixture(&cluster);
    let (mut first, mut second) = (cluster.connect(APP), cluster.connect(APP));
    // A vector that was rolled back is not waited for.
    let undone = |statement: String| format!("BEGIN; SAVEPOINT s; {statement}; ROLLBACK TO s");
    first.run(&undone(writes(&table, &chunks[0])));
    second.run(&deletes(&chunks[0]));
    first.refused(&writes(&table, &chunks[0]), "23503");
    first.run("ROLLBACK");
    // Nor is the deletion of a chunk, and its vector is there again.
    db.run(&writes(&table, &chunks[1]));
    first.run(&undone(deletes(&chunks[1])));
    second.run(&writes(&table, &chunks[2]));
    first.run("COMMIT");
    assert_eq!(db.count(&table), 2);
    // One transaction, and one statement, that do both.
    db.run(&format!("BEGIN; {}; {}; COMMIT", writes(&table, &chunks[3]), deletes(&chunks[3])));
    assert_eq!(db.count(&table), 2);
    db.refused(&format!("BEGIN; {}; {}", deletes(&chunks[4]), writes(&table, &chunks[4])), "23503");
    db.run("ROLLBACK");
    let both = format!(
        "WITH gone AS ({} RETURNING chunk_id) INSERT INTO {table} SELECT c.* FROM public.copy c JOIN gone USING (chunk_id)",
        deletes(&chunks[5])
    );
    db.refused(&both, "23503");
    assert_eq!(orphans(&mut db, &table), 0);
}

#[test]
fn no_statement_parts_a_vector_from_its_chunk() {
    let cluster = crate::cluster!();
    let (mut db, table, chunks) = fixture(&cluster);
    db.run(&format!("INSERT INTO {table} SELECT * FROM public.copy"));
    let vectors = db.count(&table);
    for parts in [
        "UPDATE kb.chunks SET chunk_id = gen_random_uuid() WHERE ordinal = 0".to_string(),
        "UPDATE kb.chunks SET build_no = build_no + 1 WHERE ordinal = 0".to_string(),
        format!("UPDATE {table} SET chunk_id = gen_random_uuid() WHERE chunk_id = '{}'", chunks[0]),
        format!(
            "INSERT INTO {table} SELECT * FROM public.copy WHERE chunk_id = '{}'
             ON CONFLICT (build_no, chunk_id) DO UPDATE SET chunk_id = gen_random_uuid()",
            chunks[0]
        ),
    ] {
        db.refused(&parts, "23503");
    }
    // Its key may be written as it is.
    db.run("UPDATE kb.chunks SET chunk_id = chunk_id, build_no = build_no");
    assert_eq!((db.count(&table), orphans(&mut db, &table)), (vectors, 0));
    for all in ["TRUNCATE kb.chunks", "TRUNCATE kb.knowledge_bases CASCADE"] {
        db.run(&format!("BEGIN; {all}"));
        assert_eq!(db.count(&table), 0, "{all}");
        db.run("ROLLBACK");
    }
    assert_eq!(db.count(&table), vectors);
    // A trigger that does not fire is reported.
    let tables = "SELECT detail FROM kb.health() WHERE component = 'tables'";
    for state in ["DISABLE TRIGGER", "ENABLE REPLICA TRIGGER"] {
        db.run(&format!("ALTER TABLE {table} {state} vector_written"));
        assert!(db.one::<String>(tables).contains("has no trigger vector_written"), "{state}");
    }
    db.run(&format!("ALTER TABLE {table} ENABLE TRIGGER vector_written"));
    assert_eq!(db.one::<String>(tables), "every vector table exists");
}

#[test]
fn a_vector_is_of_the_tenant_of_its_chunk() {
    let cluster = crate::cluster!();
    let (mut db, table, chunks) = fixture(&cluster);
    db.run("UPDATE public.copy SET tenant_id = 'other'");
    db.refused(&writes(&table, &chunks[0]), "23503");
    db.run("UPDATE kb.chunks SET tenant_id = 'other'");
    db.run(&writes(&table, &chunks[0]));
    assert_eq!(db.count(&format!("{table} WHERE tenant_id = 'other'")), 1);
    db.refused(&format!("UPDATE {table} SET tenant_id = 'third'"), "23503");
}
