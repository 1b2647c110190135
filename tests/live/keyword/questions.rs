//! Questions that were written for readers, not for a search engine, with the quotation marks and dashes of
//! prose and lists.

use crate::support::Db;

/// 200 words, some of which are quoted and some of which follow a dash.
fn prose() -> String {
    let rest = "some people wrote about that at length without any need, ".repeat(20);
    format!(
        "During the \"training\" phase of \"our own\" wooden boats -as we heard- the oars broke:\n- harbor\n- oars\n{rest}"
    )
}

fn create(db: &mut Db) {
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash');
         SELECT count(*) FROM kb.put_documents('k', ARRAY[
             '{\"external_id\": \"oars\", \"content\": \"The oars of wooden boats are kept in the harbor.\"}',
             '{\"external_id\": \"joins\", \"content\": \"Hash joins build a table of the smaller input.\"}',
             '{\"external_id\": \"loops\", \"content\": \"A nested loop joins every row with a hash.\"}']::jsonb[])",
    );
    db.wait("k");
}

/// The ids of the rows, the best first.
fn ids(db: &mut Db, question: &str, mode: &str, options: &str) -> Vec<String> {
    let sql =
        "SELECT external_id FROM kb.query('k', $1, 9, mode => $2, options => $3::text::jsonb) ORDER BY rank";
    db.all_with(sql, &[&question, &mode, &options])
}

/// The rows that words found.
fn by_words(db: &mut Db, question: &str, options: &str) -> Vec<String> {
    let sql = "SELECT external_id FROM kb.query('k', $1, 9, mode => 'hybrid', options => $2::text::jsonb || '{\"explain\": true}')
               WHERE locator #> '{ranks,keyword,rank}' IS NOT NULL ORDER BY 1";
    db.all_with(sql, &[&question, &options])
}

#[test]
fn quotes_and_dashes_in_prose_require_and_exclude_nothing_in_mode_hybrid() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db);
    let prose = prose();
    assert!(prose.split_whitespace().count() >= 200);
    assert_eq!(by_words(&mut db, &prose, "{}"), ["oars"]);
    assert_eq!(by_words(&mut db, &prose, r#"{"syntax": "web"}"#), [""; 0]);
    assert_eq!(by_words(&mut db, "-harbor oars", "{}"), ["oars"]);
    assert_eq!(by_words(&mut db, "\"hash joins\"", r#"{"syntax": "web"}"#), ["joins"]);
    assert_eq!(by_words(&mut db, "\"hash joins\"", "{}"), ["joins", "loops"]);
    for mode in ["hybrid", "keyword"] {
        let context: String =
            db.one_with("SELECT context FROM kb.context('k', $1, mode => $2)", &[&prose, &mode]);
        assert!(context.contains("kept in the harbor"), "{mode}: {context}");
    }
    // The settings of the knowledge base apply where a call specifies nothing.
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{\"syntax\": \"web\"}')");
    assert_eq!(by_words(&mut db, &prose, "{}"), [""; 0]);
    assert_eq!(by_words(&mut db, &prose, r#"{"syntax": "plain"}"#), ["oars"]);
    let fault = db.fault("SELECT kb.query('k', 'x', options => '{\"syntax\": \"lucene\"}')");
    assert!(fault.code == "22023" && fault.text.contains("plain, web"), "{fault:?}");
}

#[test]
fn mode_keyword_does_not_require_a_phrase_that_no_chunk_has() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db);
    let mut found = |question: &str, options: &str| -> (Vec<String>, i64) {
        let marked = db.one_with(
            "SELECT count(*) FROM kb.query('k', $1, mode => 'keyword', options => $2::text::jsonb)
             WHERE locator ->> 'phrase_status' LIKE 'no chunk contains the quoted words%'",
            &[&question, &options],
        );
        (ids(&mut db, question, "keyword", options), marked)
    };
    assert_eq!(found(&prose(), "{}"), (vec!["oars".to_string()], 1));
    assert_eq!(found("\"hash joins\"", "{}"), (vec!["joins".to_string()], 0));
    let (rows, marked) = found("\"joins hash\"", "{}");
    assert_eq!((rows.len(), marked), (2, 2), "{rows:?}");
    // Exclusions still apply.
    assert_eq!(found("\"joins hash\" -nested", "{}"), (vec!["joins".to_string()], 1));
    assert_eq!(found("joins -hash", "{}"), (vec![], 0));
    assert_eq!(found("\"no such\"", "{}"), (vec![], 0));
    let (rows, marked) = found("\"hash joins\" -nested", r#"{"syntax": "plain"}"#);
    assert_eq!((rows.len(), marked), (2, 0), "{rows:?}");
    let text: String =
        db.one("SELECT kb.explain('k', '\"joins hash\"', mode => 'keyword', external_id => 'loops')::text");
    let explanation: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(explanation["settings"]["syntax"], "web without phrases", "{explanation}");
    assert!(explanation["asked_about"]["chunks"][0]["rank"].is_number(), "{explanation}");
}
