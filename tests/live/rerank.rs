//! kb.query with a reranker: the order is its, a failure leaves the answer as it was, and what it costs is booked.

use crate::stub::{Fault, Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, cross_encoder, until};
use kb::gateway::local::CrossEncoder;
use kb::model::{Reranker, RerankerConfig};

const QUESTION: &str = "where is the old harbor";

/// A knowledge base of twelve documents. The one that holds all words of the question is not among the nearest vectors
/// first.
fn fill(db: &mut Db) {
    db.create_kb("k", "hash", r#"{"strategy": "none"}"#);
    db.run("BEGIN");
    for i in 0..11 {
        db.put("k", &format!("d{i}"), &format!("harbor harbor old {i}"));
    }
    db.put(
        "k",
        "best",
        "Many other words come first, and then it says where is the old harbor of this town in the east.",
    );
    db.run("COMMIT");
    db.wait("k");
}

fn create_reranker(db: &mut Db, id: &str, provider: &str, stub: &Stub, config: &str) {
    db.run(&format!(
        r#"SELECT kb.create_reranker('{id}', '{provider}', 'model', '{}', config =>
            '{{"retry": {{"max_attempts": 1}}, "timeout_ms": 20000}}'::jsonb || '{config}')"#,
        stub.base_url(&format!("rerank_{provider}"))
    ));
}

