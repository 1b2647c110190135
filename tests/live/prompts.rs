//! Answers as one text for a prompt within a number of tokens, and answers of several knowledge bases in one
//! order.

use crate::support::{Db, WHOLE, texts};
use serde_json::Value;

#[test]
fn a_context_cuts_its_best_passage_rather_than_be_empty_and_names_what_is_in_it() {
    let (_cluster, mut db) = crate::with_kb!("minilm", WHOLE);
    // About 180 tokens, under a long address and title.
    let uri = format!("https://example.org/{}", texts::paragraph(9, 40).replace([' ', '.'], "-"));
    let title = texts::paragraph(8, 40);
    db.0.execute(
        "SELECT kb.put_document('k', 'long', $1, '{\"team\": \"hr\", \"n\": 12345678901234567890.5}', uri => $2, title => $3)",
        &[&texts::paragraph(1, 130), &uri, &title],
    )
    .unwrap();
    db.put_and_wait("k", "short", "A short note on something else.");
    let size: i32 = db.one("SELECT max(token_count) FROM kb.chunks");
    assert!((140..230).contains(&size), "{size}");
    let question = texts::paragraph(1, 20);
    let mut ask = |most: i32, format: &str| {
        let sql = "SELECT context, tokens, truncated, blocks::text, chunk_ids::text[] FROM kb.context('k', $1, $2, $3)";
        let row = db.0.query_one(sql, &[&question, &most, &format]).unwrap();
        let blocks: Value = serde_json::from_str(&row.get::<_, String>(3)).unwrap();
        let text: String = row.get(0);
        let counted: i32 = db.one_with("SELECT kb.count_tokens($1, 'minilm')", &[&text]);
        assert_eq!(counted, row.get::<_, i32>(1), "{text}");
        assert!(counted <= most, "{most}: {counted}");
        (text, counted, row.get::<_, bool>(2), blocks, row.get::<_, Vec<String>>(4))
    };
    for format in ["markdown", "xml", "json"] {
        // Less than the chunk alone has: its beginning.
        let (text, tokens, is_truncated, blocks, _) = ask(size - 60, format);
        assert!(is_truncated && blocks[0]["truncated"] == true && text.contains("truncated"), "{text}");
        assert!(text.contains(&texts::paragraph(1, 130)[..40]) && tokens > size - 70, "{tokens} of {size}");
        // Enough for the chunk under a short header, and then for more.
        let (text, _, is_truncated, blocks, _) = ask(size + 110, format);
        assert!(
            !is_truncated && text.contains(&texts::paragraph(1, 130)) && !text.contains("https"),
            "{text}"
        );
        assert_eq!(blocks[0]["external_id"], "long");
        let (text, _, _, blocks, chunk_ids) = ask(2000, format);
        assert!(
            text.contains("https")
                && blocks[0]["uri"] == uri.as_str()
                && blocks[0]["title"] == title.as_str()
        );
        assert!(blocks[0]["metadata"]["team"] == "hr" && blocks[0]["score"].as_f64().unwrap() > 0.5);
        assert_eq!((blocks[0]["index"].as_i64(), blocks[0]["kb_id"].as_str()), (Some(1), Some("k")));
        assert!(blocks[0]["chunk_ids"][0] == chunk_ids[0].as_str() && chunk_ids.len() == 2, "{blocks}");
    }
    // One call before kb.annotate, and metadata as it was written.
    let quote = &texts::paragraph(1, 30);
    let quoted: i64 = db.one_with(
        "SELECT count(*) FROM kb.context('k', $1) c, jsonb_array_elements(kb.annotate('So it is: ' || $1, c.chunk_ids)) a
         WHERE a ->> 'file_id' = 'long'",
        &[quote],
    );
    assert_eq!(quoted, 1);
    let exact: bool = db.one_with(
        "SELECT blocks -> 0 -> 'metadata' ->> 'n' = '12345678901234567890.5' FROM kb.context('k', $1, top_k => 1)",
        &[quote],
    );
    assert!(exact);
    // A row that does not fit makes room for later ones.
    let fitting: Vec<String> =
        db.all_with("SELECT external_id FROM kb.query('k', $1, max_tokens => 100)", &[quote]);
    assert_eq!(fitting, ["short"]);
}

