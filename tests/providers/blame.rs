//! A fault is attributed to the text, to the endpoint or to chance, and affects no other text.

use crate::stub::{Fault, Options, Stub, vector};
use crate::support::{Gateway, KEY, close, embedder, request, rows, until_requests};
use kb_gateway::cancellation::CancellationToken;
use kb_gateway::embed::queue_registry::EmbedRequest;
use kb_gateway::endpoint::access::EgressSettings;
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_gateway::protocol::EmbedReply;
use kb_gateway::provider::names;
use kb_gateway::turns::Urgency;
use kb_types::ServiceKind;
use kb_types::embedder::{Embedder, Kind};
use kb_types::error::Error;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn start(config: Value) -> (Stub, Gateway, Embedder) {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let embedder = embedder(&stub, "openai", config);
    (stub, Gateway::new(), embedder)
}

/// A gateway that asks provider http at this machine, too.
fn anywhere() -> Gateway {
    let allowed_hosts = AllowedHosts::parse("127.0.0.1").unwrap();
    Gateway::with(EgressSettings { allowed_hosts, ..EgressSettings::default() })
}

fn errors(embedded: EmbedReply) -> Vec<Error> {
    embedded.failed.into_iter().map(|(_, fault)| fault.into()).collect()
}

#[test]
fn a_text_on_which_a_provider_fails_gets_its_error_even_if_it_is_alone() {
    // There are more tries than faults that open the breaker: without a limit it would be paused for ever.
    let (stub, gateway, embedder) =
        start(json!({"batch_size": 1, "retry": {"max_attempts": 7, "base_ms": 1, "max_ms": 1}}));
    stub.refuse_text("poison", Fault::Status(500));
    let begun = Instant::now();
    loop {
        match gateway.error(&embedder, "the poison one").0 {
            Error::Provider { passing: true, .. } => break,
            Error::Paused { .. } => std::thread::sleep(Duration::from_millis(50)),
            other => panic!("{other}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it is paused for ever");
    }
    // The endpoint answers other texts.
    gateway.vectors(&embedder, Kind::Document, &["a"]);
}

#[test]
fn an_open_breaker_is_probed_by_a_harmless_text() {
    let (stub, gateway, embedder) = start(json!({}));
    stub.always(Some(Fault::Status(500)));
    while !matches!(gateway.error(&embedder, "a").0, Error::Paused { .. }) {}
    let before = stub.request_count();
    let begun = Instant::now();
    while stub.request_count() == before {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is never tried");
        gateway.error(&embedder, "a");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(stub.requests()[before].texts, ["text"]);
    assert_eq!(stub.request_count(), before + 1, "nothing else was sent");
}

#[test]
fn an_outage_during_the_search_for_a_bad_text_gives_up_no_text() {
    let (stub, gateway, embedder) = start(json!({}));
    stub.refuse_text("bad", Fault::Status(400));
    // The harmless text meets a fault that passes.
    stub.refuse_text("text", Fault::Status(503));
    let errors = errors(gateway.ask(&embedder, Kind::Document, &["one", "bad", "three"]).unwrap());
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(Error::is_transient), "{errors:?}");
    // When that is over, only the bad one fails.
    stub.accept_texts();
    stub.refuse_text("bad", Fault::Status(400));
    let embedded = gateway.ask(&embedder, Kind::Document, &["one", "bad", "three"]).unwrap();
    assert_eq!(embedded.failed.len(), 1);
}

#[test]
fn a_request_that_was_released_before_a_429_waits_like_all_others() {
    let stub = Stub::start(Options {
        key: Some(KEY.into()),
        latency: Duration::from_millis(100),
        ..Options::default()
    });
    let gateway = Gateway::new();
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1, "batch_size": 1}));
    stub.script(Fault::RetryAfter { status: 429, seconds: 3600 }, 1);
    let errors = errors(gateway.ask(&embedder, Kind::Document, &["a", "b", "c"]).unwrap());
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|error| matches!(error, Error::Paused { .. })), "{errors:?}");
    assert_eq!(stub.request_count(), 1);
}

