//! Promise 9: pg_dump and pg_restore carry everything.

use crate::support::{
    APP, Cluster, Db, Document, PENDING_CHUNKS, SOON, assert_sound, chunk_set, succeed, texts, until,
};
use std::path::{Path, PathBuf};

/// Policies, grants, indexes and constraints of kb.
const CATALOGS: [&str; 4] = [
    "SELECT concat_ws(' ', tablename, policyname, cmd, qual, with_check) FROM pg_policies WHERE schemaname = 'kb'
     ORDER BY 1",
    "SELECT concat_ws(' ', relname, relrowsecurity, relforcerowsecurity, array_to_string(relacl, ',')) FROM pg_class
     WHERE relnamespace = 'kb'::regnamespace AND relkind IN ('r', 'v', 'S') ORDER BY 1",
    "SELECT pg_get_indexdef(indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = indrelid
     WHERE relnamespace = 'kb'::regnamespace ORDER BY 1",
    "SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
     WHERE connamespace = 'kb'::regnamespace ORDER BY 1",
];

/// The command that restores an archive.
pub const PG_RESTORE: &[&str] = &["pg_restore", "--exit-on-error"];

/// Dumps [`APP`] into a file, or a folder, of this name, with these arguments of pg_dump.
pub fn dump(cluster: &Cluster, name: &str, arguments: &[&str]) -> PathBuf {
    let file = cluster.path(name);
    succeed(cluster.program("pg_dump").args(arguments).arg("--file").arg(&file).arg(APP));
    file
}

/// Restores a dump into an existing database, by a program with its arguments; the file comes last.
pub fn restore(cluster: &Cluster, database: &str, file: &Path, program: &[&str]) {
    let mut command = cluster.program(program[0]);
    succeed(command.arg(format!("--dbname={database}")).args(&program[1..]).arg(file));
}

/// An empty database to restore into.
pub fn create_empty(cluster: &Cluster, database: &str) {
    cluster.connect("postgres").run(&format!("CREATE DATABASE {database}"));
}

/// The present state of [`APP`], as the database `restored`.
fn copy(cluster: &Cluster) -> Db {
    let file = dump(cluster, "dump", &["--format=custom"]);
    create_empty(cluster, "restored");
    restore(cluster, "restored", &file, PG_RESTORE);
    cluster.connect("restored")
}

/// The rows of all tables of kb, with a line for each table. Seeded embedders are as old as the extension,
/// and packed vectors are no part of a dump.
pub fn rows(db: &mut Db) -> Vec<String> {
    let tables: Vec<String> = db.all(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'kb'::regnamespace AND relkind = 'r'
             AND relname NOT IN ('tails', 'tail_vectors') ORDER BY 1",
    );
    let line = |table: String| -> String {
        let row = match table.as_str() {
            "kb.embedders" => {
                "CASE WHEN seeded THEN (to_jsonb(t) - '{created_at, updated_at}'::text[])::text
                      ELSE t::text END"
            }
            _ => "t::text",
        };
        db.one(&format!(
            "SELECT concat_ws(' ', '{table}', count(*), md5(string_agg({row}, ',' ORDER BY {row})))
             FROM {table} t"
        ))
    };
    tables.into_iter().map(line).collect()
}

/// The present values of kb's sequences.
pub fn numbers(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT concat_ws(' ', sequencename, last_value) FROM pg_sequences
         WHERE schemaname = 'kb' ORDER BY 1",
    )
}

pub fn catalogs(db: &mut Db) -> Vec<String> {
    CATALOGS.iter().flat_map(|sql| db.all::<String>(sql)).collect()
}

