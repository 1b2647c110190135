//! Answers by words: BM25 over segments, against a plain model.

mod forms;
mod kills;
mod lexemes;
mod model;
mod phrases;
mod questions;
mod reach;
mod segments;
mod words;

use crate::support::random::Rng;
use crate::support::{APP, Db, Document, PENDING_CHUNKS, SOON, until};
use model::{Model, Scored};

/// Words of texts: a few are common, most are rare.
fn word(random: &mut Rng) -> String {
    let range = [5, 50, 2_000][random.usize(..3)];
    format!("w{range}x{}", random.usize(..range))
}

fn text(random: &mut Rng, id: &str) -> String {
    let words: Vec<String> = (0..3 + random.usize(..30)).map(|_| word(random)).collect();
    // Equal texts would be returned once.
    format!("{} only{id}", words.join(" "))
}

fn question(random: &mut Rng) -> String {
    let words: Vec<String> = (0..1 + random.usize(..5)).map(|_| word(random)).collect();
    words.join(" ")
}

fn create(db: &mut Db, kb: &str) {
    db.run(&format!(
        "SELECT kb.create_knowledge_base('{kb}', 'hash', preprocess => '{{\"language\": \"simple\"}}',
             retrieval => '{{\"mode\": \"keyword\"}}')"
    ));
}

