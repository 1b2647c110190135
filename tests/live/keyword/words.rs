//! What a question in words may contain: phrases, exclusions, languages, anything.

use super::{answer, assert_same, create, question, text};
use crate::keyword::model::Model;
use crate::support::random::Rng;
use crate::support::{Db, Document, SOON, texts, until};

fn ids(db: &mut Db, question: &str) -> Vec<String> {
    let mut ids: Vec<String> = answer(db, "k", question, 50, "{}").into_iter().map(|(id, _)| id).collect();
    ids.sort();
    ids
}

#[test]
fn quoted_phrases_and_exclusions_are_honoured_before_and_after_folding() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_knowledge_base('k', 'hash', retrieval => '{\"mode\": \"keyword\"}')");
    for (id, text) in [
        ("joins", "Hash joins build a table of the smaller input."),
        ("loops", "A nested loop joins every row; a hash of the row is not needed."),
        ("plans", "The planner joins tables by hash, merge or nested loops."),
        ("other", "Vacuum reclaims the storage of dead rows."),
    ] {
        db.put("k", id, text);
    }
    db.wait("k");
    for folded in [false, true] {
        assert_eq!(ids(&mut db, "hash join"), ["joins", "loops", "plans"]);
        assert_eq!(ids(&mut db, "\"hash joins\""), ["joins"]);
        // No chunk has the phrase, so its words find the answer.
        assert_eq!(ids(&mut db, "\"joining hash\" dead"), ["joins", "loops", "other", "plans"]);
        assert_eq!(ids(&mut db, "join -nested"), ["joins"]);
        assert_eq!(ids(&mut db, "rows -\"nested loop\""), ["other"]);
        assert_eq!(ids(&mut db, "rows -\"loop nested\""), ["loops", "other"]);
        assert_eq!(ids(&mut db, "\"nested loop\" planner -vacuum"), ["loops", "plans"]);
        // Stop words only, no words at all, and words that occur nowhere.
        for nothing in ["the of a", "?!", "-hash", "\"\"", "zebra", "-\"hash joins\""] {
            assert_eq!(ids(&mut db, nothing), [""; 0], "{nothing}");
        }
        if !folded {
            for n in 0..300 {
                db.put("k", &format!("p{n}"), &format!("Chapter {n}: {}", texts::paragraph(n, 5)));
            }
            db.wait("k");
            until(SOON, "chunks are folded", || db.count("kb.bm25_segments") > 0);
            db.run(
                "SELECT kb.delete_by_filter('k', '{\"type\": \"nin\", \"key\": \"$external_id\",
                        \"value\": [\"joins\", \"loops\", \"plans\", \"other\"]}')",
            );
        }
    }
}

#[test]
fn any_text_may_be_asked_for_and_any_may_be_put() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let long = "x".repeat(3_000);
    let many = "again ".repeat(50_000);
    let different = (0..60_000).map(|n| format!("n{n}")).collect::<Vec<_>>().join(" ");
    for (id, text) in [
        ("signs", "\u{1F600} \u{0301} ' \" \\ %s \u{200B} -- /* */ $1 {{}}"),
        ("long", &format!("{long} before {} after", "y".repeat(2_000))),
        ("many", &format!("{many} rare")),
        ("different", &different),
    ] {
        db.put("k", id, text);
    }
    db.wait("k");
    let first = |db: &mut Db, question: &str| answer(db, "k", question, 1, "{}").pop().map(|(id, _)| id);
    assert_eq!(first(&mut db, "after").as_deref(), Some("long"));
    assert_eq!(first(&mut db, "rare").as_deref(), Some("many"));
    assert_eq!(first(&mut db, "n59999").as_deref(), Some("different"));
    for question in ["'", "\"", "\\", "-", "a & b | !c", "n1:*", "<->", "\u{0}1", &"\"".repeat(999), &long] {
        let question = question.replace('\u{0}', "");
        answer(&mut db, "k", &question, 5, "{}");
    }
    let excluded: String = (0..1_025).map(|n| format!(" -n{n}")).collect();
    let fault = db.0.query("SELECT kb.query('k', $1)", &[&format!("rare{excluded}")]).unwrap_err();
    let message = fault.as_db_error().map(|error| error.message().to_string()).unwrap_or_default();
    assert!(message.contains("excludes 1025 different words; at most 1024"), "{message}");
    let fault = db.fault("SELECT kb.query('k', '  ', mode => 'keyword')");
    assert_eq!(fault.code, "22023", "{fault:?}");
    for options in [
        r#"{"bm25": {"k1": -1}}"#,
        r#"{"bm25": {"b": 1.5}}"#,
        r#"{"bm25": {"k": 1}}"#,
        r#"{"hybrid": {"weights": {"dense": "NaN"}}}"#,
        r#"{"hybrid": {"weights": {"dense": 0, "keyword": 0}}}"#,
        r#"{"hybrid": {"fusion": "sum"}}"#,
        r#"{"mode": "fast"}"#,
    ] {
        let fault = db.refused(&format!("SELECT kb.query('k', 'x', options => '{options}')"), "22023");
        assert!(!options.contains("NaN") || fault.text.contains("weights.dense"), "{fault:?}");
    }
}

