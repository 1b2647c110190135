//! Settings side by side: for each question, and tuned for the number of rows that are asked for.

use super::evaluate::{fill, put};
use crate::support::texts;

#[test]
fn settings_are_compared_question_by_question_and_tuned_as_far_as_is_asked() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "k");
    put(&mut db, "k", "q1", &texts::paragraph(3, 30), r#"["d3"]"#);
    let question = texts::paragraph(7, 30);
    let found = db.found("k", &question, 2);
    put(&mut db, "k", "q2", &question, &format!(r#"["{}"]"#, found[1]));
    let sets = r#"ARRAY['{"k": 1}', '{"k": 2}', '{"k": 2, "mode": "keyword", "min_score": 5}']::jsonb[]"#;
    let rows: Vec<String> = db.all(&format!(
        "SELECT concat_ws(' ', option_set, options->'k', k, question_id, recall, reciprocal_rank, hit, answered, ms > 0)
         FROM kb.evaluate_questions('k', 's', {sets}) WHERE option_set < 3"
    ));
    assert_eq!(
        rows,
        ["1 1 1 q1 1 1 t t t", "1 1 1 q2 0 0 f t t", "2 2 2 q1 1 1 t t t", "2 2 2 q2 1 0.5 t t t"]
    );
    // Their means are what kb.evaluate says.
    let same: bool = db.one(&format!(
        "SELECT bool_and(abs(e.ndcg - q.ndcg) < 1e-9 AND abs(e.recall - q.recall) < 1e-9 AND e.questions = q.questions
                         AND abs(e.precision - q.precision) < 1e-9 AND abs(e.mrr - q.mrr) < 1e-9)
         FROM (SELECT e.*, row_number() OVER () AS option_set FROM kb.evaluate('k', 's', {sets}) e) e
         JOIN (SELECT option_set, avg(ndcg) AS ndcg, avg(recall) AS recall, avg(precision) AS precision,
                      avg(reciprocal_rank) AS mrr, count(*) AS questions
               FROM kb.evaluate_questions('k', 's', {sets}) GROUP BY 1) q USING (option_set)"
    ));
    assert!(same);
    let knowledge_base = "SELECT k, recall FROM kb.tune('k', 's', k => 1, top_k => 1) WHERE present";
    let row = db.0.query_one(knowledge_base, &[]).unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, f64>(1)), (1, 0.5));
    let further: f64 = db.one("SELECT recall FROM kb.tune('k', 's', k => 2) WHERE present");
    assert_eq!(further, 1.0);
    let options: Vec<String> = db.all("SELECT options::text FROM kb.tune('k', 's', k => 2)");
    assert!(
        options.iter().any(|options| options.contains("z_score"))
            && options.iter().all(|o| !o.contains("top_k"))
    );
    for wrong in ["k => 0", "k => 1001", "top_k => 0", "top_k => 10001"] {
        db.refused(&format!("SELECT kb.tune('k', 's', {wrong})"), "22023");
    }
}
