//! An endpoint that refuses requests for now (429): how many are refused, and that all succeed in the end.

use crate::stub::{Fault, Options, Stub};
use crate::support::{Gateway, KEY, embedder, request, until_requests};
use kb_gateway::protocol::EmbedReply;
use kb_gateway::turns::Urgency;
use kb_types::embedder::{Embedder, Kind};
use kb_types::error::Error;
use serde_json::json;
use std::time::{Duration, Instant};

fn stub() -> Stub {
    let latency = Duration::from_millis(20);
    Stub::start(Options { key: Some(KEY.into()), latency, ..Options::default() })
}

fn ask(gateway: &Gateway, embedder: &Embedder, count: usize) -> EmbedReply {
    let texts: Vec<String> = (0..count).map(|i| format!("text {i}")).collect();
    let request = request(embedder, Kind::Document, Urgency::Ingest, &texts);
    gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()
}

fn refused(stub: &Stub) -> usize {
    stub.requests().iter().filter(|seen| seen.status == 429).count()
}

#[test]
fn after_a_refusal_requests_are_sent_one_by_one_until_one_passes() {
    let (stub, gateway) = (stub(), Gateway::new());
    let retry = json!({"max_attempts": 3, "base_ms": 100, "max_ms": 100});
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 8, "batch_size": 1, "retry": retry}));
    stub.always(Some(Fault::Status(429)));
    let begun = Instant::now();
    let (embedded, refused, most) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&gateway, &embedder, 120));
        while refused(&stub) < 8 + 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stub.always(None);
        // Eight were in flight together; then each followed after a pause and the latency.
        let most = 8 + 1 + begun.elapsed().as_millis() as usize / 120;
        let refused = refused(&stub);
        stub.forget();
        (asking.join().unwrap(), refused, most)
    });
    assert_eq!(embedded.failed, []);
    assert!(refused <= most, "{refused} requests were refused, not {most} at most");
    // Requests that were sent again are counted.
    assert_eq!((embedded.usage.requests, embedded.usage.retries), (120 + refused as u64, refused as u64));
    // As many as permitted are in flight again.
    assert_eq!(stub.in_flight_max(), 8);
}

#[test]
fn an_endpoint_that_takes_less_than_is_configured_refuses_few_requests() {
    let (stub, gateway) = (stub(), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 16, "batch_size": 1}));
    stub.refuse_above(4);
    let embedded = ask(&gateway, &embedder, 160);
    assert_eq!(embedded.failed, []);
    let refused = refused(&stub);
    // Twelve of the first sixteen; later about one in ten.
    assert!(refused <= 12 + 160 / 5, "{refused} requests were refused");
    assert_eq!((embedded.usage.requests, embedded.usage.retries), (160 + refused as u64, refused as u64));
}

#[test]
fn a_question_goes_ahead_of_the_batches_that_were_refused() {
    let (stub, gateway) = (stub(), Gateway::new());
    let retry = json!({"max_attempts": 3, "base_ms": 100, "max_ms": 100});
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 4, "batch_size": 1, "retry": retry}));
    stub.script(Fault::Status(429), 4);
    std::thread::scope(|scope| {
        let ingestion = scope.spawn(|| ask(&gateway, &embedder, 40));
        until_requests(&stub, 4);
        let question = request(&embedder, Kind::Query, Urgency::Query, &["what?"]);
        assert_eq!(gateway.runtime.block_on(gateway.queues.embed(question)).unwrap().failed, []);
        let sent = stub.requests().iter().position(|seen| seen.texts == ["what?"]).unwrap();
        assert!(sent <= 4 + 3, "{sent} requests were sent before it");
        assert_eq!(ingestion.join().unwrap().failed, []);
    });
}

#[test]
fn a_batch_that_is_always_throttled_is_given_back_while_others_succeed() {
    let (stub, gateway) = (stub(), Gateway::new());
    let retry = json!({"max_attempts": 3, "base_ms": 1, "max_ms": 1});
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 2, "retry": retry}));
    stub.refuse_tokens_above(6);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&gateway, &embedder, 8));
        // Each time that one succeeds, the limits forget what they refused.
        while !asking.is_finished() {
            assert_eq!(gateway.ask(&embedder, Kind::Query, &["what?"]).unwrap().failed, []);
        }
        let embedded = asking.join().unwrap();
        assert_eq!(embedded.failed.len(), 8);
        assert_paused(embedded);
    });
    // They are sent whole each time: a provider that limits requests would refuse the halves, too.
    let sent: Vec<_> = stub.requests().into_iter().filter(|seen| seen.status == 429).collect();
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|seen| seen.texts.len() == 8));
}

fn assert_paused(embedded: EmbedReply) {
    for (_, fault) in embedded.failed {
        let error: Error = fault.into();
        assert!(matches!(error, Error::Paused { of_tenant: false, .. }), "{error}");
    }
}

#[test]
fn batches_at_an_endpoint_that_refuses_everything_for_now_are_given_back_soon() {
    let (stub, gateway) = (stub(), Gateway::new());
    let retry = json!({"max_attempts": 3, "base_ms": 200, "max_ms": 200});
    let config = json!({"max_concurrency": 12, "batch_size": 8, "retry": retry});
    let embedder = embedder(&stub, "openai", config);
    stub.always(Some(Fault::Status(429)));
    stub.hold(true);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&gateway, &embedder, 96));
        // Requests that are in flight together are refused together.
        until_requests(&stub, 12);
        stub.hold(false);
        let embedded = asking.join().unwrap();
        assert_eq!(embedded.failed.len(), 96);
        assert_paused(embedded);
    });
    // Twelve at once, and nine more in turn.
    assert!(stub.request_count() <= 12 + 9, "{} requests", stub.request_count());
}
