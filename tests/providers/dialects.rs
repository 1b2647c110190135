//! Every dialect in the form that its provider requires.

use crate::stub::{Kind as SeenKind, Options, Stub, vector};
use crate::support::{Gateway, KEY, close, embedder};
use kb_gateway::endpoint::access::EgressSettings;
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_gateway::provider::names;
use kb_types::ServiceKind;
use kb_types::embedder::Kind;
use serde_json::json;

/// Provider http reaches this machine only if it is named.
fn at_the_stub() -> EgressSettings {
    EgressSettings { allowed_hosts: AllowedHosts::parse("127.0.0.1").unwrap(), ..EgressSettings::default() }
}

fn stub() -> Stub {
    Stub::start(Options { key: Some(KEY.into()), ..Options::default() })
}

#[test]
fn every_provider_is_spoken_to_in_its_own_dialect_and_answers_in_order() {
    let gateway = Gateway::with(at_the_stub());
    for provider in names(ServiceKind::Embedder) {
        let stub = stub();
        let embedder = embedder(&stub, provider, json!({}));
        let texts = ["one", "two \"quoted\"\n{{model}}", "drei ✓", "one"];
        for kind in [Kind::Document, Kind::Query] {
            let vectors = gateway.vectors(&embedder, kind, &texts);
            for (text, got) in texts.iter().zip(&vectors) {
                assert!(close(got, &vector(text, 8)), "{provider}: {text}: {got:?}");
            }
        }
        assert_eq!(stub.complaints(), [] as [String; 0], "{provider}");
        let kinds: Vec<_> = stub.requests().iter().filter_map(|seen| seen.kind).collect();
        if !kinds.is_empty() {
            assert_eq!(kinds, [SeenKind::Document, SeenKind::Query], "{provider}");
        }
    }
}

#[test]
fn a_provider_without_a_key_is_sent_none() {
    let stub = Stub::start(Options::default());
    let gateway = Gateway::new();
    let embedder = embedder(&stub, "ollama", json!({}));
    let mut request =
        crate::support::request(&embedder, Kind::Query, kb_gateway::turns::Urgency::Query, &["a"]);
    request.access.reference = None;
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    assert_eq!(embedded.failed, []);
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn prefixes_newlines_dimensions_headers_and_base64_are_as_the_config_says() {
    let stub = stub();
    let gateway = Gateway::new();
    let config = json!({
        "document_prefix": "passage: ", "query_prefix": "query: ", "strip_newlines": true, "dimensions": 8,
        "headers": {"OpenAI-Project": "search"}, "encoding_format": "base64"
    });
    let embedder = embedder(&stub, "openai", config);
    let got = gateway.vectors(&embedder, Kind::Document, &["a\nb"]);
    assert!(close(&got[0], &vector("passage: a b", 8)));
    gateway.vectors(&embedder, Kind::Query, &["a\nb"]);
    let requests = stub.requests();
    assert_eq!(requests[0].texts, ["passage: a b"]);
    assert_eq!(requests[1].texts, ["query: a b"]);
    assert_eq!(requests[0].headers["openai-project"], "search");
    assert_eq!(requests[0].body["dimensions"], 8);
    assert_eq!(requests[0].body["encoding_format"], "base64");
}

#[test]
fn a_batch_has_no_more_texts_and_tokens_than_allowed() {
    let stub = stub();
    let gateway = Gateway::new();
    let texts: Vec<String> = (0..10).map(|i| format!("text {i}")).collect();
    let by_count = embedder(&stub, "openai", json!({"batch_size": 4}));
    gateway.vectors(&by_count, Kind::Document, &texts);
    assert!(stub.requests().iter().all(|seen| seen.texts.len() <= 4));
    assert_eq!(stub.requests().iter().map(|seen| seen.texts.len()).sum::<usize>(), 10);
    stub.forget();
    // A text of 6 bytes counts 2 tokens if they were not counted; one of more than allowed is sent alone.
    let by_tokens = embedder(&stub, "openai", json!({"max_batch_tokens": 4}));
    let long = "long ".repeat(10);
    let mut with_long = texts.clone();
    with_long.insert(3, long.clone());
    gateway.vectors(&by_tokens, Kind::Document, &with_long);
    assert!(stub.requests().iter().all(|seen| seen.texts.len() <= 2));
    assert!(stub.requests().iter().any(|seen| seen.texts == [long.clone()]));
}

#[test]
fn texts_of_several_clients_share_requests() {
    let stub = Stub::start(Options {
        key: Some(KEY.into()),
        latency: std::time::Duration::from_millis(30),
        ..Options::default()
    });
    let gateway = Gateway::new();
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1}));
    let answers: Vec<(String, Vec<Vec<f32>>)> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..40)
            .map(|i| {
                let (gateway, embedder) = (&gateway, &embedder);
                scope.spawn(move || {
                    let text = format!("text of client {i}");
                    let vectors = gateway.vectors(embedder, Kind::Document, &[&text]);
                    (text, vectors)
                })
            })
            .collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (text, vectors) in answers {
        assert!(close(&vectors[0], &vector(&text, 8)), "{text}");
    }
    let requests = stub.request_count();
    assert!(requests <= 5, "{requests} requests for 40 texts");
    assert_eq!(stub.in_flight_max(), 1);
}
