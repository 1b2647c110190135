//! Rerankers that kb computes itself: their scores, and the reason that is given when they fail.

use crate::support::{Cluster, Db, Document, SOON, WHOLE, cross_encoder, until};
use kb_inference::CrossEncoder;
use kb_types::reranker::{Reranker, RerankerConfig};
use std::path::PathBuf;

/// Reranker "cross", whose model is in the directory that is returned.
fn create_cross_encoder(cluster: &Cluster, db: &mut Db) -> PathBuf {
    let models = cluster.path("models");
    cross_encoder::write(&models.join("cross"));
    let setting = format!("kb.model_dir = '{}'", models.display());
    cluster.configure(&[setting.as_str()]);
    cluster.reload();
    until(SOON, "the session looks for models there", || {
        db.one::<String>("SHOW kb.model_dir") == models.display().to_string()
    });
    db.run("SELECT kb.create_reranker('cross', 'local', 'cross')");
    until(SOON, "the gateway looks for models there", || db.one("SELECT ok FROM kb.check_reranker('cross')"));
    models
}

#[test]
fn a_local_cross_encoder_orders_an_answer_by_the_scores_that_it_computes() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    for (first, second) in cross_encoder::WORDS.iter().zip(cross_encoder::WORDS.iter().rev()) {
        db.put("k", first, &format!("{first} {second} one {first}"));
    }
    db.wait("k");
    let models = create_cross_encoder(&cluster, &mut db);
    let rows = db.0.query(
        "SELECT content, rank_score, locator ->> 'rerank_status' FROM kb.query('k', 'alpha beta', 8, min_score => -1,
             options => '{\"rerank\": {\"reranker\": \"cross\"}}') ORDER BY rank",
        &[],
    );
    let rows = rows.unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let scores: Vec<f64> = rows.iter().map(|row| row.get(1)).collect();
    assert!(rows.iter().all(|row| row.get::<_, Option<String>>(2).is_none()), "{rows:?}");
    let reranker = Reranker {
        id: "cross".into(),
        provider: "local".into(),
        model: "cross".into(),
        base_url: None,
        config: RerankerConfig::default(),
    };
    let model = CrossEncoder::load(&reranker, &models).unwrap();
    let expected = model.scores("cross", "alpha beta", &texts, &|| ()).unwrap();
    assert_eq!(texts.len(), 8);
    let are_same = scores.iter().zip(&expected).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-4);
    assert!(are_same, "{scores:?}, not {expected:?}");
    assert!(scores.is_sorted_by(|a, b| a >= b) && scores[0] > scores[7], "{scores:?}");
}

#[test]
fn a_local_reranker_without_model_or_time_keeps_the_order_and_every_row_says_why() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    // There are so many long texts that no machine reads them in a millisecond.
    let text = |n: usize| {
        let words = cross_encoder::WORDS;
        format!("alpha {} {} n{n} {}", words[n % 8], words[n / 8 % 8], "beta gamma delta ".repeat(40))
    };
    let documents = Document::numbered(0..600, text);
    db.put_all_and_wait("k", &documents);
    let models = create_cross_encoder(&cluster, &mut db);
    let ask = |db: &mut Db, rerank: &str| -> (Vec<Option<f64>>, Vec<Option<String>>) {
        let sql =
            "SELECT score, rank_score, locator ->> 'rerank_status' FROM kb.query('k', 'alpha beta', 200,
                       options => $1::text::jsonb) ORDER BY rank";
        let rows = db.0.query(sql, &[&format!(r#"{{"rerank": {rerank}}}"#)]).unwrap();
        assert_eq!(rows.len(), 200, "{rerank}");
        let scores: Vec<Option<f64>> = rows.iter().map(|row| row.get(0)).collect();
        let told: Vec<Option<String>> = rows.iter().map(|row| row.get(2)).collect();
        if told.iter().any(Option::is_some) {
            let rank_scores: Vec<Option<f64>> = rows.iter().map(|row| row.get(1)).collect();
            assert_eq!(rank_scores, scores, "the order is that of the similarity");
        }
        (scores, told)
    };
    let (plain, told) = ask(&mut db, "null");
    assert!(told.iter().all(Option::is_none), "{:?}", told[0]);
    let is_told = |told: &[Option<String>], words: &str| {
        told.iter().all(|why| why.as_deref().is_some_and(|why| why.contains(words)))
    };
    let (scores, told) = ask(&mut db, r#"{"reranker": "cross", "timeout_ms": 1}"#);
    assert!(scores == plain && is_told(&told, "within 1 ms"), "{:?}", told[0]);
    // Its directory is removed after it was created, before anybody has asked it.
    cross_encoder::write(&models.join("gone"));
    db.run("SELECT kb.create_reranker('gone', 'local', 'gone')");
    std::fs::remove_dir_all(models.join("gone")).unwrap();
    let (scores, told) = ask(&mut db, r#"{"reranker": "gone"}"#);
    assert!(scores == plain && is_told(&told, "\"gone\""), "{:?}", told[0]);
    let problem: Option<String> = db.one("SELECT problem FROM kb.check_reranker('gone')");
    assert!(problem.as_deref().is_some_and(|problem| problem.contains("\"gone\"")), "{problem:?}");
    // When the directory is back, it is used; the other reranker was used all the while.
    cross_encoder::write(&models.join("gone"));
    for reranker in ["gone", "cross"] {
        let (scores, told) = ask(&mut db, &format!(r#"{{"reranker": "{reranker}"}}"#));
        assert!(told.iter().all(Option::is_none) && scores != plain, "{reranker}: {:?}", told[0]);
    }
}