/// Ids and scores of an answer.
fn answer(db: &mut Db, kb: &str, question: &str, top_k: usize, filter: &str) -> Vec<(String, f64)> {
    let sql =
        "SELECT external_id, rank_score FROM kb.query($1, $2, $3, filter => $4::text::jsonb) ORDER BY rank";
    let rows = db.0.query(sql, &[&kb, &question, &(top_k as i32), &filter]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The answer has the scores of the model, in their order; of documents with equal scores any may come first.
fn compare(db: &mut Db, kb: &str, model: &Model, question: &str, top_k: usize) {
    compare_where(db, kb, model, question, top_k, "{}", |_| true);
}

fn compare_where(
    db: &mut Db,
    kb: &str,
    model: &Model,
    question: &str,
    top_k: usize,
    filter: &str,
    keeps: impl Fn(&str) -> bool,
) {
    let expected = model.ask(question, (1.2, 0.75), keeps);
    let found = answer(db, kb, question, top_k, filter);
    assert_same(&found, &expected, top_k, &format!("{question} {filter}"));
}

fn assert_same(found: &[(String, f64)], expected: &[Scored], top_k: usize, question: &str) {
    assert_eq!(found.len(), expected.len().min(top_k), "{question}");
    for ((id, score), expected_at) in found.iter().zip(expected) {
        assert!((score - expected_at.score).abs() < 1e-9, "{question}: {id} {score} {}", expected_at.score);
        let of_model = expected.iter().find(|scored| &scored.id == id);
        assert!(of_model.is_some_and(|scored| (scored.score - score).abs() < 1e-9), "{question}: {id}");
    }
}

/// The chunks and words that the statistics have, and those that exist.
fn statistics_are_true(db: &mut Db) {
    let (has, is): (i64, i64) = (
        db.one(
            "SELECT coalesce((SELECT sum(came - went) FROM kb.bm25_segments), 0)
                + (SELECT coalesce(sum(CASE WHEN terms IS NULL THEN cardinality(chunk_ids) ELSE -1 END), 0)
                   FROM kb.bm25_pending)",
        ),
        db.count("kb.chunks"),
    );
    assert_eq!(has, is);
}

/// Random edits, with their outcome.
fn edit(db: &mut Db, kb: &str, model: &mut Model, random: &mut Rng, gone: &mut Vec<(String, String)>) {
    let known: Vec<String> = model.0.keys().cloned().collect();
    match random.usize(..5) {
        // New documents, and new texts of some that exist.
        0..=2 => {
            let mut documents = Vec::new();
            for _ in 0..1 + random.usize(..400) {
                let id = match known.is_empty() || random.usize(..3) > 0 {
                    true => format!("d{}", random.usize(..100_000)),
                    false => random.choice(&known).unwrap().clone(),
                };
                if documents.iter().all(|document: &Document| document.id != id) {
                    let text = text(random, &id);
                    model.0.insert(id.clone(), text.clone());
                    documents.push(Document::new(id, text));
                }
            }
            db.put_all(kb, &documents);
        }
        3 if !known.is_empty() => {
            let ids: Vec<String> =
                (0..1 + random.usize(..200)).map(|_| random.choice(&known).unwrap().clone()).collect();
            db.0.execute("SELECT kb.delete_documents($1, $2)", &[&kb, &ids]).unwrap();
            for id in ids {
                gone.extend(model.0.remove(&id).map(|text| (id, text)));
            }
        }
        // Deleted documents return unchanged: their chunks have the ids that they had.
        _ => {
            let mut again = Vec::new();
            for _ in 0..gone.len().min(random.usize(..150)) {
                let (id, text) = gone.swap_remove(random.usize(..gone.len()));
                if !model.0.contains_key(&id) {
                    model.0.insert(id.clone(), text.clone());
                    again.push(Document::new(id, text));
                }
            }
            db.put_all(kb, &again);
        }
    }
    db.wait(kb);
}

#[test]
fn answers_by_words_are_those_of_a_plain_model_whatever_was_put_edited_and_deleted() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let seed = std::env::var("KB_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("KB_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let (mut model, mut gone) = (Model::default(), Vec::new());
    for _ in 0..25 {
        edit(&mut db, "k", &mut model, &mut random, &mut gone);
        statistics_are_true(&mut db);
        for _ in 0..6 {
            let (question, top_k) = (question(&mut random), 1 + random.usize(..40));
            compare(&mut db, "k", &model, &question, top_k);
        }
        // A deletion that is rolled back has no effect; meanwhile the document is gone.
        let known: Vec<String> = model.0.keys().take(60).cloned().collect();
        let question = question(&mut random);
        let mut without = model.clone();
        without.0.retain(|id, _| !known.contains(id));
        db.run("BEGIN");
        db.0.execute("SELECT kb.delete_documents('k', $1)", &[&known]).unwrap();
        compare(&mut db, "k", &without, &question, 10);
        db.run("ROLLBACK");
        compare(&mut db, "k", &model, &question, 10);
    }
    until(SOON, "chunks are folded", || db.count("kb.bm25_segments") > 0);
    compare(&mut db, "k", &model, "w5x0 w5x1 w50x3 w2000x7", 10_000);
    // All documents are gone, and no word is kept.
    db.run("SELECT kb.delete_by_filter('k', '{\"type\": \"exists\", \"key\": \"$external_id\"}')");
    assert_eq!(answer(&mut db, "k", "w5x0", 10, "{}"), []);
    db.put_and_wait("k", "last", "one more");
    until(SOON, "nothing is kept of deleted chunks", || {
        db.one("SELECT coalesce(sum(came + went), 0) <= 1 FROM kb.bm25_segments")
    });
    compare(&mut db, "k", &Model([("last".to_string(), "one more".to_string())].into()), "more", 10);
}

#[test]
fn nothing_is_left_of_the_words_of_a_knowledge_base_that_is_dropped_or_replaced() {
    let (cluster, mut db) = crate::connected!();
    let mut random = Rng::with_seed(5);
    for kb in ["small", "large"] {
        create(&mut db, kb);
        let count = if kb == "small" { 20 } else { 400 };
        let documents = Document::numbered(0..count, |n| text(&mut random, &format!("{kb}{n}")));
        db.put_all_and_wait(kb, &documents);
    }
    until(SOON, "chunks are folded", || db.count("kb.bm25_segments") > 0);
    db.run("SELECT kb.ingest('small', 'replace'); SELECT kb.ingest('large', 'replace')");
    db.run("SELECT kb.wait('small', 100); SELECT kb.wait('large', 100)");
    let of_old = "NOT EXISTS (SELECT FROM kb.builds b WHERE b.build_no = t.build_no AND b.state = 'live')";
    until(SOON, "nothing is left of the old builds", || {
        db.count("kb.builds") == 2
            && db.count(&format!("kb.bm25_pending t WHERE {of_old}")) == 0
            && db.count(&format!("kb.bm25_segments t WHERE {of_old}")) == 0
    });
    statistics_are_true(&mut db);
    db.run("SELECT kb.drop_knowledge_base('small'); SELECT kb.drop_knowledge_base('large')");
    for table in ["bm25_segments", "bm25_terms", "bm25_chunks"] {
        assert_eq!(db.count(&format!("kb.{table}")), 0, "{table}");
    }
    // A worker that starts looks at once.
    let worker = cluster.worker(APP);
    db.run(&format!("SELECT pg_terminate_backend({worker})"));
    until(SOON, "the worker has left", || cluster.processes("kb worker", Some(APP)) != [worker]);
    create(&mut db, "other");
    db.put_and_wait("other", "d", "one more");
    until(SOON, "nothing is left of those that waited", || db.count(PENDING_CHUNKS) <= 1);
}