fn ask(db: &mut Db, options: &str) -> Vec<(String, Option<f64>, Option<f64>, Option<String>)> {
    let rows = db.0.query(
        "SELECT external_id, score, rank_score, locator ->> 'rerank_status'
         FROM kb.query('k', $1, 3, options => $2::text::jsonb) ORDER BY rank",
        &[&QUESTION, &options],
    );
    rows.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

fn ids(answer: &[(String, Option<f64>, Option<f64>, Option<String>)]) -> Vec<String> {
    answer.iter().map(|row| row.0.clone()).collect()
}

fn cluster_with(stub: &Stub) -> Option<(Cluster, Db)> {
    let cluster = Cluster::start(&[])?;
    let mut db = cluster.connect(APP);
    fill(&mut db);
    for provider in ["cohere", "jina", "voyage", "tei"] {
        create_reranker(&mut db, provider, provider, stub, "{}");
    }
    Some((cluster, db))
}

#[test]
fn an_answer_is_in_the_rerankers_order_with_its_scores_and_the_similarity_stays() {
    let stub = Stub::start(Options::default());
    let Some((_cluster, mut db)) = cluster_with(&stub) else { return };
    let plain = ask(&mut db, "{}");
    assert_eq!((plain.len(), stub.request_count()), (3, 0));
    assert!(!ids(&plain).contains(&"best".to_string()), "{plain:?}");
    for reranker in ["cohere", "jina", "voyage", "tei"] {
        stub.forget();
        let options = format!(r#"{{"rerank": {{"reranker": "{reranker}", "retrieval_factor": 4}}}}"#);
        let reranked = ask(&mut db, &options);
        assert_eq!((reranked.len(), reranked[0].0.as_str()), (3, "best"), "{reranker}: {reranked:?}");
        assert!(reranked.iter().all(|row| row.3.is_none()));
        let scores: Vec<f64> = reranked.iter().map(|row| row.2.unwrap()).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b) && scores[0] > 0.9 * 0.99, "{scores:?}");
        // The score is the similarity of the vectors as before.
        assert!(reranked[0].1.unwrap() < plain[2].1.unwrap());
        assert_eq!(stub.requests()[0].texts.len(), 12, "four times the rows");
        assert_eq!(stub.complaints(), [] as [String; 0]);
    }
    // As a setting of the knowledge base, which a call switches off.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"rerank": {"reranker": "jina", "retrieval_factor": 4}}')"#);
    assert_eq!(ask(&mut db, "{}")[0].0, "best");
    assert_eq!(ask(&mut db, r#"{"mode": "keyword"}"#).len(), 3);
    let explained: String = db.one_with(
        "SELECT locator #>> '{ranks,rerank,rank}' FROM kb.query('k', $1, 1, options => '{\"explain\": true}')",
        &[&QUESTION],
    );
    assert_eq!(explained, "1");
    // What it put out of the answer is said to be its doing.
    let first = &ids(&plain)[0];
    let about: String = db.one_with(
        "SELECT kb.explain('k', $1, 1, external_id => $2) #>> '{asked_about,chunks,0,why}'",
        &[&QUESTION, first],
    );
    assert!(about.starts_with("the reranker put it at place"), "{about}");
    assert_eq!(ids(&ask(&mut db, r#"{"rerank": null}"#)), ids(&plain));
    let fault = db.fault("SELECT kb.drop_reranker('jina')");
    assert_eq!(fault.code, "2BP01", "{fault:?}");
}

#[test]
fn a_local_cross_encoder_orders_an_answer_by_the_scores_that_it_computes() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", r#"{"strategy": "none"}"#);
    for (first, second) in cross_encoder::WORDS.iter().zip(cross_encoder::WORDS.iter().rev()) {
        db.put("k", first, &format!("{first} {second} one {first}"));
    }
    db.wait("k");
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
fn when_reranking_fails_the_order_stays_and_every_row_says_why() {
    let stub = Stub::start(Options::default());
    let Some((_cluster, mut db)) = cluster_with(&stub) else { return };
    // Of equal similarities any may come first.
    let scores = |answer: &[(String, Option<f64>, Option<f64>, Option<String>)]| {
        answer.iter().map(|row| row.1).collect::<Vec<_>>()
    };
    let plain = scores(&ask(&mut db, "{}"));
    let options = r#"{"rerank": {"reranker": "cohere", "retrieval_factor": 4}}"#;
    for fault in [Fault::Status(500), Fault::Status(401), Fault::NaN, Fault::WrongCount, Fault::NotJson] {
        stub.script(fault.clone(), 1);
        let answer = ask(&mut db, options);
        assert_eq!(scores(&answer), plain, "{fault:?}");
        for row in &answer {
            let why = row.3.as_deref().unwrap_or_default();
            assert!(why.starts_with("reranker \"cohere\": "), "{fault:?}: {why}");
            assert_eq!(row.1, row.2, "the order is that of the similarity");
        }
    }
    // A reranker that hangs costs no more than the call allows.
    stub.always(Some(Fault::Never));
    let answer = ask(&mut db, r#"{"rerank": {"reranker": "tei", "retrieval_factor": 4, "timeout_ms": 300}}"#);
    assert_eq!(scores(&answer), plain);
    // Its own limit is 20 s.
    let why = answer[0].3.clone().unwrap_or_default();
    let millis =
        why.split("within ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|n| n.parse().ok());
    assert!(millis.is_some_and(|millis: u32| millis <= 300), "{why}");
    stub.always(None);
    // What is wrong with the call is its error, before anything is asked.
    let fault =
        db.fault(r#"SELECT * FROM kb.query('k', 'x', options => '{"rerank": {"reranker": "none"}}')"#);
    assert_eq!(fault.code, "42704", "{fault:?}");
    let fault =
        db.fault(r#"SELECT * FROM kb.query('k', 'x', options => '{"rerank": {"retrieval_factor": 2}}')"#);
    assert_eq!(fault.code, "22023", "{fault:?}");
    // A vector has no words.
    let why: String = db.one(
        r#"SELECT locator ->> 'rerank_status' FROM kb.query_vector('k', (SELECT kb.embed('hash', '{harbor}')), 1,
                options => '{"rerank": {"reranker": "tei"}}')"#,
    );
    assert!(why.contains("vector"), "{why}");
}

#[test]
fn what_reranking_costs_is_booked_for_the_tenant_who_asked() {
    let stub = Stub::start(Options::default());
    crate::stub::on_one_day();
    let Some((_cluster, mut db)) = cluster_with(&stub) else { return };
    db.run(&format!(
        "SELECT kb.create_llm('talker', 'openai', base_url => '{}', config => '{{\"price_per_million_tokens\": 1000000}}');
         SELECT kb.create_reranker('judge', 'llm', config => '{{\"llm\": \"talker\"}}')",
        stub.base_url("chat_openai")
    ));
    ask(&mut db, r#"{"rerank": {"reranker": "voyage", "retrieval_factor": 4}}"#);
    assert_eq!(ask(&mut db, r#"{"rerank": {"reranker": "judge", "retrieval_factor": 4}}"#)[0].0, "best");
    assert_eq!(stub.complaints(), [] as [String; 0]);
    // The worker fetches what queries have spent while it works.
    db.put("k", "late", "Another text.");
    until(SOON, "usage is booked", || db.count("kb.usage WHERE capability IN ('rerank', 'chat')") == 2);
    let booked = "SELECT capability || ' ' || endpoint || ' ' || requests || ' ' || texts || ' ' || (cost IS NULL)::text
                  FROM kb.usage WHERE tokens > 0 ORDER BY 1";
    assert_eq!(db.all::<String>(booked), ["chat talker 1 1 false", "rerank voyage 1 12 true"]);
}

#[test]
fn a_standby_reranks_and_its_checks_say_what_is_wrong() {
    let stub = Stub::start(Options::default());
    let Some(primary) = Cluster::start(&["wal_level = replica"]) else { return };
    let mut db = primary.connect(APP);
    fill(&mut db);
    create_reranker(&mut db, "jina", "jina", &stub, "{}");
    db.run("SELECT kb.create_llm('gone', 'openai', base_url => 'http://127.0.0.1:1', config => '{\"retry\": {\"max_attempts\": 1}}')");
    let standby = primary.standby(&[]);
    let mut replica = standby.connect(APP);
    until(SOON, "all has arrived", || {
        replica.count("kb.llms") == 1 && replica.count("kb.documents WHERE status = 'ready'") == 12
    });
    let options = r#"{"rerank": {"reranker": "jina", "retrieval_factor": 4}}"#;
    assert_eq!(ask(&mut replica, options)[0].0, "best");
    assert!(replica.one::<bool>("SELECT ok FROM kb.check_reranker('jina')"));
    let problem: String = replica.one("SELECT problem FROM kb.check_llm('gone')");
    assert!(problem.starts_with("llm \"gone\": "), "{problem}");
    for statement in [
        "SELECT kb.create_reranker('x', 'cohere', secret => 'kb:x')",
        "SELECT kb.alter_llm('gone', 'other')",
        "SELECT kb.drop_reranker('jina')",
    ] {
        assert_eq!(replica.fault(statement).code, "25006", "{statement}");
    }
}

#[test]
fn other_words_of_a_question_find_what_its_own_do_not_and_without_them_the_answer_is_its_own() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    fill(&mut db);
    db.run(&format!(
        "SELECT kb.create_llm('talker', 'openai', base_url => '{}', config => '{{\"retry\": {{\"max_attempts\": 1}}}}')",
        stub.base_url("chat_openai")
    ));
    db.put("k", "bread", "bread flour oven bakery");
    db.wait("k");
    // Of equal similarities any may come first, so answers are compared by them.
    let plain = ask(&mut db, "{}");
    assert!(!ids(&plain).contains(&"bread".to_string()));
    assert_eq!(stub.request_count(), 0, "no chat model is asked where nobody wants that");
    let plain: Vec<Option<f64>> = plain.into_iter().map(|row| row.1).collect();
    let ask_both = |db: &mut Db, options: &str| -> Vec<(String, Option<String>, Option<f64>)> {
        let rows = db.0.query(
            "SELECT external_id, locator ->> 'transform_status', score FROM kb.query('k', $1, 3, options => $2::text::jsonb)",
            &[&QUESTION, &options],
        );
        let rows = rows.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        // The score is the similarity to the question as it was asked.
        assert!(rows.iter().all(|row: &(String, Option<String>, Option<f64>)| row.2.is_some()));
        rows
    };
    stub.say(Some(r#"{"questions": ["bread flour oven", "bakery bread"]}"#));
    let many = r#"{"transform": {"llm": "talker", "multi_query": 2}}"#;
    // Hybrid answers have every document by meaning, and some beside what the other questions are about.
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
    assert_eq!(db.fault("SELECT kb.drop_llm('talker')").code, "2BP01");
    assert_eq!(
        db.fault(r#"SELECT * FROM kb.query('k', 'x', options => '{"transform": {"llm": "none"}}')"#).code,
        "42704"
    );
}

#[test]
fn an_answer_that_is_reranked_and_varied_has_as_many_rows_as_qualify() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", r#"{"size": 6, "overlap": 0}"#);
    let long: Vec<String> = (0..60).map(|i| format!("Where is the old harbor {i}?")).collect();
    db.put("k", "long", &long.join("\n\n"));
    for i in 0..4 {
        db.put("k", &format!("d{i}"), &format!("A harbor, said {i}."));
    }
    db.wait("k");
    create_reranker(&mut db, "jina", "jina", &stub, "{}");
    for fault in [None, Some(Fault::Status(500))] {
        stub.always(fault.clone());
        let rows: i64 = db.one_with(
            r#"SELECT count(*) FROM kb.query('k', $1, 5, options => '{"per_document": 1, "rerank": {"reranker": "jina"}}')"#,
            &[&QUESTION],
        );
        assert_eq!(rows, 5, "{fault:?}");
    }
}
