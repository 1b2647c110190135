//! Text, endpoint or chance: who is to blame for a fault, and that the others do not pay for it.

use crate::stub::{Fault, Options, Stub};
use crate::support::{Gateway, KEY, embedder, request};
use kb::error::Error;
use kb::gateway::cancellation::CancellationToken;
use kb::gateway::protocol::{Embedded, Urgency};
use kb::model::{Embedder, Kind};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn start(config: Value) -> (Stub, Gateway, Embedder) {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let embedder = embedder(&stub, "openai", config);
    (stub, Gateway::new(), embedder)
}

fn errors(embedded: Embedded) -> Vec<Error> {
    embedded.failed.into_iter().map(|(_, fault)| fault.into()).collect()
}

#[test]
fn a_text_that_a_provider_breaks_on_gets_its_error_though_it_is_alone_and_often_tried() {
    // More tries than faults that open the breaker: without an end it would be paused for ever.
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
    // The endpoint answers others.
    gateway.vectors(&embedder, Kind::Document, &["a"]);
}

#[test]
fn what_tries_a_left_alone_endpoint_is_a_harmless_text() {
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
fn an_outage_while_it_is_asked_who_is_to_blame_gives_up_no_text() {
    let (stub, gateway, embedder) = start(json!({}));
    stub.refuse_text("bad", Fault::Status(400));
    // The harmless text meets a fault that passes.
    stub.refuse_text("text", Fault::Status(503));
    let errors = errors(gateway.ask(&embedder, Kind::Document, &["one", "bad", "three"]).unwrap());
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(Error::is_transient), "{errors:?}");
    // When that is over only the bad one fails.
    stub.accept_texts();
    stub.refuse_text("bad", Fault::Status(400));
    let embedded = gateway.ask(&embedder, Kind::Document, &["one", "bad", "three"]).unwrap();
    assert_eq!(embedded.failed.len(), 1);
}

#[test]
fn what_was_let_go_before_a_429_waits_like_all_others() {
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
        while stub.request_count() == 0 {
            std::thread::yield_now();
        }
        drop(waiting);
        let embedded = asking.join().unwrap().unwrap();
        assert_eq!(embedded.failed.len(), 1);
    });
    assert_eq!(stub.request_count(), 1);
}
