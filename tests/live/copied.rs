//! What the worker writes by COPY: a row that cannot be written in this way affects no other row.

use crate::stub::{Options, Stub};
use crate::support::{APP, Db, SOON, until, vector_table};

/// A document of five chunks, each of which is a sentence.
fn put(db: &mut Db, id: &str) {
    let text: Vec<String> = (1..=5).map(|n| format!("Ship {n} of {id} lies in the old harbor.")).collect();
    db.put("k", id, &text.join("\n\n"));
}

/// Creates a knowledge base whose provider holds back its answers. Returns its vector table.
fn create_held(db: &mut Db, stub: &Stub) -> String {
    stub.hold(true);
    db.create_stub_embedder("e", stub, r#"{"timeout_ms": 60000}"#);
    db.create_kb("k", "e", CHUNKING);
    vector_table(db, "k")
}

const CHUNKING: &str = r#"{"strategy": "fixed", "size": 10, "overlap": 0}"#;

#[test]
fn a_chunk_that_has_a_vector_or_is_gone_or_locked_costs_no_other_its_vector() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    let table = create_held(&mut db, &stub);
    put(&mut db, "a");
    until(SOON, "the chunks are written", || db.count("kb.chunks") >= 5);
    let chunks = db.count("kb.chunks");
    let of = |ordinal: i32| format!("kb.chunks c WHERE c.ordinal = {ordinal}");
    db.run(&format!(
        "INSERT INTO {table} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding)
         SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, b.fingerprint,
             array_fill(0.5::real, ARRAY[(SELECT dimension FROM kb.embedders WHERE id = 'e')])::vector
         FROM kb.builds b, {} AND b.build_no = c.build_no",
        of(0)
    ));
    db.run(&format!("DELETE FROM {}", of(1)));
    other.run(&format!("BEGIN; SELECT FROM {} FOR UPDATE", of(2)));
    stub.hold(false);
    until(SOON, "all others have their vectors", || db.count(&table) == chunks - 2);
    let by_hand = format!("{table} v JOIN {} AND v.chunk_id = c.chunk_id AND v.segment = 0", of(0));
    assert_eq!(db.count(&by_hand.replace("WHERE", "ON")), 1, "what was there stays");
    other.run("COMMIT");
    db.wait("k");
    assert_eq!(db.one::<String>("SELECT status FROM kb.documents"), "ready");
    assert_eq!(db.count(&table), db.count("kb.chunks"));
    assert_eq!(db.count("kb.failures"), 0);
}

#[test]
fn a_chunk_with_an_id_that_exists_already_affects_no_other_chunk() {
    let (_cluster, mut db) = crate::with_kb!("hash", CHUNKING);
    put(&mut db, "a");
    put(&mut db, "b");
    db.wait("k");
    let all = db.count("kb.chunks");
    // A chunk of "a" is turned into one of "b", and "a" is put again.
    db.run(
        "CREATE TABLE public.kept AS SELECT c.* FROM kb.chunks c JOIN kb.documents d USING (document_id)
             WHERE d.external_id = 'a' AND c.ordinal = 1;
         SELECT kb.delete_document('k', 'a');
         UPDATE public.kept SET ordinal = 100, document_id = (SELECT document_id FROM kb.documents);
         INSERT INTO kb.chunks SELECT * FROM public.kept",
    );
    put(&mut db, "a");
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 2);
    assert_eq!(db.count("kb.chunks"), all);
    // After a COPY that failed, the worker's deletions still delete the vectors.
    db.put_and_wait("k", "b", "Nothing is as it was.");
    let table = vector_table(&mut db, "k");
    assert_eq!(db.count(&table), db.count("kb.chunks"));
}

#[test]
fn a_table_without_its_trigger_gets_no_vector_of_a_chunk_that_is_gone() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    let table = create_held(&mut db, &stub);
    db.run(&format!("DROP TRIGGER vector_written ON {table}"));
    put(&mut db, "a");
    until(SOON, "the chunks are written", || db.count("kb.chunks") >= 5);
    db.run("DELETE FROM kb.chunks WHERE ordinal = 1");
    stub.hold(false);
    db.wait("k");
    assert_eq!(db.count(&table), db.count("kb.chunks"));
    assert_eq!(db.count(&format!("{table} v LEFT JOIN kb.chunks c USING (chunk_id) WHERE c IS NULL")), 0);
}

