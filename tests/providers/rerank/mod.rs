//! Rerankers and chat models at the stub, over the gateway's own code: dialects, faults, limits, keys.

mod faults;

use crate::stub::{Fault, Options, Stub, score};
use crate::support::KEY;
use kb_gateway::cancellation::CancellationToken;
use kb_gateway::chat::Chat;
use kb_gateway::endpoint::access::{Access, EgressSettings};
use kb_gateway::endpoint::budget::Spent;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::endpoint::pool::Endpoints;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::endpoint::usage::Usage;
use kb_gateway::local_models::Models;
use kb_gateway::provider::names;
use kb_gateway::rerank::{self, Question};
use kb_gateway::services::{Caller, Services};
use kb_gateway::turns::{Urgency, Whose};
use kb_types::error::{Error, Result};
use kb_types::llm::{Llm, LlmConfig};
use kb_types::reranker::{Reranker, RerankerConfig};
use kb_types::{Dialogue, FinishReason, Message, Prompt, ServiceKind, Speaker};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

const QUERY: &str = "where is the harbor";

struct Gateway {
    runtime: tokio::runtime::Runtime,
    services: Services,
    models: Models,
}

impl Gateway {
    fn new() -> Gateway {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let services = Services::new(Arc::new(Endpoints::new(EgressSettings::default())));
        Gateway { runtime, services, models: Models::start(PathBuf::new(), 0).unwrap() }
    }

    fn rerank(&self, question: Question) -> (Result<Vec<f64>>, Usage) {
        let mut usage = Usage::default();
        let caller = caller(question.access.spent);
        let scores = rerank::rerank(&self.services, &self.models, question, &caller, &mut usage);
        (self.runtime.block_on(scores), usage)
    }

    fn scores(&self, question: Question) -> Vec<f64> {
        self.rerank(question).0.unwrap()
    }

    fn error(&self, question: Question) -> Error {
        self.rerank(question).0.unwrap_err()
    }
}

fn caller(spent: Spent) -> Caller {
    Caller {
        whose: Whose::default(),
        spent,
        urgency: Urgency::Query,
        cancellation: CancellationToken::default(),
    }
}

fn stub() -> Stub {
    Stub::start(Options { key: Some(KEY.into()), ..Options::default() })
}

fn access(base_url: &str) -> Access {
    Access {
        reference: Some(Reference::Stored("test".into())),
        stored: Some(Secret::new(KEY)),
        host: origin(base_url),
        spent: Spent::default(),
    }
}

fn with(config: Value) -> Value {
    let mut all = json!({"retry": {"max_attempts": 2, "base_ms": 1, "max_ms": 5}, "timeout_ms": 5000});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    all
}

fn texts(count: usize) -> Vec<String> {
    let words = ["the harbor is here", "bread", "where ships are", "is \"quoted\" ✓\n"];
    (0..count).map(|i| format!("{} {i}", words[i % words.len()])).collect()
}

fn question(stub: &Stub, provider: &str, config: Value, count: usize) -> Question {
    let base_url = stub.base_url(&format!("rerank_{provider}"));
    let reranker = Reranker {
        id: format!("{provider} at the stub"),
        provider: provider.into(),
        model: "model".into(),
        base_url: Some(base_url.clone()),
        config: RerankerConfig::parse(&with(config)).unwrap(),
    };
    Question { reranker, llm: None, access: access(&base_url), query: QUERY.into(), texts: texts(count) }
}

fn llm(stub: &Stub, provider: &str, config: Value) -> Llm {
    Llm {
        id: "talker".into(),
        provider: provider.into(),
        model: "model".into(),
        base_url: Some(stub.base_url(&format!("chat_{provider}"))),
        config: LlmConfig::parse(&with(config)).unwrap(),
    }
}

/// A question to a reranker that asks a chat model.
fn by_chat(stub: &Stub, provider: &str, scoring: &str, config: Value, count: usize) -> Question {
    let llm = llm(stub, provider, config);
    let config = RerankerConfig::parse(&json!({"llm": "talker", "scoring": scoring})).unwrap();
    let reranker =
        Reranker { id: "judge".into(), provider: "llm".into(), model: String::new(), base_url: None, config };
    let access = access(llm.base_url.as_deref().unwrap());
    Question { reranker, llm: Some(llm), access, query: QUERY.into(), texts: texts(count) }
}

fn expected(texts: &[String], factor: f64) -> Vec<f64> {
    texts.iter().map(|text| f64::from(score(QUERY, text)) * factor).collect()
}

