//! Evaluation sets, and measurements with them.

use crate::support::{Db, WHOLE, texts};
use serde_json::Value;

/// Documents d0 to d39, and a set in which the question about each document is its own text.
pub(crate) fn fill(db: &mut Db, kb: &str) {
    db.create_kb(kb, "hash", WHOLE);
    for i in 0..40 {
        db.put(kb, &format!("d{i}"), &texts::paragraph(i, 30));
    }
    db.wait(kb);
    db.run(&format!("SELECT kb.create_eval_set('{kb}', 's')"));
}

pub(crate) fn put(db: &mut Db, kb: &str, id: &str, question: &str, relevant: &str) {
    let sql = "SELECT kb.put_eval_question($1, 's', $2, $3, $4::text::jsonb)::text";
    db.one_with::<String>(sql, &[&kb, &id, &question, &relevant]);
}

/// recall, precision, mrr, ndcg and hit_rate.
fn measures(db: &mut Db, kb: &str, options: &str) -> Vec<f64> {
    let sql = "SELECT unnest(ARRAY[recall, precision, mrr, ndcg, hit_rate])
               FROM kb.evaluate($1, 's', ARRAY[$2::text::jsonb])";
    db.all_with(sql, &[&kb, &options])
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near =
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(is_near, "{found:?}, not {expected:?}");
}