#[test]
fn for_a_client_that_left_nothing_more_is_sent() {
    let (stub, gateway, embedder) =
        start(json!({"retry": {"max_attempts": 5, "base_ms": 300, "max_ms": 300}}));
    stub.always(Some(Fault::Status(500)));
    let (waiting, cancellation) = CancellationToken::new();
    let mut query = request(&embedder, Kind::Query, Urgency::Query, &["what?"]);
    query.cancellation = cancellation;
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| gateway.runtime.block_on(gateway.queues.embed(query)));
        until_requests(&stub, 1);
        drop(waiting);
        let embedded = asking.join().unwrap().unwrap();
        assert_eq!(embedded.failed.len(), 1);
    });
    assert_eq!(stub.request_count(), 1);
}

#[test]
fn a_text_without_a_valid_vector_fails_alone_and_no_other_is_paid_for_twice() {
    let texts: Vec<String> = (0..21).map(|i| format!("text {i}")).collect();
    for provider in names(ServiceKind::Embedder) {
        for (fault, wrong, says) in [
            (Fault::Empty, 0, "the provider returned an empty vector"),
            (Fault::Null, 0, "not a number"),
            (Fault::WrongDimension, 20, "the provider returned vectors of dimension 9 instead of 8"),
        ] {
            let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
            let gateway = anywhere();
            // Some models accept one text per request.
            let mut embedder = embedder(&stub, provider, json!({}));
            if provider == "vertex" {
                embedder.model = "text-embedding-005".into();
            }
            stub.script(fault.clone(), 1);
            let embedded = gateway.ask(&embedder, Kind::Document, &texts).unwrap();
            let failed: Vec<u32> = embedded.failed.iter().map(|(text, _)| *text).collect();
            assert_eq!(failed, [wrong], "{provider} {fault:?}");
            let good = (0..).zip(&texts).filter(|(i, _)| *i != wrong).map(|(_, text)| text);
            for (text, got) in good.zip(rows(&embedded)) {
                assert!(close(&got, &vector(text, 8)), "{provider} {fault:?}: {text}");
            }
            let error: Error = embedded.failed[0].1.clone().into();
            assert!(matches!(error, Error::Provider { passing: false, .. }), "{provider} {fault:?}: {error}");
            assert!(error.to_string().contains(says), "{provider} {fault:?}: {error}");
            assert_eq!(stub.request_count(), 1, "{provider} {fault:?}");
        }
    }
}

#[test]
fn a_text_that_the_reply_leaves_out_has_a_passing_error_and_others_have_vectors() {
    let (stub, gateway, embedder) = start(json!({}));
    stub.script(Fault::WrongCount, 1);
    let embedded = gateway.ask(&embedder, Kind::Document, &["a", "b", "c"]).unwrap();
    assert_eq!((rows(&embedded).len(), embedded.failed[0].0, stub.request_count()), (2, 2, 1));
    assert!(errors(embedded).iter().all(Error::is_transient));
}

#[test]
fn if_every_vector_is_wrong_the_error_is_one_of_the_endpoint() {
    // All vectors have another dimension: the embedder is configured wrongly.
    let (stub, gateway, mut embedder) = start(json!({}));
    embedder.dimension = 9;
    let wrong = errors(gateway.ask(&embedder, Kind::Document, &["a", "b"]).unwrap());
    for error in &wrong {
        assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
        assert!(
            error.to_string().contains("the provider returned vectors of dimension 8 instead of 9"),
            "{error}"
        );
    }
    assert_eq!((wrong.len(), stub.request_count()), (2, 1));
    // The failure of a single text does not show what is at fault, so it counts as passing.
    for fault in [Fault::Empty, Fault::Null, Fault::WrongCount] {
        let (stub, gateway, embedder) = start(json!({}));
        stub.always(Some(fault.clone()));
        let (error, usage) = gateway.error(&embedder, "a");
        assert!(matches!(error, Error::Provider { passing: true, .. }), "{fault:?}: {error}");
        assert_eq!((stub.request_count(), usage.retries), (3, 2), "{fault:?}");
    }
}