/// A handbook and tickets, in two knowledge bases with one embedder.
fn handbook_and_tickets(db: &mut Db) {
    let create = "SELECT kb.create_knowledge_base($1, 'minilm')::text";
    for (kb, documents) in [
        (
            "handbook",
            [
                ("leave", "Employees have thirty days of paid annual leave each year."),
                ("sick", "Sick leave is reported to the manager before nine in the morning."),
                ("unpaid", "Unpaid leave of absence is granted by the management for up to a year."),
            ],
        ),
        (
            "tickets",
            [
                ("t1", "Ticket: the printer on the second floor jams and prints stripes."),
                ("t2", "Ticket: the toner of the copier has been empty for days."),
                ("t3", "Ticket: the projector in the meeting room shows no picture."),
            ],
        ),
    ] {
        db.one_with::<String>(create, &[&kb]);
        for (id, text) in &documents {
            db.put(kb, id, text);
        }
        db.wait(kb);
    }
}

#[test]
fn better_rows_are_first_in_every_mode_if_the_fingerprint_is_the_same() {
    let (_cluster, mut db) = crate::connected!();
    handbook_and_tickets(&mut db);
    let question = "How many days of annual leave do employees have?";
    let order = |db: &mut Db, more: &str| -> Vec<String> {
        let sql = format!(
            "SELECT external_id FROM kb.query(ARRAY['tickets', 'handbook'], $1, 6{more}) ORDER BY rank"
        );
        db.all_with(&sql, &[&question])
    };
    for mode in ["dense", "keyword", "hybrid"] {
        let found = order(&mut db, &format!(", -1, mode => '{mode}'"));
        let ticket = found.iter().position(|id| id.starts_with('t')).unwrap_or(found.len());
        let pages = found.iter().filter(|id| !id.starts_with('t')).count();
        // By words alone, a ticket that has one of the rarer words is behind the page that has nearly all.
        let before = if mode == "keyword" { 1 } else { pages };
        assert!(found[0] == "leave" && pages >= 2 && ticket >= before, "{mode}: {found:?}");
    }
    // By similarity rank_score is score.
    let sql = "SELECT bool_and(rank_score = score AND rank_score <= before) FROM (
         SELECT rank_score, score, lag(rank_score, 1, 9) OVER (ORDER BY rank) AS before
         FROM kb.query(ARRAY['tickets', 'handbook'], $1, 6)) s";
    assert!(db.one_with::<bool>(sql, &[&question]));
    // A weight for one of them.
    let weighted = order(&mut db, ", -1, weights => '{1000, 1}'");
    assert!(weighted[0].starts_with('t'), "{weighted:?}");
    // Each has its own least score, unless the call gives one.
    db.run(r#"SELECT kb.alter_knowledge_base('tickets', retrieval => '{"min_score": 0.9}')"#);
    assert_eq!(order(&mut db, "").iter().filter(|id| id.starts_with('t')).count(), 0);
    assert!(order(&mut db, "").len() == 3 && order(&mut db, ", -1").len() == 6);
    // One is searched by words, the other by meaning, so they are joined by rank.
    db.run(r#"SELECT kb.alter_knowledge_base('tickets', retrieval => '{"mode": "keyword"}')"#);
    let ranks: Vec<f64> =
        db.all_with("SELECT rank_score FROM kb.query(ARRAY['tickets', 'handbook'], $1, 2)", &[&question]);
    assert_eq!(ranks, [1.0 / 61.0, 1.0 / 61.0]);
    for (weights, code) in
        [("'{1}'", "22023"), ("'{1, 0}'", "22023"), ("'{1, NULL}'", "22023"), ("'{1, NaN}'", "22023")]
    {
        db.refused(
            &format!("SELECT * FROM kb.query('{{tickets,handbook}}'::text[], 'x', weights => {weights})"),
            code,
        );
    }
    // The same rows as one text, whose blocks name their knowledge bases.
    let sql = "SELECT b ->> 'kb_id' || ' ' || (b ->> 'external_id') FROM kb.context(ARRAY['tickets', 'handbook'], $1, 400,
         top_k => 4, mode => 'dense') c, jsonb_array_elements(c.blocks) b ORDER BY (b ->> 'index')::int";
    let blocks: Vec<String> = db.all_with(sql, &[&question]);
    assert_eq!(blocks.len(), 4);
    assert_eq!(blocks[0], "handbook leave");
    let tokens: i32 = db.one_with(
        "SELECT tokens FROM kb.context('{tickets,handbook}'::text[], $1, 60, mode => 'dense')",
        &[&question],
    );
    assert!((30..=60).contains(&tokens), "{tokens}");
}