#[test]
fn the_measures_are_those_of_the_rows_that_a_query_gives() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "k");
    // The first row is known: the text itself.
    put(&mut db, "k", "q1", &texts::paragraph(3, 30), r#"["d3"]"#);
    assert_near(&measures(&mut db, "k", "{}"), &[1.0, 0.1, 1.0, 1.0, 1.0]);
    assert_near(&measures(&mut db, "k", r#"{"k": 1}"#), &[1.0, 1.0, 1.0, 1.0, 1.0]);
    // Another question, with judgements of the second and third row, and of a document that does not exist.
    let question = texts::paragraph(7, 30);
    let found = db.found("k", &question, 3);
    let relevant = format!(
        r#"[{{"external_id": "{}", "grade": 1}}, {{"external_id": "{}", "grade": 3}}, {{"external_id": "none", "grade": 2}},
            {{"external_id": "{}", "grade": 0}}]"#,
        found[1], found[2], found[0]
    );
    put(&mut db, "k", "q2", &question, &relevant);
    let dcg =
        |grades: &[f64]| (0..).zip(grades).map(|(i, grade)| grade / f64::from(i + 2_i32).log2()).sum::<f64>();
    let ndcg = dcg(&[0.0, 1.0, 3.0]) / dcg(&[3.0, 2.0, 1.0]);
    let mean = |a: f64, b: f64| (a + b) / 2.0;
    assert_near(
        &measures(&mut db, "k", r#"{"k": 3}"#),
        &[mean(1.0, 2.0 / 3.0), mean(1.0 / 3.0, 2.0 / 3.0), mean(1.0, 0.5), mean(1.0, ndcg), 1.0],
    );
    // Sets of options side by side, in their order, with the options that all share.
    let rows = db
        .0
        .query(
            "SELECT options::text, k, questions, unanswered, ann_recall, p50_ms, p95_ms FROM kb.evaluate('k', 's',
                 ARRAY['{\"k\": 2}', '{\"mode\": \"keyword\"}', '{\"mode\": \"hybrid\"}']::jsonb[])",
            &[],
        )
        .unwrap();
    let options: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(options, ["{\"k\": 2}", "{\"mode\": \"keyword\"}", "{\"mode\": \"hybrid\"}"]);
    assert_eq!(rows.iter().map(|row| row.get(1)).collect::<Vec<i32>>(), [2, 10, 10]);
    let recalls: Vec<Option<f64>> = rows.iter().map(|row| row.get(4)).collect();
    assert_eq!(recalls, [Some(1.0), None, Some(1.0)]);
    for row in &rows {
        assert_eq!((row.get::<_, i64>(2), row.get::<_, i64>(3)), (2, 0));
        assert!(row.get::<_, f64>(5) > 0.0 && row.get::<_, f64>(5) <= row.get::<_, f64>(6));
    }
    // A question that no document passes, and one whose words occur nowhere.
    db.run(r#"SELECT kb.put_eval_question('k', 's', 'q3', 'harbor', '["d1"]', '{"lang": "none"}')"#);
    put(&mut db, "k", "q4", "xyzzy", "[]");
    let unanswered =
        "SELECT unanswered FROM kb.evaluate('k', 's', ARRAY['{}', '{\"mode\": \"keyword\"}']::jsonb[])";
    assert_eq!(db.all::<i64>(unanswered), [1, 2]);
    assert_near(&measures(&mut db, "k", "{}")[4..], &[0.5]);
    assert!(db.one::<bool>(
        "SELECT kb.delete_eval_question('k', 's', 'q4') AND NOT kb.delete_eval_question('k', 's', 'q4')"
    ));
}

#[test]
fn a_document_counts_once_and_k_is_of_documents_but_of_rows_where_parts_are_judged() {
    let (_cluster, mut db) = crate::with_kb!("hash", r#"{"size": 12, "overlap": 0}"#);
    // All chunks of one document have the words of the question, so more chunks are requested, until the
    // other document appears.
    let words = |i: i32| format!("Harbor ships sail number{i} and harbor ships rest in place{i}. ");
    db.put("k", "long", &(0..60).map(words).collect::<String>());
    db.put_and_wait("k", "short", "Far away there is a quiet harbor.");
    assert!(db.count("kb.chunks") > 30);
    db.run("SELECT kb.create_eval_set('k', 's')");
    put(&mut db, "k", "q", "harbor ships", r#"["short"]"#);
    assert!(db.found("k", "harbor ships", 10).iter().all(|id| id == "long"));
    assert_near(&measures(&mut db, "k", r#"{"k": 2}"#), &[1.0, 0.5, 0.5, 1.0 / 3f64.log2(), 1.0]);
    // The same holds if the chunks of one document are joined to one row.
    for around in [r#"{"k": 2, "neighbors": 1}"#, r#"{"k": 2, "section": true}"#] {
        assert_near(&measures(&mut db, "k", around), &[1.0, 0.5, 0.5, 1.0 / 3f64.log2(), 1.0]);
    }
    // With top_k the answer has this many rows.
    assert_near(&measures(&mut db, "k", r#"{"k": 2, "top_k": 10}"#), &[0.0; 5]);
    // The judgement is about a part of the long text: only chunks that overlap it count.
    let start: i32 =
        db.one("SELECT position('number41' in content) - 1 FROM kb.documents WHERE external_id = 'long'");
    let part = format!(r#"[{{"external_id": "long", "start": {start}, "end": {}, "grade": 2}}]"#, start + 8);
    put(&mut db, "k", "q", "number41", &part);
    assert_near(&measures(&mut db, "k", r#"{"k": 1, "mode": "keyword"}"#), &[1.0; 5]);
    put(&mut db, "k", "q", "number10", &part);
    assert_near(&measures(&mut db, "k", r#"{"k": 1, "mode": "keyword", "top_k": 1}"#), &[0.0; 5]);
    // A passage counts as all of its text.
    let passage = r#"{"k": 1, "mode": "keyword", "top_k": 1, "neighbors": 100}"#;
    assert_near(&measures(&mut db, "k", passage), &[1.0; 5]);
    // The best chunk of each document covers another part, so more chunks would find more; k rows are
    // examined.
    for n in 0..4 {
        let note = |i: i32| format!("Harbor note {n} with page{i} on ships in place{i}. ");
        db.put("k", &format!("note{n}"), &(0..20).map(note).collect::<String>());
    }
    db.wait("k");
    let sql = "SELECT external_id, start_char, end_char FROM (SELECT d.external_id, c.start_char, c.end_char, q.rank
         FROM kb.query('k', 'harbor ships note', 8) q JOIN kb.chunks c USING (chunk_id) JOIN kb.documents d USING (document_id)) s
         ORDER BY rank";
    let rows = db.0.query(sql, &[]).unwrap();
    let judged: Vec<Value> = rows
        .iter()
        .map(|row| {
            let (id, start, end): (String, i32, i32) = (row.get(0), row.get(1), row.get(2));
            serde_json::json!({"external_id": id, "start": start, "end": end})
        })
        .collect();
    assert_eq!(judged.len(), 8);
    put(&mut db, "k", "q", "harbor ships note", &Value::Array(judged).to_string());
    for k in [1, 3, 8] {
        let found = measures(&mut db, "k", &format!(r#"{{"k": {k}}}"#));
        assert_near(&found, &[f64::from(k) / 8.0, 1.0, 1.0, 1.0, 1.0]);
    }
}

#[test]
fn a_set_in_beirs_format_is_loaded_completely_or_not_at_all() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "k");
    let queries: String = (0..30)
        .map(|i| {
            serde_json::json!({"_id": format!("q{i}"), "text": texts::paragraph(i, 30), "metadata": {}})
                .to_string()
                + "\n"
        })
        .collect();
    let qrels = |n: usize| {
        "query-id\tcorpus-id\tscore\n".to_string()
            + &(0..n).map(|i| format!("q{i}\td{i}\t2\nq{i}\td{}\t0\n", i + 1)).collect::<String>()
    };
    let sql = "SELECT kb.load_eval('k', 'beir', $1, $2)";
    assert_eq!(db.one_with::<i64>(sql, &[&queries, &qrels(20)]), 20);
    assert_eq!(db.one_with::<i64>(sql, &[&queries, &qrels(25)]), 25);
    assert_eq!(db.count("kb.eval_questions"), 25);
    let (mrr, questions) = (
        db.one::<f64>("SELECT mrr FROM kb.evaluate('k', 'beir')"),
        db.one::<i64>("SELECT questions FROM kb.evaluate('k', 'beir')"),
    );
    assert!((mrr - 1.0).abs() < 1e-9 && questions == 25, "{mrr} of {questions}");
    let wrong = db.0.query(sql, &[&queries, &"q1\td1\t1\nq99\td1\t1"]).unwrap_err();
    let wrong = wrong.as_db_error().unwrap();
    assert_eq!(wrong.code().code(), "22023");
    assert_eq!(wrong.detail(), Some("qrels, line 2: query-id \"q99\" is not in queries"));
    assert_eq!(db.count("kb.eval_questions"), 25);
    // A thousand times as much takes at most about a thousand times as long.
    let many: String =
        (0..20_000).map(|i| format!("{{\"_id\": \"{i}\", \"text\": \"question {i}\"}}\n")).collect();
    let judged: String = (0..20_000).map(|i| format!("{i}\td{}\t1\n", i % 40)).collect();
    assert_eq!(db.one_with::<i64>("SELECT kb.load_eval('k', 'many', $1, $2)", &[&many, &judged]), 20_000);
    db.run("SELECT kb.drop_eval_set('k', 'many'); SELECT kb.drop_knowledge_base('k')");
    assert_eq!(db.count("kb.eval_sets") + db.count("kb.eval_questions"), 0);
}

#[test]
fn sets_are_their_tenants_and_readers_only_measure() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    db.run("SET kb.tenant = 'a'");
    fill(&mut db, "k");
    put(&mut db, "k", "q", &texts::paragraph(3, 30), r#"["d3"]"#);
    let mut reader = cluster.connect_as_tenant("reader", "a");
    assert_near(&measures(&mut reader, "k", "{}")[..1], &[1.0]);
    reader.refused("SELECT kb.tune('k', 's')", "42501");
    reader.refused("DELETE FROM kb.eval_questions", "42501");
    for tenant in ["b", ""] {
        reader.run(&format!("SET kb.tenant = '{tenant}'"));
        assert_eq!(reader.count("kb.eval_sets") + reader.count("kb.eval_questions"), 0);
        reader.refused("SELECT * FROM kb.evaluate('k', 's')", "42704");
    }
    // A shared knowledge base can be queried, but the owner's questions stay with the owner.
    db.run("SELECT kb.share('k', 'b')");
    reader.run("SET kb.tenant = 'b'");
    let fault = reader.fault("SELECT * FROM kb.evaluate('k', 's')");
    assert_eq!(fault.message, "evaluation set \"s\" does not exist");
    assert_eq!(reader.count("kb.eval_sets") + reader.count("kb.eval_questions"), 0);
    db.run("SET kb.tenant = 'b'");
    for write in [
        "create_eval_set('k', 't')",
        "drop_eval_set('k', 's')",
        "measure_recall('k')",
        "tune('k', 's', true)",
    ] {
        db.refused(&format!("SELECT kb.{write}"), "42501");
    }
}

#[test]
fn tuning_finds_the_better_mode_and_changes_nothing_by_chance() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "k");
    // Only full text search finds this: feature hashing knows no stems.
    let word =
        |i: u64| format!("{}{}nek", char::from(b'a' + (i / 20) as u8), char::from(b'a' + (i % 20) as u8));
    for i in 0..40 {
        db.put("k", &format!("w{i}"), &format!("{} {}s", texts::paragraph(100 + i, 40), word(i)));
    }
    db.wait("k");
    for i in 0..40 {
        let question = format!("which of them has {}?", word(i));
        put(&mut db, "k", &format!("q{i}"), &question, &format!(r#"["w{i}"]"#));
    }
    let tune = |apply| format!("SELECT options::text FROM kb.tune('k', 's', {apply}) WHERE proposed");
    let proposed: String = db.one(&tune(false));
    let retrieval = |db: &mut Db| -> Value {
        serde_json::from_str(&db.one::<String>("SELECT retrieval::text FROM kb.knowledge_bases")).unwrap()
    };
    let before = retrieval(&mut db);
    assert_eq!(before["mode"], "dense");
    assert_eq!(proposed, r#"{"mode": "keyword"}"#);
    assert_eq!(db.one::<String>(&tune(true)), proposed);
    assert_ne!(retrieval(&mut db)["mode"], "dense");
    // These are now the present settings, and none is better.
    let rows: Vec<bool> = db.all("SELECT present FROM kb.tune('k', 's') WHERE proposed");
    assert_eq!(rows, [true]);
    // A few questions are not enough for a proposal.
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{}')");
    for i in 5..40 {
        db.run(&format!("SELECT kb.delete_eval_question('k', 's', 'q{i}')"));
    }
    assert_eq!(db.all::<bool>("SELECT present FROM kb.tune('k', 's', true) WHERE proposed"), [true]);
    assert_eq!(retrieval(&mut db), before);
}

#[test]
fn tuning_proposes_hybrid_if_each_leg_finds_what_the_other_misses_and_applies_it() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "k");
    // Questions that use another ending are found only by words, because of their stems; questions with words
    // that every text has are found only by meaning.
    let word =
        |i: u64| format!("{}{}nek", char::from(b'a' + (i / 20) as u8), char::from(b'a' + (i % 20) as u8));
    let stop_words =
        ["themselves", "ourselves", "yourselves", "himself", "herself", "itself", "myself", "yourself"];
    let mut pairs =
        (0..8).flat_map(|a| (a + 1..8).map(move |b| format!("{} {}", stop_words[a], stop_words[b])));
    for i in 0..20 {
        db.put("k", &format!("w{i}"), &format!("{} {}s", texts::paragraph(100 + i, 40), word(i)));
        put(&mut db, "k", &format!("w{i}"), &format!("which has {}?", word(i)), &format!(r#"["w{i}"]"#));
        let pair = pairs.next().unwrap();
        db.put("k", &format!("s{i}"), &format!("{pair} s{i}"));
        put(&mut db, "k", &format!("s{i}"), &pair, &format!(r#"["s{i}"]"#));
    }
    db.wait("k");
    let tune = |apply| format!("SELECT options::text FROM kb.tune('k', 's', {apply}) WHERE proposed");
    let proposed: Value = serde_json::from_str(&db.one::<String>(&tune(true))).unwrap();
    assert_eq!(proposed["mode"], "hybrid", "{proposed}");
    let retrieval: String = db.one("SELECT retrieval::text FROM kb.knowledge_bases");
    let retrieval: Value = serde_json::from_str(&retrieval).unwrap();
    assert_eq!(retrieval["mode"], "hybrid");
    for (key, value) in proposed["hybrid"].as_object().unwrap() {
        assert_eq!(&retrieval["hybrid"][key], value, "{key}: {retrieval}");
    }
    assert_eq!(db.all::<bool>("SELECT present FROM kb.tune('k', 's') WHERE proposed"), [true]);
}

#[test]
fn the_recall_of_an_index_is_measured_and_reported_by_health() {
    let (_cluster, mut db) = crate::connected!();
    db.run(r#"SELECT kb.create_vector_db('v', dimension => 384, config => '{"m": 8, "ef_construction": 16, "min_rows": 500}')"#);
    db.run(r#"SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{"strategy": "none"}')"#);
    let ids: Vec<String> = (0..3000).map(|i| format!("d{i}")).collect();
    let contents: Vec<String> = (0..3000).map(|i| texts::paragraph(i, 12)).collect();
    db.all_with::<String>(
        "SELECT status FROM kb.put_documents('k', (SELECT array_agg(jsonb_build_object('external_id', i, 'content', c,
             'metadata', CASE WHEN length(i) % 2 = 0 THEN '{\"half\": 1}'::jsonb ELSE '{}' END))
             FROM unnest($1::text[], $2::text[]) u (i, c)))",
        &[&ids, &contents],
    );
    db.wait("k");
    crate::support::until(crate::support::LONG, "the index is built", || {
        db.one::<bool>("SELECT indexed FROM kb.status WHERE kb_id = 'k'")
    });
    let status = |db: &mut Db| db.one::<String>("SELECT status FROM kb.health() WHERE component = 'recall'");
    assert_eq!(status(&mut db), "ok");
    let measured = |db: &mut Db| {
        let row = db.0.query_one("SELECT * FROM kb.measure_recall('k', 50)", &[]).unwrap();
        (row.get::<_, f64>(0), row.get::<_, i64>(1), row.get::<_, Option<i32>>(2))
    };
    // A poor graph, searched with little effort.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": 1}')"#);
    let (low, sample, ef_search) = measured(&mut db);
    assert!(low < 0.9 && sample == 50, "{low} of {sample}");
    assert_eq!(ef_search, Some(22));
    assert_eq!(status(&mut db), "warning");
    assert_eq!(db.one::<f64>("SELECT recall FROM kb.index_recall"), low);
    db.run("SELECT kb.create_eval_set('k', 's')");
    for i in 0..10 {
        put(&mut db, "k", &format!("q{i}"), &texts::paragraph(20_000 + i, 8), r#"["d1"]"#);
    }
    let found = |db: &mut Db, options: &str| -> f64 {
        db.one(&format!("SELECT ann_recall FROM kb.evaluate('k', 's', ARRAY['{options}']::jsonb[])"))
    };
    let (little, more) = (found(&mut db, "{}"), found(&mut db, r#"{"ef_search": 1000}"#));
    assert!(little < 1.0 && little < more, "{little}, {more}");
    // The smallest value that finds enough, and queries use it.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    let (recall, _, ef_search) = measured(&mut db);
    assert!(recall > low, "{recall}");
    let used = |db: &mut Db| -> i32 {
        db.one("SELECT (kb.explain('k', 'ships in the harbor', 5) #>> '{dense,scans,0,ef_search}')::int")
    };
    assert_eq!(Some(used(&mut db)), ef_search);
    assert_eq!(
        db.one::<Option<i64>>("SELECT ef_search FROM kb.builds WHERE state = 'live'"),
        ef_search.map(i64::from)
    );
    assert_eq!(status(&mut db), if recall < 0.9 { "warning" } else { "ok" });
    // By logged questions: first there are none, then each counts once, with its filter.
    let by_log = |db: &mut Db| {
        let row = db.0.query_one("SELECT * FROM kb.measure_recall('k', 50, 'log')", &[]).unwrap();
        (row.get::<_, f64>(0), row.get::<_, i64>(1))
    };
    assert_eq!(by_log(&mut db), (1.0, 0));
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": 1, "log": 1}')"#);
    for i in 0..30 {
        db.run(&format!("SELECT count(*) FROM kb.query('k', '{}')", texts::paragraph(10_000 + i % 15, 8)));
    }
    db.run(r#"SELECT count(*) FROM kb.query('k', 'a filtered question', filter => '{"no": "such"}')"#);
    db.run("SELECT count(*) FROM kb.query('k', 'words only', mode => 'keyword')");
    crate::support::until(crate::support::SOON, "they are logged", || db.count("kb.query_log") == 32);
    let (low, sample) = by_log(&mut db);
    assert!(sample == 15 && low < 0.97, "{low} of {sample}");
    // A filter that an exact scan serves says nothing about the index, and one that the index serves requires
    // more of it.
    for filter in [r#"{"no": "such"}"#, r#"{"type": "exists", "key": "half"}"#] {
        db.run(&format!(
            "SELECT count(*) FROM kb.query('k', 'filtered {}', filter => '{filter}')",
            filter.len()
        ));
    }
    crate::support::until(crate::support::SOON, "they are logged", || db.count("kb.query_log") == 34);
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    for _ in 0..5 {
        // In another order each time.
        let row = db.0.query_one("SELECT * FROM kb.measure_recall('k', 50, 'log')", &[]).unwrap();
        let (recall, sample, chosen) =
            (row.get::<_, f64>(0), row.get::<_, i64>(1), row.get::<_, Option<i32>>(2));
        assert_eq!(sample, 16);
        assert!(chosen.is_some_and(|chosen| [40, 80, 160, 320, 640, 1000].contains(&chosen)), "{chosen:?}");
        assert_eq!(Some(used(&mut db)), chosen);
        assert_eq!(db.one::<f64>("SELECT recall FROM kb.index_recall"), recall);
    }
    db.refused("SELECT kb.measure_recall('k', 50, 'guess')", "22023");
}
