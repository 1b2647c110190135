//! The order of clients at a provider, and one tenant's part of the common budget.

use crate::stub::{Fault, Options, Stub, on_one_day};
use crate::support::{Gateway, KEY, embedder, request, until_requests};
use kb_gateway::cancellation::CancellationToken;
use kb_gateway::embed::queue_registry::EmbedRequest;
use kb_gateway::endpoint::budget::Spent;
use kb_gateway::protocol::EmbedReply;
use kb_gateway::turns::{Urgency, Whose};
use kb_types::embedder::{Embedder, Kind};
use kb_types::error::Error;
use serde_json::json;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

fn stub(latency_ms: u64) -> Stub {
    let latency = Duration::from_millis(latency_ms);
    Stub::start(Options { key: Some(KEY.into()), latency, ..Options::default() })
}

fn of(
    embedder: &Embedder,
    urgency: Urgency,
    tenant: &str,
    connection: u64,
    texts: &[String],
) -> EmbedRequest {
    let whose = Whose { database: 1, tenant: tenant.into(), connection };
    EmbedRequest { whose, ..request(embedder, Kind::Document, urgency, texts) }
}

fn texts(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{name} {i}")).collect()
}

fn errors(embedded: EmbedReply) -> Vec<Error> {
    embedded.failed.into_iter().map(|(_, fault)| fault.into()).collect()
}

#[test]
fn a_question_and_ingestion_are_answered_before_the_bulk_calls_that_came_first() {
    let (stub, gateway) = (stub(10), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1, "batch_size": 2}));
    let answered = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let ask = |name: &'static str, urgency, connection, count| {
            let request = of(&embedder, urgency, "", connection, &texts(name, count));
            let (gateway, answered) = (&gateway, &answered);
            scope.spawn(move || {
                let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
                assert_eq!(embedded.failed, []);
                answered.lock().unwrap().push(name);
            });
        };
        for connection in 0..4 {
            ask("bulk", Urgency::Bulk, connection, 96);
        }
        // They are in flight.
        until_requests(&stub, 2);
        ask("ingest", Urgency::Ingest, 9, 1);
        ask("question", Urgency::Query, 8, 1);
    });
    let answered = answered.into_inner().unwrap();
    assert_eq!(answered[2..], ["bulk"; 4], "{answered:?}");
}

#[test]
fn bulk_calls_of_clients_are_answered_by_turns() {
    let (stub, gateway) = (stub(5), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1, "batch_size": 1}));
    std::thread::scope(|scope| {
        let ask = |connection, texts: Vec<String>| {
            let request = of(&embedder, Urgency::Bulk, "", connection, &texts);
            let gateway = &gateway;
            scope.spawn(move || gateway.runtime.block_on(gateway.queues.embed(request)).unwrap());
        };
        ask(1, texts("large", 60));
        until_requests(&stub, 2);
        ask(2, texts("small", 5));
    });
    let sent: Vec<String> = stub.requests().iter().flat_map(|seen| seen.texts.clone()).collect();
    let first = sent.iter().position(|text| text.starts_with("small")).unwrap();
    let last = sent.iter().rposition(|text| text.starts_with("small")).unwrap();
    // At most one text of the other call between any two.
    assert!(last - first <= 2 * 5, "{sent:?}");
    assert!(last < 30, "{sent:?}");
}

#[test]
fn a_bulk_call_whose_client_has_left_sends_nothing_more() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1, "batch_size": 1}));
    stub.hold(true);
    let (waiting, cancellation) = CancellationToken::new();
    let request = EmbedRequest { cancellation, ..of(&embedder, Urgency::Bulk, "", 1, &texts("text", 50)) };
    let embedded = std::thread::scope(|scope| {
        let asking = scope.spawn(|| gateway.runtime.block_on(gateway.queues.embed(request)));
        until_requests(&stub, 1);
        drop(waiting);
        stub.hold(false);
        asking.join().unwrap().unwrap()
    });
    assert!(stub.request_count() <= 2, "{} requests", stub.request_count());
    // The number of tokens that were sent is known, so that it can be booked.
    assert_eq!(embedded.usage.requests as usize, stub.request_count());
}

#[test]
fn a_batch_is_neither_halved_nor_sent_again_when_all_its_clients_have_left() {
    for fault in [Fault::Status(400), Fault::Status(413), Fault::Status(429), Fault::Status(500)] {
        let (stub, gateway) = (stub(0), Gateway::new());
        let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1}));
        stub.always(Some(fault.clone()));
        stub.hold(true);
        let clients: Vec<_> = (0..2).map(|_| CancellationToken::new()).collect();
        let (guards, tokens): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        std::thread::scope(|scope| {
            let ask = |urgency, connection, cancellation| {
                let request = of(&embedder, urgency, "", connection, &texts("text", 8));
                let request = EmbedRequest { cancellation, ..request };
                scope.spawn(|| gateway.runtime.block_on(gateway.queues.embed(request)).unwrap())
            };
            let asking: Vec<_> = (0..)
                .zip(tokens)
                .map(|(connection, token)| ask(Urgency::Ingest, connection, token))
                .collect();
            until_requests(&stub, 1);
            drop(guards);
            stub.hold(false);
            for thread in asking {
                assert_eq!(thread.join().unwrap().failed.len(), 8, "{fault:?}");
            }
        });
        assert_eq!(stub.request_count(), 1, "{fault:?}");
    }
}

