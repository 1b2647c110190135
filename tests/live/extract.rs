//! The limits of a text and of what it expands to: no document takes the time of another or the memory of the
//! server.

use crate::support::{APP, Db, assert_sound, texts};

fn failure(db: &mut Db, kb: &str) -> (String, String, String, i32) {
    let sql = "SELECT external_id, error, sqlstate, attempts FROM kb.failures WHERE kb_id = $1";
    let row = db.0.query_one(sql, &[&kb]).unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

#[test]
fn a_document_that_takes_too_long_fails_alone_while_anothers_goes_through() {
    // Small documents are never refused because of their time, however slow the machine is.
    let (cluster, mut slow) = crate::connected!("kb.extract_timeout = '1ms'");
    slow.run("SET kb.tenant = 'slow'");
    slow.create_kb("slow", "hash", r#"{"size": 20, "overlap": 10}"#);
    let mut other = cluster.connect(APP);
    other.run("SET kb.tenant = 'other'");
    other.create_kb("other", "hash", r#"{"size": 20, "overlap": 10}"#);
    slow.put("slow", "long.txt", &"a word and another ".repeat(200_000));
    slow.put("slow", "short.txt", &texts::paragraph(1, 20));
    other.put_and_wait("other", "d", &texts::paragraph(2, 20));
    slow.wait("slow");
    assert_sound(&mut other, "other", 1, 0);
    assert_sound(&mut slow, "slow", 1, 1);
    let (id, error, state, attempts) = failure(&mut slow, "slow");
    assert_eq!((id.as_str(), state.as_str(), attempts), ("long.txt", "54000", 1));
    assert!(error.contains("document \"long.txt\"") && error.contains("kb.extract_timeout"), "{error}");
}

#[test]
fn a_document_that_becomes_too_many_chunks_or_too_much_text_fails_alone() {
    let (_cluster, mut db) =
        crate::connected!("kb.max_chunks_per_document = 500", "kb.max_extracted_size = '1MB'");
    let words = "a word and another ".repeat(5_000);
    let bold = "<blockquote>".repeat(90) + &"some words<br>".repeat(20_000);
    for (kb, id, content, setting) in [
        ("chunks", "d.txt", words.as_str(), "kb.max_chunks_per_document"),
        ("quotes", "d.html", bold.as_str(), "kb.max_extracted_size"),
    ] {
        db.create_kb(kb, "hash", r#"{"size": 20, "overlap": 0}"#);
        db.put(kb, id, content);
        db.put_and_wait(kb, "short.txt", &texts::paragraph(1, 20));
        assert_sound(&mut db, kb, 1, 1);
        let (failed, error, state, attempts) = failure(&mut db, kb);
        assert_eq!((failed.as_str(), state.as_str(), attempts), (id, "54000", 1));
        assert!(error.contains(setting), "{error}");
    }
}

#[test]
fn an_overlap_of_nearly_size_that_is_stored_no_longer_multiplies_a_document() {
    let (_cluster, mut db) = crate::connected!();
    let refused = db.fault(
        r#"SELECT kb.create_knowledge_base('k', 'hash', chunking => '{"size": 200, "overlap": 199}')"#,
    );
    assert_eq!(refused.code, "22023");
    assert!(refused.text.contains("overlap: 199 must be at most 100, half of size 200"), "{}", refused.text);
    db.create_kb("k", "hash", r#"{"size": 200, "overlap": 100}"#);
    // In the form in which an earlier version stored it.
    for table in ["kb.knowledge_bases", "kb.builds"] {
        db.run(&format!(r#"UPDATE {table} SET chunking = chunking || '{{"overlap": 199}}'"#));
    }
    let text = "a word and another ".repeat(8_500);
    db.put_and_wait("k", "d.txt", &text);
    assert_sound(&mut db, "k", 1, 0);
    let made: i64 = db.one("SELECT sum(length(content)) FROM kb.chunks");
    assert!(made as usize <= text.len() * 22 / 10, "{made} characters of {}", text.len());
}

#[test]
fn kb_chunk_is_cancelled_in_the_middle_of_its_work() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SET kb.default_embedder = 'hash'");
    // Without a cancellation each fails in another way, and only at its end, so a late cancellation is
    // noticed.
    db.run("SET kb.max_extracted_size = '3MB'");
    for (strategy, content_type, unit) in [
        ("recursive", "text/plain", "a word, and another. "),
        ("fixed", "text/plain", "a word, and another. "),
        ("markdown", "text/markdown", "a word and *another*\n\n"),
        ("recursive", "text/html", "<p>a word, and another, and some more that say nothing</p>"),
    ] {
        let sql = format!(
            "SELECT count(*) FROM kb.chunk(repeat('{}', 2900000 / {}), '{{\"size\": 100, \"overlap\": 50, \"strategy\": \"{strategy}\"}}', content_type => '{content_type}')",
            unit.replace('\n', "' || chr(10) || '"),
            unit.len(),
        );
        assert_eq!(db.fault(&sql).code, "54000", "{strategy} {content_type}");
        db.run("SET statement_timeout = '20ms'");
        assert_eq!(db.fault(&sql).code, "57014", "{strategy} {content_type}");
        db.run("RESET statement_timeout");
        assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.chunk('one two')"), 1);
    }
}