#[test]
fn other_constants_of_bm25_give_the_scores_of_the_plain_model_with_them() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let (mut random, mut model) = (Rng::with_seed(13), Model::default());
    let mut documents = Vec::new();
    for n in 0..700 {
        let id = format!("d{n}");
        let text = text(&mut random, &id);
        model.0.insert(id.clone(), text.clone());
        documents.push(Document::new(id, text));
    }
    db.put_all_and_wait("k", &documents);
    until(SOON, "chunks are folded", || db.count("kb.bm25_segments") > 0);
    for ((k1, b), is_own) in
        [((0.0, 0.0), false), ((0.4, 1.0), true), ((2.5, 0.3), false), ((2.5, 0.3), true)]
    {
        let mut options = format!(r#"{{"mode": "keyword", "bm25": {{"k1": {k1}, "b": {b}}}}}"#);
        // As settings of the knowledge base they apply where a call specifies nothing.
        if is_own {
            db.run(&format!("SELECT kb.alter_knowledge_base('k', retrieval => '{options}')"));
            options = "{}".into();
        }
        for top_k in [3, 20, 1_000] {
            let question = question(&mut random);
            let sql = "SELECT external_id, rank_score FROM kb.query('k', $1, $2, options => $3::text::jsonb) ORDER BY rank";
            let rows = db.0.query(sql, &[&question, &top_k, &options]).unwrap();
            let found: Vec<(String, f64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            let what = format!("{question} {options}");
            assert_same(&found, &model.ask(&question, (k1, b), |_| true), top_k as usize, &what);
        }
    }
}

#[test]
fn weights_of_a_knowledge_base_fuse_its_answers_and_a_call_changes_one_of_them() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let mut random = Rng::with_seed(19);
    let documents = Document::numbered(0..150, |n| text(&mut random, &format!("d{n}")));
    db.put_all_and_wait("k", &documents);
    let ranks = |db: &mut Db, options: &str| -> Vec<(f64, Option<i64>, Option<i64>)> {
        let sql = "SELECT rank_score, (locator #>> '{ranks,dense,rank}')::bigint, (locator #>> '{ranks,keyword,rank}')::bigint
                   FROM kb.query('k', 'w5x1 w50x3', 40, options => $1::text::jsonb || '{\"explain\": true}') ORDER BY rank";
        let rows = db.0.query(sql, &[&options]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    };
    let assert_fused = |rows: &[(f64, Option<i64>, Option<i64>)], (dense, keyword, k): (f64, f64, f64)| {
        assert_eq!(rows.len(), 40);
        for (score, by_meaning, by_words) in rows {
            let share = |weight: f64, rank: &Option<i64>| rank.map_or(0.0, |rank| weight / (k + rank as f64));
            let sum = share(dense, by_meaning) + share(keyword, by_words);
            assert!((score - sum).abs() < 1e-12, "{score}, not {sum}");
        }
        assert!(rows.is_sorted_by(|a, b| a.0 >= b.0), "{rows:?}");
    };
    let own = r#"{"mode": "hybrid", "hybrid": {"k": 7, "weights": {"dense": 0.02, "keyword": 3}}}"#;
    db.run(&format!("SELECT kb.alter_knowledge_base('k', retrieval => '{own}')"));
    let by_own = ranks(&mut db, "{}");
    assert_fused(&by_own, (0.02, 3.0, 7.0));
    // By words first, and the best of these.
    assert!(
        by_own.iter().take(10).zip(1..).all(|(row, rank)| row.2.is_some_and(|own| own <= rank)),
        "{by_own:?}"
    );
    let changed = ranks(&mut db, r#"{"hybrid": {"weights": {"dense": 50}}}"#);
    assert_fused(&changed, (50.0, 3.0, 7.0));
    assert_eq!(changed[0].1, Some(1), "{changed:?}");
    assert_fused(&ranks(&mut db, "{}"), (0.02, 3.0, 7.0));
}

#[test]
fn words_are_those_of_the_knowledge_bases_language() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', preprocess => '{\"language\": \"german\"}',
             retrieval => '{\"mode\": \"keyword\"}')",
    );
    db.put("k", "haus", "Das alte Haus steht am Hafen.");
    db.put_and_wait("k", "boot", "Ein Boot liegt im Wasser.");
    // Stems and stop words of German.
    assert_eq!(ids(&mut db, "Häuser"), ["haus"]);
    assert_eq!(ids(&mut db, "die Boote"), ["boot"]);
    assert_eq!(ids(&mut db, "das ein im"), [""; 0]);
}