#[test]
fn the_reason_of_a_pause_reveals_no_text_to_another_client() {
    // The stub's message repeats what it was sent.
    let secret = "the secret of tenant a";
    for fault in [Fault::Status(500), Fault::RetryAfter { status: 429, seconds: 3600 }] {
        let (stub, gateway) = (self::stub(0), Gateway::new());
        let embedder = self::embedder(&stub, "openai", json!({"retry": {"max_attempts": 1}}));
        stub.always(Some(fault.clone()));
        let begun = Instant::now();
        let mut own = Vec::new();
        let paused = loop {
            let request = of(&embedder, Urgency::Ingest, "a", 1, &[secret.to_string()]);
            match errors(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()).remove(0) {
                error @ Error::Paused { .. } => break error,
                error => own.push(error.to_string()),
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it is never paused");
        };
        // The client whose text it was may read the provider's words.
        assert!(own.iter().all(|error| error.contains("the stub says")), "{own:?}");
        let request = of(&embedder, Urgency::Query, "b", 2, &["a question".to_string()]);
        let other = errors(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()).remove(0);
        for error in [&paused, &other] {
            assert!(matches!(error, Error::Paused { of_tenant: false, .. }), "{error}");
            assert!(error.to_string().contains(&fault.status().to_string()), "{error}");
            assert!(!error.to_string().contains("the stub says"), "{error}");
        }
    }
}

#[test]
fn a_providers_message_about_texts_of_several_tenants_is_shown_to_none() {
    // The stub's message repeats what it was sent.
    let (stub, gateway) = (self::stub(0), Gateway::new());
    stub.always(Some(Fault::Status(403)));
    let embedder = self::embedder(&stub, "openai", json!({}));
    for is_shared in [false, true] {
        let texts = ["of tenant a".to_string(), "of tenant b".to_string()];
        let request = EmbedRequest { is_shared, ..of(&embedder, Urgency::Ingest, "a", 1, &texts) };
        for error in errors(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()) {
            assert!(error.to_string().contains("403"), "{error}");
            assert_eq!(error.to_string().contains("the stub says"), !is_shared, "{error}");
        }
    }
}

/// Days since 1970.
fn today() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400
}

#[test]
fn a_tenant_that_spent_its_share_of_the_budget_waits_and_the_others_go_on() {
    on_one_day();
    let config = json!({"daily_token_budget": 20, "tenant_share": 0.5, "batch_size": 4});
    for urgency in [Urgency::Ingest, Urgency::Bulk, Urgency::Query] {
        let (stub, gateway) = (stub(0), Gateway::new());
        let embedder = embedder(&stub, "openai", config.clone());
        // The stub counts one token per word.
        let ask = |tenant: &str, spent: Spent, texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let mut request = of(&embedder, urgency, tenant, 1, &texts);
            request.tokens = texts.iter().map(|text| text.split(' ').count() as u32).collect();
            request.access.spent = spent;
            gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()
        };
        let none = Spent::default();
        assert_eq!(ask("a", none, &["one two three four", "five six seven eight"]).failed, []);
        // Nothing more of this tenant is sent.
        let refused = ask("a", none, &["one two three"]);
        assert_eq!(refused.usage.requests, 0, "{urgency:?}");
        let error = errors(refused).remove(0);
        let Error::Paused { problem, of_tenant, retry_after_ms, .. } = &error else { panic!("{error}") };
        assert!(*of_tenant && problem.contains("tenant_share"), "{error}");
        assert!((1..=86_400_000).contains(retry_after_ms));
        assert_eq!(ask("b", none, &["one two three", "four"]).failed, [], "{urgency:?}");
        // The spending that its database knows counts for a gateway that has just started.
        let known = Spent { day: today(), tokens: 12, by_tenant: 9, ..Spent::default() };
        assert!(matches!(errors(ask("c", known, &["one two"]))[..], [Error::Paused { of_tenant: true, .. }]));
        assert_eq!(ask("c", known, &["one"]).failed, []);
        // A single text that exceeds the share of any day does not wait for tomorrow.
        let error = errors(ask("d", none, &["1 2 3 4 5 6 7 8 9 10 11"])).remove(0);
        assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
        // The whole budget applies to all together.
        let error = errors(ask("d", none, &["1 2 3 4 5 6 7 8 9 10"])).remove(0);
        assert!(matches!(error, Error::Paused { of_tenant: false, .. }), "{error}");
    }
}

#[test]
fn texts_that_are_not_sent_or_are_refused_use_nothing_of_a_tenants_share() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let config = json!({"daily_token_budget": 20, "tenant_share": 0.5, "retry": {"max_attempts": 1}});
    let embedder = embedder(&stub, "openai", config);
    for urgency in [Urgency::Ingest, Urgency::Query] {
        stub.always(Some(Fault::Status(400)));
        for _ in 0..5 {
            let mut request = of(&embedder, urgency, "a", 1, &["one two three four".to_string()]);
            request.tokens = vec![4];
            let error = errors(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()).remove(0);
            assert!(matches!(error, Error::Provider { .. }), "{error}");
        }
        stub.always(None);
        let mut request = of(&embedder, urgency, "a", 1, &["one two three four".to_string()]);
        request.tokens = vec![4];
        assert_eq!(gateway.runtime.block_on(gateway.queues.embed(request)).unwrap().failed, []);
    }
}

#[test]
fn no_request_asks_for_a_larger_answer_than_is_read_at_once() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let mut embedder = embedder(&stub, "openai", json!({"batch_size": 4096}));
    embedder.dimension = 4000;
    let request = of(&embedder, Urgency::Ingest, "", 1, &texts("text", 300));
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    // All fail, because the stub's vectors have 8 numbers; this test is about what was sent.
    assert_eq!(embedded.failed.len(), 300);
    assert!(stub.requests().iter().all(|seen| seen.texts.len() <= 131), "a request of more than 16 MiB");
}
