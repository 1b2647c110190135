//! Vectors that rows already have (adopt) are taken over without a request, and never for another text.

use super::without_worker;
use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, Db};

/// Knowledge base k of the stub's embedder, and table t with a column of vectors of its dimension.
fn with_table() -> Option<(Cluster, Db, Stub)> {
    let cluster = Cluster::start(&[])?;
    let stub = Stub::start(Options::default());
    let mut db = cluster.connect(APP);
    db.create_stub_embedder("e", &stub, "{}");
    db.create_kb("k", "e", r#"{"size": 20, "overlap": 0}"#);
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text, embedding vector(8))");
    Some((cluster, db, stub))
}

/// The vectors of documents, by their external_ids.
fn vectors(db: &mut Db) -> Vec<String> {
    let table = crate::support::vector_table(db, "k");
    db.all(&format!(
        "SELECT concat(d.external_id, ' ', v.embedding) FROM {table} v JOIN kb.chunks c USING (build_no, chunk_id)
         JOIN kb.documents d USING (document_id) WHERE v.embedding::text LIKE '[1,%' ORDER BY d.external_id"
    ))
}

/// The texts that were sent.
fn sent(stub: &Stub) -> Vec<String> {
    stub.counts().into_keys().collect()
}

#[test]
fn vectors_that_rows_have_are_adopted_and_nothing_is_sent_for_them() {
    let Some((_cluster, mut db, stub)) = with_table() else { return };
    db.run(
        "INSERT INTO t SELECT i, 'Row ' || i, ('[1,' || i || ',0,0,0,0,0,0]')::vector FROM generate_series(1, 50) i;
         INSERT INTO t VALUES (51, 'Without a vector', NULL),
             (52, 'A vector without a direction', '[0,0,0,0,0,0,0,0]'),
             (53, repeat('A row that becomes several chunks. ', 20), '[1,53,0,0,0,0,0,0]')",
    );
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', adopt => 'embedding')");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 53);
    assert_eq!(vectors(&mut db).len(), 50);
    assert!(vectors(&mut db).contains(&"7 [1,7,0,0,0,0,0,0]".to_string()));
    let texts = sent(&stub);
    assert!(!texts.iter().any(|text| text.starts_with("Row ")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("Without a vector")), "{texts:?}");
    let nearest = "SELECT external_id FROM kb.query_vector('k', '[1,9,0,0,0,0,0,0]', 1)";
    assert_eq!(db.one::<String>(nearest), "9");
    // A later edit is embedded, whether the vector beside it stays or changes.
    db.run(
        "UPDATE t SET body = 'Row 9 has another text' WHERE id = 9;
            UPDATE t SET body = 'Row 8 has another text', embedding = '[1,8,8,0,0,0,0,0]' WHERE id = 8",
    );
    db.wait("k");
    assert_eq!(vectors(&mut db).len(), 48);
    // The table is attached again: nothing that exists is embedded or adopted again.
    let before = sent(&stub).len();
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', adopt => 'embedding')");
    assert_eq!((vectors(&mut db).len(), sent(&stub).len()), (48, before));
    // The column is not needed any more.
    db.run("ALTER TABLE t DROP COLUMN embedding; UPDATE t SET body = 'Row 7 has another text' WHERE id = 7");
    db.wait("k");
    assert_eq!((vectors(&mut db).len(), db.count("kb.failures")), (47, 0));
    // A build of another model adopts nothing.
    db.run("SELECT kb.alter_knowledge_base('k', embedder => 'hash')");
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.run(&format!("SELECT kb.wait({run}::bigint, 60)"));
    assert_eq!(vectors(&mut db), [""; 0]);
}

#[test]
fn a_vector_is_not_adopted_for_a_row_that_was_edited_since() {
    let Some((cluster, mut db, stub)) = with_table() else { return };
    // This starts a worker that can be stopped.
    db.put_and_wait("k", "put", "A document that was put");
    db.run("INSERT INTO t SELECT i, 'Row ' || i, ('[1,' || i || ',0,0,0,0,0,0]')::vector FROM generate_series(1, 20) i");
    without_worker(&cluster, || {
        db.run("SELECT kb.attach_table('k', 't', 'body', adopt => 'embedding'); UPDATE t SET body = 'Edited ' || id WHERE id <= 10");
    });
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 21);
    assert_eq!(vectors(&mut db).len(), 10);
    assert_eq!(sent(&stub).iter().filter(|text| text.contains("Edited")).count(), 10);
}

#[test]
fn vectors_that_cannot_be_adopted_are_refused() {
    let Some((_cluster, mut db, _stub)) = with_table() else { return };
    db.run("ALTER TABLE t ADD three vector(3), ADD any_number vector, ADD half halfvec(8)");
    for (column, says) in
        [("body", "column \"body\" of type vector"), ("none", "column \"none\""), ("three", "3 dimensions")]
    {
        let fault =
            db.refused(&format!("SELECT kb.attach_table('k', 't', 'body', adopt => '{column}')"), "22023");
        assert!(fault.text.contains(says), "{column}: {fault:?}");
    }
    for column in ["any_number", "half"] {
        db.run(&format!("SELECT kb.attach_table('k', 't', 'body', adopt => '{column}')"));
    }
}
