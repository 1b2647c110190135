//! Questions that a chat model rewords: what they find, and for whom.

use super::{QUESTION, ask, fill, ids, scores};
use crate::stub::{Fault, Options, Stub};
use crate::support::{Db, WHOLE};
use serde_json::{Value, json};

fn create_talker(db: &mut Db, stub: &Stub) {
    db.run(&format!(
        "SELECT kb.create_llm('talker', 'openai', base_url => '{}', config => '{{\"retry\": {{\"max_attempts\": 1}}}}')",
        stub.base_url("chat_openai")
    ));
}

#[test]
fn rewording_finds_what_the_question_does_not_and_its_failure_keeps_the_answer() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db);
    create_talker(&mut db, &stub);
    db.put_and_wait("k", "bread", "bread flour oven bakery");
    let plain = ask(&mut db, "{}");
    assert!(!ids(&plain).contains(&"bread".to_string()));
    assert_eq!(stub.request_count(), 0, "no chat model is asked where nobody wants that");
    let plain = scores(&plain);
    let ask_both = |db: &mut Db, options: &str| -> Vec<(String, Option<String>, Option<f64>)> {
        let rows = db.0.query(
            "SELECT external_id, locator ->> 'transform_status', score FROM kb.query('k', $1, 3, options => $2::text::jsonb)",
            &[&QUESTION, &options],
        );
        let rows = rows.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        // The score is the similarity to the original question.
        assert!(rows.iter().all(|row: &(String, Option<String>, Option<f64>)| row.2.is_some()));
        rows
    };
    stub.say(Some(r#"{"questions": ["bread flour oven", "bakery bread"]}"#));
    let many = r#"{"transform": {"llm": "talker", "multi_query": 2}}"#;
    // Hybrid answers contain every document by meaning, and some more than those about the rewordings.
    for (mode, rows) in [("dense", 3), ("hybrid", 8), ("keyword", 3)] {
        let options = format!(r#"{{"mode": "{mode}", "transform": {{"llm": "talker", "multi_query": 2}}}}"#);
        let found: Vec<String> = db.all_with(
            "SELECT external_id FROM kb.query('k', $1, $3, options => $2::text::jsonb)",
            &[&QUESTION, &options, &rows],
        );
        assert!(found.contains(&"bread".to_string()) && found.len() == rows as usize, "{mode}: {found:?}");
    }
    stub.say(Some("bread flour oven bakery"));
    let found = ask_both(&mut db, r#"{"transform": {"llm": "talker", "hyde": true}}"#);
    assert!(found.iter().any(|row| row.0 == "bread" && row.1.is_none()), "{found:?}");
    // What the question itself finds is there, too.
    assert!(found.iter().any(|row| row.0 != "bread" && plain.contains(&row.2)), "{found:?}");
    // Nonsense, a fault: the question alone.
    for (words, fault) in [("nonsense", None), ("{}", Some(Fault::Status(500)))] {
        stub.say(Some(words));
        stub.always(fault);
        let found = ask_both(&mut db, many);
        assert_eq!(found.iter().map(|row| row.2).collect::<Vec<_>>(), plain);
        assert!(
            found.iter().all(|row| row.1.as_deref().is_some_and(|why| why.starts_with("llm \"talker\": ")))
        );
    }
    assert_eq!(stub.complaints(), [] as [String; 0]);
    db.run(&format!("SELECT kb.alter_knowledge_base('k', retrieval => '{many}')"));
    db.refused("SELECT kb.drop_llm('talker')", "2BP01");
    db.refused(r#"SELECT * FROM kb.query('k', 'x', options => '{"transform": {"llm": "none"}}')"#, "42704");
}

#[test]
fn rewording_finds_only_what_passes_the_filter_and_the_caller_may_read() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE notes (id text PRIMARY KEY, tenant text, body text);
         CREATE ROLE reader LOGIN IN ROLE kb_reader; SET kb.tenant = 'shared'",
    );
    db.create_kb("k", "hash", WHOLE);
    db.run(
        "SELECT kb.attach_table('k', 'notes', content => 'body', tenant => 'tenant');
         INSERT INTO notes SELECT 'd' || n, 'a', 'harbor harbor old ' || n FROM generate_series(1, 9) n;
         INSERT INTO notes VALUES ('bread', 'a', 'bread flour oven bakery'), ('cake', 'a', 'bread flour oven sugar'),
             ('theirs', 'b', 'bread flour oven bakery of others')",
    );
    db.wait("k");
    create_talker(&mut db, &stub);
    let mut reader = cluster.connect_as_tenant("reader", "a");
    let found = |db: &mut Db, options: &str, filter: &str| -> Vec<String> {
        let sql = "SELECT external_id FROM kb.query('k', $1, 20, min_score => -1, filter => $2::text::jsonb,
                       options => $3::text::jsonb) ORDER BY 1";
        db.all_with(sql, &[&QUESTION, &filter, &options])
    };
    let in_words = ("{\"questions\": [\"bread flour oven bakery\"]}", r#""multi_query": 1"#);
    let as_passage = ("bread flour oven bakery", r#""hyde": true"#);
    for (mode, (says, transform)) in
        [("dense", in_words), ("hybrid", in_words), ("keyword", in_words), ("dense", as_passage)]
    {
        stub.say(Some(says));
        let options = format!(r#"{{"mode": "{mode}", "transform": {{"llm": "talker", {transform}}}}}"#);
        let all = found(&mut reader, &options, "{}");
        assert!(["bread", "cake", "d1"].iter().all(|id| all.contains(&id.to_string())), "{mode}: {all:?}");
        assert!(!all.contains(&"theirs".to_string()), "{mode}: {all:?}");
        let kept = found(&mut reader, &options, r#"{"$external_id": "cake"}"#);
        assert_eq!(kept, ["cake"], "{mode} {transform}");
        assert_eq!(found(&mut reader, &options, r#"{"$external_id": "theirs"}"#), [""; 0], "{mode}");
        let explained: String = reader.one_with(
            "SELECT kb.explain('k', $1, 20, external_id => 'theirs', options => $2::text::jsonb)::text",
            &[&QUESTION, &options],
        );
        let explained: Value = serde_json::from_str(&explained).unwrap();
        let (questions, passage) = match transform.contains("hyde") {
            true => (json!([]), json!(says)),
            false => (json!(["bread flour oven bakery"]), json!(null)),
        };
        let told = &explained["transform"];
        assert_eq!((&told["questions"], &told["passage"]), (&questions, &passage), "{mode}: {explained}");
        // A document of others is treated as if it did not exist.
        let why = explained["asked_about"]["why"].as_str().unwrap_or_default();
        assert!(
            why.contains("no document with this external_id that the caller may read"),
            "{mode}: {explained}"
        );
        assert!(!explained.to_string().contains("of others"), "{mode}: {explained}");
    }
    // Its owner finds it in the same way.
    reader.run("SET kb.tenant = 'b'");
    let options = r#"{"transform": {"llm": "talker", "hyde": true}}"#;
    assert_eq!(found(&mut reader, options, "{}"), ["theirs"]);
    assert_eq!(stub.complaints(), [] as [String; 0]);
}