/// A database with knowledge bases of two tenants, and the same one restored from a dump of it.
fn restored() -> Option<(Cluster, Db, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run("SELECT kb.create_embedder('small', 'hash', dimension => 64)");
    db.run("SELECT kb.create_vector_db('shelf', dimension => 64)");
    db.run("SELECT kb.create_knowledge_base('shared table', 'small', 'shelf')");
    db.create_kb("own table", "minilm", r#"{"size": 60}"#);
    let documents = Document::numbered(0..20, |i| texts::text(i + 1, 3, 35));
    for kb in ["shared table", "own table"] {
        db.put_all_and_wait(kb, &documents);
    }
    db.run_and_wait("own table", "SELECT kb.ingest('own table')");
    db.run("SET kb.tenant = 'a'");
    db.create_kb("of a", "hash", "{}");
    db.put_and_wait("of a", "d", "A secret of a.");
    db.run("SELECT kb.bind('agent:x', 'of a', 3, 0.5, 100, 'Nothing.', 'docs', '{\"k\": 1}')");
    db.run("RESET kb.tenant");
    let restored = copy(&cluster);
    Some((cluster, db, restored))
}

#[test]
fn a_restored_database_has_everything_and_answers_the_same() {
    let Some((_cluster, mut db, mut restored)) = restored() else { return };
    assert_eq!(rows(&mut restored), rows(&mut db));
    assert_eq!(numbers(&mut restored), numbers(&mut db));
    for kb in ["shared table", "own table"] {
        assert_sound(&mut restored, kb, 20, 0);
        assert_eq!(chunk_set(&mut restored, kb), chunk_set(&mut db, kb));
        let question = "where do farmers sell apples?";
        assert_eq!(restored.found(kb, question, 10), db.found(kb, question, 10));
    }
    assert_eq!(restored.count("kb.embedders"), 4);
}

#[test]
fn a_restored_database_has_its_policies_and_grants() {
    let Some((cluster, mut db, mut restored)) = restored() else { return };
    assert_eq!(catalogs(&mut restored), catalogs(&mut db));
    db.run("CREATE ROLE b LOGIN IN ROLE kb_reader");
    let mut b = cluster.connect_as("restored", "b");
    b.run("SET kb.tenant = 'b'");
    let table: String =
        restored.one("SELECT format('kb.%I', table_name) FROM kb.builds WHERE tenant_id = 'a'");
    // No role may read vectors.
    b.refused(&format!("SELECT FROM {table}"), "42501");
    assert_eq!(b.count("kb.documents"), 0);
}

#[test]
fn a_restored_database_continues_as_if_nothing_had_happened() {
    let Some((_cluster, _, mut restored)) = restored() else { return };
    // Sequences continue where they were.
    restored.create_kb("new", "hash", "{}");
    restored.put_and_wait("new", "d", "A new text.");
    assert_sound(&mut restored, "new", 1, 0);
    for kb in ["shared table", "own table"] {
        restored.put(kb, "d0", "An edited text.");
        restored.put_and_wait(kb, "d20", &texts::text(99, 3, 35));
        assert_sound(&mut restored, kb, 21, 0);
        assert_eq!(restored.found(kb, "An edited text.", 1), ["d0"]);
    }
    // Vectors that are written from now on are packed, in the three tables that belong to single builds.
    assert_eq!(restored.count("kb.tails"), 3);
    assert!(restored.count("kb.tail_vectors t JOIN kb.knowledge_bases k ON k.id = 'own table' JOIN kb.builds b USING (kb_no) WHERE t.build_no = b.build_no") > 0);
    for kb in ["shared table", "own table"] {
        let run: i64 = restored.one_with("SELECT kb.ingest($1, 'replace')", &[&kb]);
        restored.run(&format!("SELECT kb.wait({run}::bigint, 120)"));
        assert_eq!(
            restored.one::<String>(&format!("SELECT state FROM kb.runs WHERE run_no = {run}")),
            "done"
        );
    }
    restored.run("SELECT kb.drop_knowledge_base('own table')");
    restored.run("SELECT kb.drop_knowledge_base('shared table'); SELECT kb.drop_vector_db('shelf')");
}

#[test]
fn a_restored_database_scores_words_the_same_and_continues_from_there() {
    let (cluster, mut db) = crate::connected!();
    db.run(r#"SELECT kb.create_knowledge_base('k', 'hash', chunking => '{"strategy": "none"}', retrieval => '{"mode": "keyword"}')"#);
    db.put_all_and_wait("k", &texts::documents(0..400, 25));
    let is_folded = |db: &mut Db| {
        until(SOON, "chunks are folded", || {
            db.count("kb.bm25_segments") > 0 && db.count(PENDING_CHUNKS) < 256
        });
    };
    is_folded(&mut db);
    // Some rows are pending, and some of the segment's are deleted.
    db.put_all("k", &texts::documents(400..430, 25));
    for number in [3, 77, 401] {
        db.run(&format!("SELECT kb.delete_document('k', 'd{number}')"));
    }
    db.wait("k");
    assert!(db.count(PENDING_CHUNKS) > 0);
    let mut restored = copy(&cluster);
    // All rows with their scores.
    let scores = |db: &mut Db| -> Vec<String> {
        ["apples", "harbor ships library", "\"old harbor\" river -desert", "copper castle corner energy"]
            .iter()
            .flat_map(|question| {
                db.all_with::<String>(
                    "SELECT $1 || ' ' || external_id || ' ' || rank_score FROM kb.query('k', $1, 1000) ORDER BY 1",
                    &[question],
                )
            })
            .collect()
    };
    let before = scores(&mut db);
    assert!(before.len() > 200, "{}", before.len());
    assert_eq!(scores(&mut restored), before);
    // The same edits: what was folded is counted once, and what is folded next is added to it.
    for db in [&mut db, &mut restored] {
        db.put("k", "d5", "Ships leave the harbor with copper, apples and another library of ships.");
        db.run_and_wait("k", "SELECT kb.delete_document('k', 'd9')");
    }
    let after = scores(&mut db);
    assert_ne!(after, before);
    assert_eq!(scores(&mut restored), after);
    for db in [&mut db, &mut restored] {
        db.put_all_and_wait("k", &texts::documents(1_000..1_300, 25));
        is_folded(db);
    }
    assert_eq!(scores(&mut restored), scores(&mut db));
    assert_eq!(restored.one::<i64>("SELECT count(DISTINCT age) - count(*) FROM kb.bm25_segments"), 0);
}

#[test]
fn a_restored_extension_can_be_dropped_as_any() {
    let Some((_cluster, mut db, mut restored)) = restored() else { return };
    db.run("DROP EXTENSION kb");
    // When the worker starts, it makes the restored vector tables depend on the extension again.
    restored.put_and_wait("own table", "one more", "a document of the restored database");
    restored.run("DROP EXTENSION kb");
}

#[test]
fn work_that_waited_when_the_dump_was_made_is_done_in_the_restored_database() {
    let (cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    let documents = Document::numbered(0..60, |i| texts::text(i + 1, 3, 35));
    db.put_all("k", &documents);
    db.until_halfway("k", 8);
    let mut restored = copy(&cluster);
    assert!(restored.jobs() > 0);
    db.wait("k");
    restored.wait("k");
    assert_sound(&mut restored, "k", 60, 0);
    assert_eq!(chunk_set(&mut restored, "k"), chunk_set(&mut db, "k"));
}
