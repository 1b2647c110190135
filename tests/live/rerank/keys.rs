//! Rerankers and chat models under a key of kb.set_secret, and under a budget.

use super::{ask, fill, scores};
use crate::stub::{Options, Stub, on_one_day};
use crate::support::{APP, Cluster, Db, SOON, until};

const KEY: &str = "sk-rerank-7c3a2d40";
const QUICK: &str = r#""retry": {"max_attempts": 1}, "timeout_ms": 20000"#;

/// A knowledge base, the reranker "scorer", and "judge", which asks the chat model "talker". Each asks its
/// stub, under this secret and with this additional configuration.
fn cluster_with(stubs: [&Stub; 2], secret: &str, config: &str) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    fill(&mut db);
    let [of_scorer, of_talker] = stubs;
    for (function, id, provider, base_url) in [
        ("create_reranker", "scorer", "cohere", of_scorer.base_url("rerank_cohere")),
        ("create_llm", "talker", "openai", of_talker.base_url("chat_openai")),
    ] {
        db.run(&format!(
            "SELECT kb.{function}('{id}', '{provider}', 'model', '{base_url}', {secret}, '{{{QUICK}{config}}}')"
        ));
    }
    db.run(r#"SELECT kb.create_reranker('judge', 'llm', config => '{"llm": "talker"}')"#);
    Some((cluster, db))
}

fn by(reranker: &str) -> String {
    format!(r#"{{"rerank": {{"reranker": "{reranker}", "retrieval_factor": 4}}}}"#)
}

#[test]
fn a_reranker_and_a_chat_model_ask_under_the_key_that_their_secret_names() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let Some((cluster, mut db)) = cluster_with([&stub; 2], "'kb:service'", "") else { return };
    let set = |db: &mut Db, key: &str| {
        db.0.execute("SELECT kb.set_secret('service', $1)", &[&key]).unwrap();
    };
    let plain = scores(&ask(&mut db, "{}"));
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut reader = cluster.connect_as(APP, "reader");
    for reranker in ["scorer", "judge"] {
        // While the secret does not exist, nothing is sent.
        let answer = ask(&mut db, &by(reranker));
        let why = answer[0].3.clone().unwrap_or_default();
        assert!(why.contains("service") && stub.request_count() == 0, "{reranker}: {why}");
        assert_eq!(scores(&answer), plain, "{reranker}");
        // A caller who may not read it still has it used.
        set(&mut db, KEY);
        for db in [&mut db, &mut reader] {
            let answer = ask(db, &by(reranker));
            assert_eq!((answer[0].0.as_str(), answer[0].3.as_deref()), ("best", None), "{reranker}");
        }
        assert_eq!(stub.complaints(), [] as [String; 0], "{reranker}");
        // A key that the provider refuses, and repeats in its answer.
        set(&mut db, "sk-wrong-5f1e9b7c");
        let answer = ask(&mut db, &by(reranker));
        let why = answer[0].3.clone().unwrap_or_default();
        assert!(why.contains("401") && !why.contains("5f1e9b7c"), "{reranker}: {why}");
        assert_eq!(scores(&answer), plain, "{reranker}");
        db.run("SELECT kb.drop_secret('service')");
        stub.forget();
    }
    let log = cluster.log();
    assert!(!log.contains("5f1e9b7c") && !log.contains(KEY), "a key is in the server's log");
}

#[test]
fn a_spent_budget_pauses_a_reranker_and_a_chat_model_and_the_rows_say_so() {
    on_one_day();
    // Requests to one place under one key share one budget.
    let stubs = [(); 2].map(|()| Stub::start(Options::default()));
    let budget = r#", "daily_token_budget": 600"#;
    let Some((_cluster, mut db)) = cluster_with([&stubs[0], &stubs[1]], "NULL", budget) else { return };
    let plain = scores(&ask(&mut db, "{}"));
    let services = [("scorer", "alter_reranker", "scorer"), ("judge", "alter_llm", "talker")];
    for ((reranker, function, asked), stub) in services.into_iter().zip(&stubs) {
        let mut answers = 0;
        let why = loop {
            let answer = ask(&mut db, &by(reranker));
            if let Some(why) = &answer[0].3 {
                assert_eq!(scores(&answer), plain, "{reranker}");
                break why.clone();
            }
            assert_eq!(answer[0].0, "best", "{reranker}");
            answers += 1;
            assert!(answers < 100, "{reranker} is never paused");
        };
        assert!(answers > 0, "{reranker}: {why}");
        assert!(why.contains("is paused") && why.contains("daily_token_budget of 600"), "{reranker}: {why}");
        assert_eq!(stub.request_count(), answers, "nothing is sent of what is paused");
        // What was spent is within it.
        db.put("k", "late", &format!("Another text for {reranker}."));
        until(SOON, "usage is booked", || {
            db.one_with::<i64>(
                "SELECT coalesce(sum(requests), 0)::bigint FROM kb.usage WHERE endpoint = $1",
                &[&asked],
            ) == answers as i64
        });
        let tokens: i64 =
            db.one_with("SELECT sum(tokens)::bigint FROM kb.usage WHERE endpoint = $1", &[&asked]);
        assert!(tokens > 0 && tokens <= 600, "{reranker}: {tokens}");
        // Without a budget it is asked again.
        db.run(&format!("SELECT kb.{function}('{asked}', config => '{{{QUICK}}}')"));
        assert_eq!(ask(&mut db, &by(reranker))[0].0, "best", "{reranker}");
    }
}
