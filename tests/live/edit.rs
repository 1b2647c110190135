//! Edits: an edit during processing decides the result, and chunks that did not change stay.

use crate::support::{
    APP, Db, Document, LONG, SOON, WHOLE, assert_sound, chunk_set, texts, until, vector_table,
};
use std::collections::{BTreeMap, BTreeSet};

const CHUNKING: &str = r#"{"size": 60, "overlap": 0}"#;

#[test]
fn an_edit_during_processing_ends_at_the_edit() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    db.create_kb("calm", "slow", CHUNKING);
    let old = texts::text(1, 60, 40).replace("river", "oldriver");
    // Half of it is new; the other half is from the old text, in another place.
    let new = texts::text(2, 10, 40) + "\n\n" + &texts::text(1, 10, 40);
    db.put("k", "d", &old);
    db.until_halfway("k", 8);
    db.put_and_wait("k", "d", &new);
    db.put_and_wait("calm", "d", &new);
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
    assert_eq!(db.count("kb.chunks WHERE content LIKE '%oldriver%'"), 0);
    assert_eq!(db.one::<String>("SELECT content FROM kb.documents WHERE external_id = 'd' LIMIT 1"), new);
    assert_eq!(db.count("kb.query('k', 'old river', 5) WHERE stale"), 0);
}

#[test]
fn an_edit_back_to_the_first_version_during_processing_ends_at_the_first_version() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    let (one, two) = (texts::text(1, 4, 40), texts::text(2, 60, 40));
    db.put_and_wait("k", "d", &one);
    let before = chunk_set(&mut db, "k");
    db.put("k", "d", &two);
    db.until_halfway("k", 12);
    db.put_and_wait("k", "d", &one);
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(chunk_set(&mut db, "k"), before);
}