fn assert_close(got: &[f64], wanted: &[f64], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    assert!(got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{what}: {got:?}, not {wanted:?}");
}

#[test]
fn every_reranker_gets_its_own_dialect_and_scores_are_in_the_order_of_the_texts() {
    let gateway = Gateway::new();
    for provider in names(ServiceKind::Reranker) {
        let stub = stub();
        for count in [1, 5, 100] {
            let (got, usage) = gateway.rerank(question(&stub, provider, json!({}), count));
            assert_close(&got.unwrap(), &expected(&texts(count), 1.0), provider);
            assert_eq!(usage.texts, count as u64, "{provider}");
            assert!(usage.tokens > 0 && usage.requests > 0, "{provider}: {usage:?}");
        }
        assert_eq!(stub.complaints(), [] as [String; 0], "{provider}");
    }
}

#[test]
fn a_batch_is_no_larger_than_the_config_says_and_long_texts_are_cut() {
    let (gateway, stub) = (Gateway::new(), stub());
    gateway.scores(question(&stub, "cohere", json!({"batch_size": 4, "max_chars": 6}), 10));
    assert_eq!(stub.requests().iter().map(|seen| seen.texts.len()).collect::<Vec<_>>(), [4, 4, 2]);
    assert!(stub.requests().iter().all(|seen| seen.texts.iter().all(|text| text.chars().count() <= 6)));
    assert_eq!(stub.requests()[0].body["query"], "where ");
}

#[test]
fn a_key_goes_to_the_host_it_is_bound_to_only_and_a_budget_that_is_spent_pauses() {
    let (gateway, stub) = (Gateway::new(), stub());
    let mut elsewhere = question(&stub, "voyage", json!({}), 2);
    elsewhere.access.host = Some("https://api.voyageai.com".into());
    let error = gateway.error(elsewhere);
    assert!(error.to_string().contains("not bound"), "{error}");
    let mut spent = question(&stub, "voyage", json!({"daily_token_budget": 1000}), 2);
    spent.access.spent = Spent { day: today(), tokens: 1000, ..Spent::default() };
    let error = gateway.error(spent);
    assert!(error.to_string().contains("is paused") && error.is_transient(), "{error}");
    let mut quota = question(&stub, "voyage", json!({}), 2);
    quota.access.spent = Spent { day: today(), quota: Some(5), of_quota: 5, ..Spent::default() };
    let error = gateway.error(quota);
    assert!(error.to_string().contains("tenant"), "{error}");
    assert_eq!(stub.request_count(), 0);
}

fn today() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 86_400
}

#[test]
fn a_chat_model_rates_all_texts_in_one_call_or_each_in_one() {
    let gateway = Gateway::new();
    for provider in names(ServiceKind::Llm) {
        for (scoring, requests) in [("batch", 1), ("single", 12)] {
            let stub = stub();
            let asked =
                by_chat(&stub, provider, scoring, json!({"temperature": 0, "max_concurrency": 3}), 12);
            let (got, usage) = gateway.rerank(asked);
            assert_close(&got.unwrap(), &expected(&texts(12), 10.0), scoring);
            assert_eq!(
                (stub.request_count(), usage.requests),
                (requests, requests as u64),
                "{provider} {scoring}"
            );
            assert_eq!(stub.complaints(), [] as [String; 0], "{provider} {scoring}");
            assert!(stub.in_flight_max() <= 3);
        }
    }
}