#[test]
fn an_error_in_a_good_answer_is_quoted_and_treated_as_its_kind() {
    let says = |body: Value| Fault::Says(body.to_string());
    let asked = |gateway: &Gateway, embedder: &Embedder, urgency| {
        let request = request(embedder, Kind::Document, urgency, &["a"]);
        errors(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()).remove(0)
    };
    for provider in names(ServiceKind::Embedder) {
        let start = |fault| {
            let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
            stub.always(Some(fault));
            let embedder = embedder(&stub, provider, json!({}));
            (stub, anywhere(), embedder)
        };
        let quota = "quota of the gateway is used up";
        let (stub, gateway, embedder) = start(says(json!({"error": {"message": quota}})));
        let error = asked(&gateway, &embedder, Urgency::Bulk);
        assert!(matches!(error, Error::Paused { of_tenant: false, .. }), "{provider}: {error}");
        assert!(error.to_string().contains(&format!("it answered 200 with an error: {quota}")), "{error}");
        assert_eq!(stub.request_count(), 10, "{provider}");
        // Other tenants read the errors for which documents wait, too.
        let (_stub, gateway, embedder) = start(says(json!({"message": quota, "code": 429})));
        let error = asked(&gateway, &embedder, Urgency::Ingest);
        assert!(matches!(error, Error::Paused { of_tenant: false, .. }), "{provider}: {error}");
        assert!(!error.to_string().contains(quota) && error.to_string().contains("200"), "{error}");

        let (stub, gateway, embedder) =
            start(says(json!({"error": {"message": "no such key", "code": "invalid_api_key"}})));
        let error = asked(&gateway, &embedder, Urgency::Ingest);
        assert!(matches!(error, Error::Provider { passing: false, .. }), "{provider}: {error}");
        assert!(error.to_string().contains("it answered 200 with an error: no such key"), "{error}");
        assert_eq!(stub.request_count(), 1, "{provider}");

        let (stub, gateway, embedder) = start(says(json!({"detail": "the model has crashed"})));
        let error = asked(&gateway, &embedder, Urgency::Ingest);
        assert!(matches!(error, Error::Provider { passing: true, .. }), "{provider}: {error}");
        assert!(
            error.to_string().contains("it answered 200 with an error: the model has crashed"),
            "{error}"
        );
        assert_eq!(stub.request_count(), 3, "{provider}");
    }
    // An error that concerns a text is the error of that text.
    let (stub, gateway, embedder) = start(json!({}));
    let body = json!({"error": {"message": "this text is refused", "type": "invalid_request_error"}});
    stub.refuse_text("bad", says(body));
    let embedded = gateway.ask(&embedder, Kind::Document, &["one", "the bad one", "three", "four"]).unwrap();
    assert_eq!(embedded.failed.iter().map(|(text, _)| *text).collect::<Vec<_>>(), [1]);
    let error = errors(embedded).remove(0);
    assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
    assert!(error.to_string().contains("this text is refused"), "{error}");
}

#[test]
fn an_implausible_usage_is_replaced_by_an_estimate_and_the_vectors_are_kept() {
    for (usage, tokens) in [
        (json!({"total_tokens": 12.0}), 12),
        (json!({"total_tokens": "12"}), 12),
        (json!({"total_tokens": -1, "prompt_tokens": 12}), 12),
        (json!({"total_tokens": -1}), 7),
        (json!([]), 7),
        (json!("none"), 7),
        (json!(3), 7),
        (Value::Null, 7),
    ] {
        let (stub, gateway, embedder) = start(json!({}));
        let item = json!({"index": 0, "embedding": [1, 0, 0, 0, 0, 0, 0, 0]});
        stub.always(Some(Fault::Says(json!({"data": [item], "usage": usage.clone()}).to_string())));
        let request =
            EmbedRequest { tokens: vec![7], ..request(&embedder, Kind::Document, Urgency::Ingest, &["a"]) };
        let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
        assert_eq!((embedded.failed.len(), embedded.usage.tokens), (0, tokens), "{usage}");
        assert_eq!((rows(&embedded)[0][0], stub.request_count()), (1.0, 1), "{usage}");
    }
}
