//! kb.query with a reranker: the reranker determines the order, a failure leaves the answer as it was, and
//! its cost is booked.

mod keys;
mod local;
mod transform;

use crate::stub::{Fault, Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, WHOLE, until};
use kb_gateway::provider::names;
use kb_types::ServiceKind;

const QUESTION: &str = "where is the old harbor";

/// A knowledge base of twelve documents. The one that contains all words of the question is not the first
/// among the nearest vectors.
fn fill(db: &mut Db) {
    db.create_kb("k", "hash", WHOLE);
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

/// A row's document, score, rank_score and rerank_status.
type Row = (String, Option<f64>, Option<f64>, Option<String>);

fn ask(db: &mut Db, options: &str) -> Vec<Row> {
    let rows = db.0.query(
        "SELECT external_id, score, rank_score, locator ->> 'rerank_status'
         FROM kb.query('k', $1, 3, options => $2::text::jsonb) ORDER BY rank",
        &[&QUESTION, &options],
    );
    rows.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

fn ids(answer: &[Row]) -> Vec<String> {
    answer.iter().map(|row| row.0.clone()).collect()
}

/// Of documents with equal similarities any may come first, so answers in their own order are compared by
/// similarity.
fn scores(answer: &[Row]) -> Vec<Option<f64>> {
    answer.iter().map(|row| row.1).collect()
}

fn cluster_with(stub: &Stub) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    fill(&mut db);
    for provider in names(ServiceKind::Reranker) {
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
    for reranker in names(ServiceKind::Reranker) {
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
    // A setting of the knowledge base, which a call switches off.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"rerank": {"reranker": "jina", "retrieval_factor": 4}}')"#);
    assert_eq!(ask(&mut db, "{}")[0].0, "best");
    assert_eq!(ask(&mut db, r#"{"mode": "keyword"}"#).len(), 3);
    let explained: String = db.one_with(
        "SELECT locator #>> '{ranks,rerank,rank}' FROM kb.query('k', $1, 1, options => '{\"explain\": true}')",
        &[&QUESTION],
    );
    assert_eq!(explained, "1");
    // Rows that it removed from the answer are reported as removed by it.
    let first = &ids(&plain)[0];
    let about: String = db.one_with(
        "SELECT kb.explain('k', $1, 1, external_id => $2) #>> '{asked_about,chunks,0,why}'",
        &[&QUESTION, first],
    );
    assert!(about.starts_with("the reranker moved it from place"), "{about}");
    assert_eq!(ids(&ask(&mut db, r#"{"rerank": null}"#)), ids(&plain));
    db.refused("SELECT kb.drop_reranker('jina')", "2BP01");
}

#[test]
fn when_reranking_fails_the_order_stays_and_every_row_says_why() {
    let stub = Stub::start(Options::default());
    let Some((_cluster, mut db)) = cluster_with(&stub) else { return };
    let plain = scores(&ask(&mut db, "{}"));
    let options = r#"{"rerank": {"reranker": "cohere", "retrieval_factor": 4}}"#;
    let says = Fault::Says(r#"{"message": "no such key", "code": 401}"#.into());
    for fault in [Fault::Status(500), Fault::Status(401), Fault::NaN, says, Fault::NotJson] {
        stub.script(fault.clone(), 1);
        let answer = ask(&mut db, options);
        assert_eq!(scores(&answer), plain, "{fault:?}");
        for row in &answer {
            let why = row.3.as_deref().unwrap_or_default();
            assert!(why.starts_with("reranker \"cohere\": "), "{fault:?}: {why}");
            assert_eq!(row.1, row.2, "the order is that of the similarity");
        }
    }
    // A reranker that hangs takes no more time than the call allows.
    stub.always(Some(Fault::Never));
    let answer = ask(&mut db, r#"{"rerank": {"reranker": "tei", "retrieval_factor": 4, "timeout_ms": 300}}"#);
    assert_eq!(scores(&answer), plain);
    // Its own limit is 20 s.
    let why = answer[0].3.clone().unwrap_or_default();
    let millis =
        why.split("within ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|n| n.parse().ok());
    assert!(millis.is_some_and(|millis: u32| millis <= 300), "{why}");
    stub.always(None);
    // A mistake in the call is an error before anything is asked.
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
fn the_cost_of_reranking_is_booked_for_the_tenant_that_asked() {
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
        replica.refused(statement, "25006");
    }
}

#[test]
fn an_answer_that_is_reranked_and_varied_has_as_many_rows_as_qualify() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::with_kb!("hash", r#"{"size": 6, "overlap": 0}"#);
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
