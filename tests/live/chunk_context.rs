//! chunking.context: text that is embedded with a chunk and finds it, but is not part of its text.

use crate::stub::{Options, Stub};
use crate::support::{Db, WHOLE};

const CHUNKING: &str = r#"{"strategy": "markdown", "size": 20, "overlap": 0, "context": "title > heading"}"#;
const TEXT: &str = "# Leave\n\n## Annual\n\nStaff have twenty eight days of it in every year, and some more.\n\n\
                    ## Sick\n\nTell your manager on the first day, or have somebody tell him.";

/// The texts that the provider was sent since the last call, sorted.
fn sent(stub: &Stub) -> Vec<String> {
    let mut texts: Vec<String> = stub.requests().iter().flat_map(|request| request.texts.clone()).collect();
    texts.sort();
    stub.forget();
    texts
}

fn put(db: &mut Db, kb: &str, id: &str, content: &str, title: &str) -> String {
    let status = db.one_with(
        "SELECT kb.put_document($1, $2, $3, title => $4, content_type => 'text/markdown')",
        &[&kb, &id, &content, &title],
    );
    db.wait(kb);
    status
}

#[test]
fn a_chunk_is_embedded_and_found_with_its_context_which_is_not_in_its_text() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("remote", &stub, "{}");
    db.create_kb("k", "remote", CHUNKING);
    put(&mut db, "k", "d", TEXT, "Handbook");
    let texts = sent(&stub);
    assert!(texts.len() >= 2, "{texts:?}");
    assert!(texts.iter().all(|text| text.starts_with("Handbook > Leave")), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("Handbook > Leave > Sick\n\n## Sick")), "{texts:?}");
    let stored: Vec<String> =
        db.all("SELECT * FROM (SELECT context || E'\\n\\n' || content AS whole FROM kb.chunks) c ORDER BY whole COLLATE \"C\"");
    assert_eq!(stored, texts);
    assert_eq!(
        db.count(
            "kb.chunks c JOIN kb.documents d USING (document_id)
                         WHERE c.content <> substr(d.content, start_char + 1, end_char - start_char)"
        ),
        0
    );
    // Its words find the chunk, also as a phrase, and are in no answer.
    for question in ["handbook", "\"handbook leave\"", "\"sick\" handbook"] {
        let found: Vec<String> =
            db.all_with("SELECT content FROM kb.query('k', $1, 9, mode => 'keyword')", &[&question]);
        assert!(
            !found.is_empty() && !found.iter().any(|text| text.contains("Handbook")),
            "{question}: {found:?}"
        );
    }
    assert_eq!(
        db.count("kb.query('k', 'handbook -sick', 9, mode => 'keyword') WHERE content LIKE '%manager%'"),
        0
    );
}

#[test]
fn another_title_or_heading_is_another_context_and_costs_what_it_changes() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("remote", &stub, "{}");
    db.create_kb("k", "remote", CHUNKING);
    db.create_kb("plain", "remote", r#"{"strategy": "markdown", "size": 20, "overlap": 0}"#);
    db.create_kb(
        "headings",
        "remote",
        r#"{"strategy": "markdown", "size": 20, "overlap": 0, "context": "heading"}"#,
    );
    for kb in ["k", "plain", "headings"] {
        put(&mut db, kb, "d", TEXT, "Handbook");
    }
    let chunks = db.count("kb.chunks c JOIN kb.knowledge_bases USING (kb_no) WHERE id = 'k'") as usize;
    stub.forget();
    assert_eq!(put(&mut db, "k", "d", TEXT, "Handbook"), "skipped");
    // If the title is no part of the context, a new title is stored and nothing is sent.
    for kb in ["plain", "headings"] {
        assert_eq!(put(&mut db, kb, "d", TEXT, "Manual"), "skipped");
    }
    assert_eq!(sent(&stub), [] as [String; 0]);
    assert_eq!(put(&mut db, "k", "d", TEXT, "Manual"), "updated");
    let texts = sent(&stub);
    assert_eq!(texts.len(), chunks);
    assert!(texts.iter().all(|text| text.starts_with("Manual > ")), "{texts:?}");
    assert_eq!(db.count("kb.chunks WHERE context LIKE 'Handbook%'"), 0);
    // A heading above chunks that stay as they are.
    let edited = TEXT.replace("# Leave\n", "# Absence\n");
    put(&mut db, "k", "d", &edited, "Manual");
    let texts = sent(&stub);
    assert!(texts.iter().any(|text| text.starts_with("Manual > Absence > Sick\n\n")), "{texts:?}");
    assert_eq!(db.count("kb.chunks WHERE context LIKE 'Manual > Leave%'"), 0);
    assert_eq!(db.count("kb.query('k', 'handbook', 9, mode => 'keyword')"), 0);
    // Equal texts in different contexts have vectors of their own; in equal contexts they share one.
    put(&mut db, "k", "twin", &edited, "Guide");
    assert!(sent(&stub).iter().all(|text| text.starts_with("Guide > ")));
    put(&mut db, "k", "copy", &edited, "Guide");
    assert_eq!(sent(&stub), [] as [String; 0]);
    crate::support::assert_sound(&mut db, "plain", 1, 0);
}

#[test]
fn a_context_that_is_set_later_takes_a_replacement_and_adopts_no_vector() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("remote", &stub, "{}");
    db.create_kb("k", "remote", WHOLE);
    put(&mut db, "k", "d", "Ships in the harbor.", "Log");
    stub.forget();
    db.run(r#"SELECT kb.alter_knowledge_base('k', chunking => '{"strategy": "none", "context": "title"}')"#);
    db.run_and_wait("k", "SELECT kb.ingest('k', 'replace')");
    assert_eq!(sent(&stub), ["Log\n\nShips in the harbor."]);
    // The vector of a row is that of the row's text.
    db.run(
        "CREATE TABLE rows (id int PRIMARY KEY, title text, body text, v vector(8));
         INSERT INTO rows VALUES (1, 'Row', 'Boats on the river.', '[1,0,0,0,0,0,0,0]');
         SELECT kb.attach_table('k', 'rows', '{body}', title => 'title', adopt => 'v'); SELECT kb.ingest('k')",
    );
    db.wait("k");
    assert_eq!(sent(&stub), ["Row\n\nBoats on the river."]);
    db.run_and_wait("k", "UPDATE rows SET title = 'Line'");
    assert_eq!(sent(&stub), ["Line\n\nBoats on the river."]);
    db.refused(r#"SELECT kb.alter_knowledge_base('k', chunking => '{"context": "author"}')"#, "22023");
    // A model with a small limit has room for both.
    db.create_kb("small", "minilm", r#"{"context": "title"}"#);
    assert_eq!(
        db.one::<String>("SELECT chunking ->> 'size' FROM kb.knowledge_bases WHERE id = 'small'"),
        "190"
    );
    let too_large = r#"'{"size": 250, "context": "title"}'"#;
    db.refused(
        &format!("SELECT kb.create_knowledge_base('large', 'minilm', chunking => {too_large})"),
        "22023",
    );
}
