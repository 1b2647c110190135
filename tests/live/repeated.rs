//! Texts that repeat themselves: a question makes one scan, which continues if some rows are copies of
//! others, hidden or left out, and reads only the texts of its answer.

use crate::support::{APP, Cluster, Db, Document, LONG, WHOLE, texts, until, vector_table};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A thousand texts, of which one in fifty occurs in 2 to 40 documents, so that a third of the documents
/// repeat others; all name the harbor.
fn fixture() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_kb("k", "hash", WHOLE);
    let mut documents = Vec::new();
    for i in 0..1_000u64 {
        let copies = if i % 50 == 0 { 2 + i / 25 } else { 1 };
        for copy in 0..copies {
            let mut document =
                Document::new(format!("d{i}.{copy}"), format!("harbor {}", texts::paragraph(i, 25)));
            document.metadata = json!({"i": i});
            documents.push(document);
        }
    }
    for part in documents.chunks(1000) {
        db.put_all("k", part);
    }
    db.wait("k");
    until(LONG, "the index is there", || db.one("SELECT indexed FROM kb.status WHERE kb_id = 'k'"));
    Some((cluster, db))
}

fn question(i: u64) -> String {
    format!("harbor {}", texts::paragraph(i * 50, 8))
}

fn explained(db: &mut Db, question: &str, arguments: &str) -> Value {
    let sql = format!("SELECT kb.explain('k', $1, {arguments})::text");
    serde_json::from_str(&db.one_with::<String>(&sql, &[&question])).unwrap()
}

/// The number of rows of a question's answer, after asserting that no two have the same text.
fn distinct(db: &mut Db, question: &str, arguments: &str) -> i64 {
    let sql =
        format!("SELECT count(*) || ' ' || count(DISTINCT content) FROM kb.query('k', $1, {arguments})");
    let counts: String = db.one_with(&sql, &[&question]);
    let (rows, texts) = counts.split_once(' ').unwrap();
    assert_eq!(rows, texts, "{question}: {arguments}");
    rows.parse().unwrap()
}

#[test]
fn a_question_scans_once_by_meaning_and_by_words_and_reads_only_its_answers_texts() {
    let Some((_cluster, mut db)) = fixture() else { return };
    for i in 0..20 {
        for top_k in [10, 100] {
            let by_meaning = explained(&mut db, &question(i), &format!("{top_k}, -1"));
            let scans = by_meaning["dense"]["scans"].as_array().unwrap();
            assert_eq!((scans.len(), &scans[0]["scan"]), (1, &json!("index")), "{by_meaning}");
            let (given, found) = (scans[0]["given"].as_u64().unwrap(), scans[0]["found"].as_u64().unwrap());
            // The nearest are copies of one text.
            assert!(found >= top_k && found <= given && given < 3 * top_k + 100, "{by_meaning}");
            assert_eq!(by_meaning["hits"].as_array().unwrap().len() as u64, top_k);
            assert_eq!(by_meaning["rows"]["read"], top_k, "{by_meaning}");
        }
        let hybrid = explained(&mut db, &question(i), "10, -1, mode => 'hybrid'");
        // A hundred candidates of each leg are enough, whether they repeat themselves or not.
        let (scans, looks) = (&hybrid["dense"]["scans"], &hybrid["keyword"]["looks"]);
        assert_eq!((scans.as_array().unwrap().len(), looks.as_array().unwrap().len()), (1, 1), "{hybrid}");
        assert_eq!((&scans[0]["given"], &looks[0]["limit"]), (&json!(100), &json!(100)), "{hybrid}");
        assert_eq!(
            (&hybrid["rows"]["read"], distinct(&mut db, &question(i), "10, -1, mode => 'hybrid'")),
            (&json!(10), 10)
        );
        let by_words = explained(&mut db, &question(i), "10, mode => 'keyword'");
        assert_eq!(by_words["rows"]["read"], 10, "{by_words}");
    }
}

