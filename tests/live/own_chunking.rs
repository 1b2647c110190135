//! A document may have a chunking of its own, which it keeps whatever happens to its knowledge base.

use super::dump::{PG_RESTORE, create_empty, dump, restore};
use crate::stub::{Options, Stub};
use crate::support::{Db, SOON, assert_sound, texts, until};

const OWN: &str = r#"{"strategy": "fixed", "size": 10, "overlap": 0}"#;
const WHOLE: &str = r#"{"size": 1000, "overlap": 0}"#;

fn put(db: &mut Db, kb: &str, id: &str, content: &str, chunking: Option<&str>) -> String {
    db.one_with(
        "SELECT kb.put_document($1, $2, $3, chunking => $4::text::jsonb)",
        &[&kb, &id, &content, &chunking],
    )
}

/// The most tokens of a chunk of a document, and whether there are several chunks.
fn cut(db: &mut Db, id: &str) -> (i32, bool) {
    let row =
        db.0.query_one(
            "SELECT max(c.token_count), count(*) > 1 FROM kb.chunks c JOIN kb.builds b USING (build_no)
             JOIN kb.documents d USING (document_id) WHERE d.external_id = $1 AND b.state = 'live'",
            &[&id],
        )
        .unwrap();
    (row.get(0), row.get(1))
}

fn ingest(db: &mut Db, strategy: &str) {
    let run_no: i64 = db.one_with("SELECT kb.ingest('k', $1)", &[&strategy]);
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
}

fn sizes(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id || ' ' || coalesce(chunking ->> 'size', '-') FROM kb.documents ORDER BY 1")
}