#[test]
fn a_chunk_that_is_being_deleted_gets_no_vector() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    let table = create_held(&mut db, &stub);
    put(&mut db, "a");
    until(SOON, "the chunks are written", || db.count("kb.chunks") >= 5);
    let chunks = db.count("kb.chunks");
    other.run("BEGIN; DELETE FROM kb.chunks WHERE ordinal = 1");
    stub.hold(false);
    until(SOON, "all others have their vectors", || db.count(&table) == chunks - 1);
    other.run("COMMIT");
    db.wait("k");
    // The document is cut again, because the chunk cannot be distinguished from one that is locked.
    assert_eq!(db.count("kb.chunks"), chunks);
    assert_eq!(db.count(&format!("{table} v JOIN kb.chunks c USING (build_no, chunk_id)")), chunks);
    assert_eq!(db.count(&table), chunks);
}

#[test]
fn a_build_that_is_being_deleted_gets_no_chunks() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.create_kb("k", "hash", CHUNKING);
    db.create_kb("other", "hash", CHUNKING);
    other.run(
        "BEGIN; DELETE FROM kb.builds b USING kb.knowledge_bases k WHERE k.kb_no = b.kb_no AND k.id = 'k'",
    );
    put(&mut db, "a");
    let waits = "pg_stat_activity WHERE backend_type = 'kb worker' AND wait_event_type = 'Lock'";
    until(SOON, "the worker waits for the build", || db.count(waits) == 1);
    other.run("COMMIT");
    db.put_and_wait("other", "b", "A ship lies in the harbor.");
    assert_eq!(db.found("other", "harbor", 1), ["b"]);
    assert_eq!(db.count("kb.chunks"), 1, "no chunk is of a build that is gone");
}

#[test]
fn constraints_and_triggers_of_others_apply_to_the_workers_writes() {
    let (_cluster, mut db) = crate::with_kb!("hash", CHUNKING);
    let table = vector_table(&mut db, "k");
    db.run(&format!(
        "CREATE TABLE public.seen (name text);
         CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.seen VALUES (TG_TABLE_NAME); RETURN NULL; END';
         CREATE TRIGGER see AFTER INSERT ON kb.chunks FOR EACH ROW EXECUTE FUNCTION public.see();
         CREATE TRIGGER see AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION public.see()"
    ));
    put(&mut db, "a");
    db.wait("k");
    let chunks = db.count("kb.chunks");
    assert!(chunks >= 5);
    assert_eq!(db.count("public.seen WHERE name = 'chunks'"), chunks);
    assert_eq!(db.count("public.seen WHERE name <> 'chunks'"), chunks);
    // A foreign key to another table, and one more to a table whose rows the worker locks.
    db.run(&format!(
        "DROP TRIGGER see ON kb.chunks; DROP TRIGGER see ON {table};
         CREATE TABLE public.ordinals AS SELECT * FROM generate_series(0, 2) AS ordinal;
         ALTER TABLE public.ordinals ADD PRIMARY KEY (ordinal)"
    ));
    for (id, column, other) in [("b", "ordinal", "public.ordinals"), ("c", "start_char", "kb.builds")] {
        db.run(&format!(
            "ALTER TABLE kb.chunks ADD CONSTRAINT other FOREIGN KEY ({column}) REFERENCES {other} NOT VALID"
        ));
        put(&mut db, id);
        db.wait("k");
        let sqlstate = "SELECT sqlstate FROM kb.documents WHERE external_id = $1";
        assert_eq!(db.one_with::<String>(sqlstate, &[&id]), "23503", "{column}");
        assert_eq!(db.count("kb.chunks"), chunks);
        db.run("ALTER TABLE kb.chunks DROP CONSTRAINT other");
    }
}

#[test]
fn texts_are_written_unchanged_whatever_encoding_clients_use() {
    let (cluster, mut db) = crate::connected!();
    db.run("ALTER DATABASE app SET client_encoding = 'LATIN1'");
    db.create_kb("k", "hash", CHUNKING);
    let text = "Grüße aus Köln, 東京 und Ελλάδα.";
    db.put_and_wait("k", "a", text);
    assert_eq!(db.one::<String>("SELECT content FROM kb.chunks"), text);
    assert_eq!(db.found("k", "東京", 1), ["a"]);
    // Everything is written by COPY; otherwise the log would say so.
    assert!(!cluster.log().contains("worker writes"), "{}", cluster.log());
}