#[test]
fn an_answer_has_a_row_for_every_text_despite_duplicates() {
    let Some((_cluster, mut db)) = fixture() else { return };
    for mode in ["dense", "keyword", "hybrid"] {
        for (top_k, options) in [
            (10, "{}"),
            (100, "{}"),
            (1000, "{}"),
            (3, r#"{"per_document": 1}"#),
            (7, r#"{"collapse": 0.9}"#),
        ] {
            let arguments = format!("{top_k}, -1, mode => '{mode}', options => '{options}'");
            assert_eq!(distinct(&mut db, &question(5), &arguments), top_k, "{arguments}");
        }
    }
    // The hundred candidates of each leg are copies of one text.
    db.put_all_and_wait(
        "k",
        &(0..150).map(|i| Document::new(format!("same{i}"), "harbor lantern")).collect::<Vec<_>>(),
    );
    let arguments = "10, -1, mode => 'hybrid'";
    assert_eq!(distinct(&mut db, "harbor lantern", arguments), 10);
    // Diversification continues the scan that found too few.
    let diverse = explained(&mut db, "harbor lantern", r#"20, -1, options => '{"collapse": 0.9}'"#);
    let scans = diverse["dense"]["scans"].as_array().unwrap();
    assert!(scans.len() == 1 && scans[0]["given"].as_u64().unwrap() > 150, "{diverse}");
    assert_eq!(diverse["hits"].as_array().unwrap().len(), 20);
}

#[test]
fn a_scan_continues_past_rows_that_policies_hide() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.run(
        "CREATE ROLE reader LOGIN IN ROLE kb_reader;
         CREATE POLICY even ON kb.documents AS RESTRICTIVE FOR SELECT TO reader USING ((metadata ->> 'i')::int % 100 <> 0);
         CREATE POLICY even ON kb.chunks AS RESTRICTIVE FOR SELECT TO reader
             USING (document_id IN (SELECT document_id FROM kb.documents))",
    );
    let mut reader = cluster.connect_as(APP, "reader");
    for (mode, options) in
        [("dense", "{}"), ("keyword", "{}"), ("hybrid", "{}"), ("dense", r#"{"per_document": 1}"#)]
    {
        for top_k in [10, 100] {
            let arguments = format!("{top_k}, -1, mode => '{mode}', options => '{options}'");
            // The twenty or more nearest are hidden.
            for i in [10, 14, 18] {
                assert_eq!(distinct(&mut reader, &question(i), &arguments), top_k, "{arguments}");
            }
        }
    }
    let sql = "SELECT array_agg(external_id ORDER BY rank) FROM kb.query('k', $1, 30, -1)";
    let mut found = |question: &str| -> HashSet<String> {
        reader.one_with::<Vec<String>>(sql, &[&question]).into_iter().collect()
    };
    // A caller sees the nearest of what it may read.
    let table = vector_table(&mut db, "k");
    let (mut same, mut all) = (0, 0);
    for i in 0..10 {
        let exact: Vec<String> = db.all_with(
            &format!(
                "SELECT min(d.external_id) FROM kb.documents d JOIN kb.chunks c USING (document_id) JOIN {table} v USING (chunk_id),
                     kb.embed('hash', ARRAY[$1], 'query') e
                 WHERE (d.metadata ->> 'i')::int % 100 <> 0 GROUP BY c.content_hash
                 ORDER BY min(v.embedding <=> e::vector) LIMIT 30"
            ),
            &[&question(i)],
        );
        let texts = |ids: HashSet<String>| -> HashSet<String> {
            ids.iter().map(|id| id.split('.').next().unwrap().to_string()).collect()
        };
        let found = texts(found(&question(i)));
        let exact = texts(exact.into_iter().collect());
        same += exact.intersection(&found).count();
        all += exact.len();
    }
    assert!(same * 100 >= all * 95, "{same} of {all}");
}

#[test]
fn an_error_in_a_continued_scan_leaves_nothing_open() {
    let Some((_cluster, mut db)) = fixture() else { return };
    let table = vector_table(&mut db, "k");
    db.run(&format!(
        "CREATE SEQUENCE public.rows_seen;
         CREATE FUNCTION public.fails_at(most bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS
             $$BEGIN IF nextval('public.rows_seen') > most THEN RAISE 'too many rows'; END IF; RETURN true; END$$;
         CREATE POLICY fails ON {table} AS RESTRICTIVE FOR SELECT TO kb_vectors USING (public.fails_at(12));
         CREATE FUNCTION public.asked(question text) RETURNS text LANGUAGE plpgsql AS
             $$BEGIN PERFORM FROM kb.query('k', question, 10, -1); RETURN 'answered';
             EXCEPTION WHEN raise_exception THEN
                 RETURN current_user || ' ' || current_setting('hnsw.ef_search') || ' ' || current_setting('role') || ' '
                     || (SELECT count(*) FROM pg_cursors WHERE name <> '');
             END$$"
    ));
    db.run("SET hnsw.ef_search = 77");
    // The scan is opened, returns ten rows, and fails when it continues.
    assert_eq!(db.one_with::<String>("SELECT public.asked($1)", &[&question(5)]), "postgres 77 none 0");
    assert_eq!(
        db.one::<String>("SELECT current_user || ' ' || (SELECT count(*) FROM pg_cursors WHERE name <> '')"),
        "postgres 0"
    );
    db.run(&format!("DROP POLICY fails ON {table}"));
    assert_eq!(db.one_with::<String>("SELECT public.asked($1)", &[&question(5)]), "answered");
    assert_eq!(db.count("pg_cursors WHERE name <> ''"), 0);
}