#[test]
fn both_sides_of_hybrid_obey_filter_flag_and_bounds_and_say_their_ranks() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_knowledge_base('k', 'hash', retrieval => '{\"mode\": \"hybrid\"}')");
    for n in 0..40 {
        let metadata = format!("{{\"n\": {n}}}");
        let text = format!("Note {n} on apples. {}", texts::paragraph(n, 12));
        db.run(&format!("SELECT kb.put_document('k', 'd{n}', $x${text}$x$, '{metadata}')"));
    }
    db.wait("k");
    db.run("UPDATE kb.chunks SET enabled = false WHERE content LIKE 'Note 7 %'");
    let sql = |what: &str, more: &str| {
        format!(
            "SELECT {what} FROM kb.query('k', 'apples note 7 8', 10, options => '{{\"explain\": true}}' {more})"
        )
    };
    let found: Vec<String> = db.all(&sql("external_id", ""));
    assert_eq!((found.len(), found.contains(&"d7".to_string())), (10, false), "{found:?}");
    assert!(db.one::<bool>(&sql(
        "bool_and(locator ? 'ranks' AND locator->'ranks' ? 'keyword' AND score IS NOT NULL)",
        ""
    )));
    let ranked: Vec<f64> = db.all(&sql("rank_score", ""));
    // Deviations above the means of both sides.
    assert!(ranked.is_sorted_by(|a, b| a >= b) && (1.0..7.0).contains(&ranked[0]), "{ranked:?}");
    let kept: Vec<String> =
        db.all(&sql("external_id", ", filter => '{\"type\": \"lt\", \"key\": \"n\", \"value\": 4}'"));
    assert_eq!(kept.len(), 4);
    let least: f64 = db.one(&sql("min(score)", ", min_score => 0.2"));
    assert!(least >= 0.2);
    // Words only, because the weight of meaning is 0; the similarity is returned all the same.
    let words = "'{\"hybrid\": {\"weights\": {\"dense\": 0}}}'";
    let by_words: Vec<String> =
        db.all("SELECT external_id FROM kb.query('k', 'apples note 7 8', 3, mode => 'keyword')");
    let hybrid: Vec<String> =
        db.all(&format!("SELECT external_id FROM kb.query('k', 'apples note 7 8', 3, options => {words})"));
    assert_eq!(hybrid[0], by_words[0]);
    // Fused by scores, a single side keeps its order.
    for (alpha, mode, score) in [(0, "keyword", "rank_score"), (1, "dense", "score")] {
        let of_one: Vec<f64> = db.all(&format!(
            "SELECT {score} FROM kb.query('k', 'apples note 7 8', 10, mode => '{mode}') ORDER BY rank"
        ));
        let fused: Vec<f64> = db.all(&format!(
            "SELECT (locator #>> '{{ranks,{mode},score}}')::float8 FROM kb.query('k', 'apples note 7 8', 10, options =>
                 '{{\"hybrid\": {{\"fusion\": \"score\", \"alpha\": {alpha}}}, \"explain\": true}}') ORDER BY rank"
        ));
        let are_same = of_one.iter().zip(&fused).all(|(one, fused)| (one - fused).abs() < 1e-6);
        assert!(of_one.len() == 10 && fused.len() == 10 && are_same, "{alpha}: {of_one:?}, {fused:?}");
    }
}

#[test]
fn a_question_with_too_many_words_is_answered_by_its_first_words_and_says_so() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    db.put("k", "first", "a text with n7");
    db.put("k", "last", "a text with n59999");
    // Of 1,100 pairs of signs.
    let han: String = (0..1_101).map(|n| char::from_u32(0x4e00 + n * 7).unwrap()).collect();
    let signs: Vec<char> = han.chars().collect();
    db.put("k", "first pair", &signs[..2].iter().collect::<String>());
    db.put_and_wait("k", "last pair", &signs[1_099..].iter().collect::<String>());
    let numbers = (0..60_000).map(|n| format!("n{n}")).collect::<Vec<_>>().join(" ");
    // A required word is searched for wherever it is in the question.
    let required = format!("{numbers} \"n59999\"");
    for (question, mode, ids, left_out) in [
        (&numbers, "keyword", &["first"][..], 58_976),
        (&numbers, "hybrid", &["first"], 58_976),
        (&required, "keyword", &["last"], 58_976),
        (&han, "keyword", &["first pair"], 76),
    ] {
        let found: Vec<String> = db.all_with(
            "SELECT external_id || ' ' || (locator ->> 'words_status') FROM kb.query('k', $1, 9, mode => $2, options => '{\"explain\": true}')
             WHERE locator #> '{ranks,keyword}' IS NOT NULL",
            &[question, &mode],
        );
        let status = format!("{left_out} distinct words at the end of the question were ignored");
        assert_eq!(found, ids.iter().map(|id| format!("{id} {status}")).collect::<Vec<_>>(), "{mode}");
        let told: i64 = db.one_with(
            "SELECT (kb.explain('k', $1, mode => $2) #>> '{keyword,words_left_out}')::bigint",
            &[question, &mode],
        );
        assert_eq!(told, left_out, "{mode}");
    }
    assert_eq!(db.count("kb.query('k', 'n7 text', mode => 'keyword') WHERE locator ? 'words_status'"), 0);
}