#[test]
fn a_document_that_changes_while_it_is_cut_ends_as_it_was_put_last() {
    let (cluster, mut db) = crate::connected!();
    let tokens = r#"{"tokenizer": "cl100k_base", "size": 500}"#;
    db.create_kb("k", "hash", tokens);
    db.create_kb("calm", "hash", tokens);
    // It is so large that each document is alone in its group.
    let large: Vec<Document> = ["anew", "edited", "deleted"]
        .iter()
        .map(|id| Document::new(*id, texts::text(3, 12_000, 60)))
        .collect();
    db.put_all("k", &large);
    let until_cut = |db: &mut Db, id: &str| {
        let job: i64 = db.one_with("SELECT job_no FROM kb.jobs WHERE subject = $1", &[&id]);
        until(LONG, "it is being cut", || cluster.worker_notes(db).get(1) == Some(&job));
    };
    let (anew, edited) = (texts::text(4, 5, 60), texts::text(5, 5, 60));
    until_cut(&mut db, "anew");
    db.run("SELECT kb.delete_document('k', 'anew')");
    db.put("k", "anew", &anew);
    until_cut(&mut db, "edited");
    db.put("k", "edited", &edited);
    until_cut(&mut db, "deleted");
    db.run_and_wait("k", "SELECT kb.delete_document('k', 'deleted')");
    db.put("calm", "anew", &anew);
    db.put_and_wait("calm", "edited", &edited);
    assert_sound(&mut db, "k", 2, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
}

/// Every vector of a knowledge base by chunk, with the position and the writer of its row.
fn vector_rows(db: &mut Db, kb: &str) -> BTreeMap<String, String> {
    let table = vector_table(db, kb);
    let rows = db.0.query(&format!("SELECT chunk_id::text, concat(ctid, ' ', xmin) FROM {table}"), &[]);
    rows.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn an_edited_paragraph_of_a_thousand_chunks_costs_three_vectors_at_most() {
    let (_cluster, mut db) = crate::connected!();
    // Overlap has its default value, so a chunk's neighbours contain some of its text.
    db.create_kb("k", "static", r#"{"size": 60}"#);
    let mut paragraphs = texts::paragraphs(7, 1100, 40);
    db.put_and_wait("k", "d", &paragraphs.join("\n\n"));
    let mut before = vector_rows(&mut db, "k");
    assert!(before.len() >= 1000, "{} chunks", before.len());
    let middle = paragraphs.len() / 2;
    let edits: [(&str, usize, String); 4] = [
        ("the same length", middle, texts::paragraph(9001, 40)),
        ("shorter", 3, "It is short now.".into()),
        ("longer", middle + 100, texts::paragraph(9002, 60)),
        ("at the end", paragraphs.len() - 1, texts::paragraph(9003, 45)),
    ];
    for (what, at, text) in edits {
        paragraphs[at] = text;
        db.put_and_wait("k", "d", &paragraphs.join("\n\n"));
        let after = vector_rows(&mut db, "k");
        let keys = |rows: &BTreeMap<String, String>| rows.keys().cloned().collect::<BTreeSet<_>>();
        let new = keys(&after).difference(&keys(&before)).count();
        assert!((1..=3).contains(&new), "{what}: {new} vectors were made");
        for (chunk, row) in &before {
            if let Some(now) = after.get(chunk) {
                assert_eq!(now, row, "{what}: the vector of unchanged chunk {chunk} was written again");
            }
        }
        assert_sound(&mut db, "k", 1, 0);
        before = after;
    }
}

#[test]
fn metadata_alone_changes_nothing_but_metadata() {
    let (_cluster, mut db) = crate::with_kb!("static", CHUNKING);
    let text = texts::text(1, 5, 40);
    db.put_and_wait("k", "d", &text);
    let before = vector_rows(&mut db, "k");
    let put: String = db.one_with("SELECT kb.put_document('k', 'd', $1, metadata => '{\"a\": 1}')", &[&text]);
    assert_eq!(put, "skipped");
    assert_eq!(db.jobs(), 0);
    assert_eq!(vector_rows(&mut db, "k"), before);
    assert_eq!(db.count("kb.query('k', 'river', 2, filter => '{\"a\": 1}')"), 2);
}

#[test]
fn an_edit_that_waits_for_a_commit_does_not_stop_the_other_documents() {
    let (cluster, mut db) = crate::with_kb!("static", CHUNKING);
    db.put_and_wait("k", "held", &texts::paragraph(1, 20));
    let mut writer = cluster.connect(APP);
    writer.run("BEGIN");
    writer.put("k", "held", &texts::paragraph(2, 20));
    for i in 0..20 {
        db.put("k", &format!("d{i}"), &texts::paragraph(100 + i, 20));
    }
    until(LONG / 6, "the others are ready", || db.jobs() == 0);
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 21);
    writer.run("COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 21, 0);
}

#[test]
fn a_live_edit_goes_ahead_of_a_backfill() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.create_kb("k", "hash", WHOLE);
    let documents = texts::documents(0..400, 40);
    db.put_all_and_wait("k", &documents);
    // Everything is embedded again, slowly.
    db.run("SELECT kb.alter_knowledge_base('k', 'slow')");
    let run: i64 = db.one("SELECT kb.ingest('k')");
    let waiting = "kb.jobs WHERE priority > 0";
    until(SOON, "it is under way", || (1..400).contains(&db.count(waiting)));
    db.put("k", "urgent", "The one that somebody waits for.");
    until(SOON, "the edit is done", || db.count("kb.jobs WHERE priority = 0") == 0);
    let left = db.count(waiting);
    assert!(left > 100, "only {left} of the backfill were left");
    db.run(&format!("SELECT kb.wait({run}::bigint, 300)"));
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 401, 0);
}

#[test]
fn processing_documents_writes_none_of_their_indexes_again() {
    let (cluster, mut db) =
        crate::with_kb!("hash", CHUNKING, ["kb.worker_idle_timeout = '1s'", "autovacuum = off"]);
    for (round, words) in ["river", "harbor"].into_iter().enumerate() {
        let document = |n: usize| Document::new(format!("d{n}"), format!("Text {n} of a {words}, {round}."));
        db.put_all_and_wait("k", &(0..200).map(document).collect::<Vec<_>>());
    }
    // The counts of a process are known when it ends.
    until(SOON, "the worker leaves", || cluster.processes("kb worker", Some(APP)).is_empty());
    db.0 = cluster.connect(APP).0;
    let counted = |db: &mut Db, column: &str| -> i64 {
        db.one(&format!(
            "SELECT {column}::int8 FROM pg_stat_user_tables WHERE schemaname = 'kb' AND relname = 'documents'"
        ))
    };
    // The chunks, the status ready, the edit, and both again.
    until(SOON, "all is counted", || counted(&mut db, "n_tup_upd") >= 1000);
    let (all, without) = (counted(&mut db, "n_tup_upd"), counted(&mut db, "n_tup_hot_upd"));
    assert!(without * 10 >= all * 9, "{without} of {all}");
}