#[test]
fn a_document_is_cut_by_its_own_chunking_in_each_build_until_it_gets_another() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", WHOLE);
    let text = texts::text(1, 6, 40);
    for (id, chunking) in [("own", Some(OWN)), ("usual", None)] {
        assert_eq!(put(&mut db, "k", id, &text, chunking), "added");
    }
    db.wait("k");
    assert_eq!(cut(&mut db, "own"), (10, true));
    assert!(!cut(&mut db, "usual").1);
    assert_sound(&mut db, "k", 2, 0);
    // It keeps its chunking when none is given, with another text too; kb.ingest finds nothing to do.
    assert_eq!(put(&mut db, "k", "own", &text, None), "skipped");
    assert_eq!(put(&mut db, "k", "own", &text, Some(OWN)), "skipped");
    let longer = format!("{text} And more.");
    assert_eq!(put(&mut db, "k", "own", &longer, None), "updated");
    db.wait("k");
    assert_eq!(cut(&mut db, "own"), (10, true));
    ingest(&mut db, "upsert");
    assert_eq!(db.all::<i64>("SELECT updated FROM kb.runs"), [0]);
    // Another chunking cuts it again; an empty one gives it that of the knowledge base.
    assert_eq!(put(&mut db, "k", "own", &longer, Some(r#"{"size": 30}"#)), "updated");
    db.wait("k");
    let (most, several) = cut(&mut db, "own");
    assert!(most > 10 && most <= 30 && several, "{most}");
    assert_eq!(put(&mut db, "k", "own", &longer, Some("{}")), "updated");
    db.wait("k");
    assert!(!cut(&mut db, "own").1);
    assert_eq!(sizes(&mut db), ["own -", "usual -"]);
    assert_eq!(put(&mut db, "k", "own", &longer, Some(OWN)), "updated");
    db.run(&format!(
        r#"SELECT kb.put_documents('k', ARRAY['{{"external_id": "array", "content": "{text}", "chunking": {OWN}}}'::jsonb]);
           SELECT kb.sync_documents('k', ARRAY['{{"external_id": "s/a", "content": "{text}", "chunking": {OWN}}}'::jsonb], 's/')"#
    ).replace('\n', " "));
    let mail = "Subject: S\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\nText\n--x\nContent-Disposition: attachment; filename=n.txt\nContent-Type: text/plain\n\n";
    let mail = format!("{mail}{text}\n--x--\n").into_bytes();
    let put_file = "SELECT kb.put_file('k', 'm.eml', $1, chunking => $2::text::jsonb)";
    assert_eq!(db.one_with::<String>(put_file, &[&mail, &OWN]), "added");
    db.wait("k");
    // A file within a file is cut as that.
    for id in ["array", "s/a", "m.eml/n.txt"] {
        assert_eq!(cut(&mut db, id), (10, true), "{id}");
    }
    // A run that makes all chunks anew, under other settings of the knowledge base and another embedder.
    db.run(r#"SELECT kb.alter_knowledge_base('k', 'minilm', chunking => '{"size": 60, "overlap": 0}')"#);
    ingest(&mut db, "replace");
    assert_eq!(cut(&mut db, "own"), (10, true));
    let (most, several) = cut(&mut db, "usual");
    assert!(most > 10 && most <= 60 && several, "{most}");
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 6, 0);
    let all = sizes(&mut db);
    assert_eq!(all, ["array 10", "m.eml 10", "m.eml/n.txt 10", "own 10", "s/a 10", "usual -"]);
    // A dump has it, and a knowledge base that moves to another tenant keeps it.
    db.run("SELECT kb.move_knowledge_base('k', 'b')");
    db.run("SET kb.tenant = 'b'");
    assert_eq!(sizes(&mut db), all);
    let file = dump(&cluster, "dump", &["--format=custom"]);
    create_empty(&cluster, "restored");
    restore(&cluster, "restored", &file, PG_RESTORE);
    let mut restored = cluster.connect("restored");
    restored.run("SET kb.tenant = 'b'");
    assert_eq!(sizes(&mut restored), all);
    assert_eq!(cut(&mut restored, "own"), (10, true));
}

#[test]
fn a_chunking_is_checked_with_all_problems_and_fits_what_a_later_model_reads() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", WHOLE);
    let wrong = r#"{"size": 0, "overlapp": 1, "strategy": "x", "context_llm": "none"}"#;
    let fault = db.refused(&format!("SELECT kb.put_document('k', 'd', 'x', chunking => '{wrong}')"), "22023");
    for part in ["document \"d\"", "chunking.size", "chunking.overlapp", "chunking.strategy"] {
        assert!(fault.text.contains(part), "{part}: {fault:?}");
    }
    let llm = r#"SELECT kb.put_document('k', 'd', 'x', chunking => '{"context_llm": "none"}')"#;
    assert!(db.refused(llm, "22023").text.contains("chunking.context_llm: llm \"none\" does not exist"));
    for wrong in ["[]", "1", "\"x\""] {
        db.refused(&format!("SELECT kb.put_document('k', 'd', 'x', chunking => '{wrong}')"), "22023");
        let document = format!(r#"{{"external_id": "d", "content": "x", "chunking": {wrong}}}"#);
        db.refused(&format!("SELECT kb.put_documents('k', ARRAY['{document}']::jsonb[])"), "22023");
    }
    assert_eq!(db.count("kb.documents"), 0);
    // 600 tokens are more than the next model reads.
    put(&mut db, "k", "d", &texts::text(1, 20, 60), Some(r#"{"size": 600, "overlap": 0}"#));
    db.wait("k");
    db.run("SELECT kb.alter_knowledge_base('k', 'minilm')");
    ingest(&mut db, "upsert");
    let (most, several) = cut(&mut db, "d");
    assert!(most > 100 && most <= 254 && several, "{most}");
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(sizes(&mut db), ["d 600"]);
}

#[test]
fn a_document_with_a_chat_model_of_its_own_asks_that_one_which_cannot_be_dropped() {
    let (own, usual) = (Stub::start(Options::default()), Stub::start(Options::default()));
    let (_cluster, mut db) = crate::connected!();
    for (id, stub) in [("own", &own), ("usual", &usual)] {
        let url = stub.base_url("chat_openai");
        db.run(&format!("SELECT kb.create_llm('{id}', 'openai', base_url => '{url}')"));
    }
    db.create_kb("k", "hash", r#"{"size": 1000, "overlap": 0, "context_llm": "usual"}"#);
    db.run("BEGIN");
    put(&mut db, "k", "a", "One text.", Some(r#"{"context_llm": "own"}"#));
    put(&mut db, "k", "b", "Another text.", None);
    put(&mut db, "k", "c", "A third text.", Some(OWN));
    db.run("COMMIT");
    db.wait("k");
    let all = "SELECT external_id || ' ' || status FROM kb.documents ORDER BY 1";
    assert_eq!(db.all::<String>(all), ["a ready", "b ready", "c ready"]);
    for (stub, text) in [(&own, "One text."), (&usual, "Another text.")] {
        let asked: Vec<String> = stub.requests().iter().map(|request| request.body.to_string()).collect();
        assert!(asked.len() == 1 && asked[0].contains(text), "{asked:?}");
    }
    db.refused("SELECT kb.drop_llm('own')", "2BP01");
    db.run("SELECT kb.delete_document('k', 'a'); SELECT kb.drop_llm('own')");
}