#[test]
fn a_rating_that_a_chat_model_leaves_out_is_zero_and_nonsense_is_a_fault() {
    let (gateway, stub) = (Gateway::new(), stub());
    stub.say(Some(r#"Sure! {"scores": {"2": 9, "4": "5.5", "77": 3}}"#));
    let got = gateway.scores(by_chat(&stub, "openai", "batch", json!({}), 4));
    assert_eq!(got, [0.0, 9.0, 0.0, 5.5]);
    stub.say(Some("no idea"));
    assert_eq!(gateway.scores(by_chat(&stub, "openai", "single", json!({}), 3)), [0.0; 3]);
    let error = gateway.error(by_chat(&stub, "openai", "batch", json!({}), 3));
    assert!(
        error.to_string().contains("reranker \"judge\"") && !error.to_string().contains("no idea"),
        "{error}"
    );
}

#[test]
fn a_chat_model_answers_in_words_and_of_huge_answers_the_beginning_is_read() {
    let (gateway, stub) = (Gateway::new(), stub());
    let llm = llm(&stub, "openai", json!({"max_output_tokens": 50}));
    let ask = |usage: &mut Usage| {
        let chat = Chat::open(&gateway.services, &llm, &access(llm.base_url.as_deref().unwrap())).unwrap();
        let prompt = Prompt { system: "Be brief.".into(), user: "one two three".into() };
        gateway.runtime.block_on(chat.ask(prompt, &caller(Spent::default()), usage))
    };
    let mut usage = Usage::default();
    let reply = ask(&mut usage).unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("yes", FinishReason::Stop));
    assert_eq!((reply.input_tokens, reply.output_tokens), (Some(3), Some(1)));
    assert_eq!(usage, Usage { requests: 1, retries: 0, texts: 1, tokens: 4 });
    assert_eq!(stub.requests()[0].body["max_tokens"], 50);
    assert_eq!(stub.complaints(), [] as [String; 0]);
    stub.say(Some(&"a".repeat(300 * 1024)));
    // The call is paid for.
    let before = usage.tokens;
    let reply = ask(&mut usage).unwrap();
    assert_eq!((reply.text.len(), reply.finish), (256 * 1024, FinishReason::Length));
    assert!(usage.tokens > before);
    for fault in [Fault::Huge, Fault::NotJson, Fault::Truncated, Fault::Status(503)] {
        stub.always(Some(fault.clone()));
        assert!(ask(&mut usage).unwrap_err().is_transient(), "{fault:?}");
    }
}

#[test]
fn a_dialogue_is_sent_in_every_dialect_with_its_roles_and_the_least_limit_of_tokens() {
    let gateway = Gateway::new();
    for provider in names(ServiceKind::Llm) {
        let stub = stub();
        let llm = llm(&stub, provider, json!({"max_output_tokens": 50, "temperature": 0.5}));
        let chat = Chat::open(&gateway.services, &llm, &access(llm.base_url.as_deref().unwrap())).unwrap();
        let earlier = [(Speaker::User, "first"), (Speaker::Assistant, "second")]
            .map(|(speaker, text)| Message { speaker, text: text.into() });
        for (most, sent) in [(None, 50), (Some(20), 20), (Some(90), 50)] {
            let dialogue = Dialogue::new("Be brief.".into(), earlier.to_vec(), "third".into(), most);
            let (mut usage, caller) = (Usage::default(), caller(Spent::default()));
            let reply = gateway.runtime.block_on(chat.ask(dialogue, &caller, &mut usage)).unwrap();
            let got = (reply.text.as_str(), reply.finish, reply.input_tokens, reply.output_tokens);
            assert_eq!(got, ("yes", FinishReason::Stop, Some(1), Some(1)), "{provider}");
            assert_eq!(usage.tokens, 2, "{provider}");
            let body = stub.requests().pop().unwrap().body;
            let numbers = ["/max_tokens", "/options/num_predict", "/generationConfig/maxOutputTokens"];
            let found = numbers.iter().find_map(|place| body.pointer(place)).unwrap();
            assert_eq!(found, &json!(sent), "{provider}: {body}");
            let text = body.to_string();
            let places =
                ["Be brief.", "first", "second", "third"].map(|text_of| text.matches(text_of).count());
            assert_eq!(places, [1; 4], "{provider}: {body}");
        }
        assert_eq!(stub.complaints(), [] as [String; 0], "{provider}");
    }
}

#[test]
fn an_overloaded_provider_pauses_all_requests_and_a_wrong_key_is_the_error() {
    for provider in names(ServiceKind::Llm) {
        let (gateway, stub) = (Gateway::new(), stub());
        let ask = || {
            let llm = llm(&stub, provider, json!({}));
            let chat =
                Chat::open(&gateway.services, &llm, &access(llm.base_url.as_deref().unwrap())).unwrap();
            let prompt = Prompt { system: "Be brief.".into(), user: "one".into() };
            let (mut usage, caller) = (Usage::default(), caller(Spent::default()));
            let reply = gateway.runtime.block_on(chat.ask(prompt, &caller, &mut usage));
            (reply, usage)
        };
        for status in [429, 529] {
            stub.script(Fault::Status(status), 1);
            let (reply, usage) = ask();
            assert_eq!((reply.unwrap().text.as_str(), usage.retries), ("yes", 1), "{provider}");
        }
        stub.always(Some(Fault::Status(401)));
        let (reply, usage) = ask();
        let error = reply.unwrap_err();
        assert_eq!((error.is_transient(), usage.requests), (false, 1), "{provider}: {error}");
        assert!(!error.to_string().contains(KEY), "{provider}: {error}");
    }
}
