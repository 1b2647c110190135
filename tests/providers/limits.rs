//! Rates, budgets, and the order of requests.

use crate::stub::{Options, Stub, on_one_day};
use crate::support::{Gateway, KEY, embedder, request, until_requests};
use kb_gateway::embed::queue_registry::EmbedRequest;
use kb_gateway::endpoint::budget::Spent;
use kb_gateway::turns::Urgency;
use kb_types::embedder::Kind;
use kb_types::error::Error;
use serde_json::json;
use std::time::{Duration, Instant, SystemTime};

fn stub(latency_ms: u64) -> Stub {
    let latency = Duration::from_millis(latency_ms);
    Stub::start(Options { key: Some(KEY.into()), latency, ..Options::default() })
}

#[test]
fn no_window_of_time_sees_more_requests_than_the_rate_allows() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"rpm": 1200, "batch_size": 1}));
    let texts: Vec<String> = (0..60).map(|i| format!("text {i}")).collect();
    gateway.vectors(&embedder, Kind::Document, &texts);
    let times: Vec<Instant> = stub.requests().iter().map(|seen| seen.at).collect();
    assert_eq!(times.len(), 60);
    // 1,200 a minute is one in 50 ms. A full bucket lets some pass at once at the beginning, and a busy
    // machine may delay requests on their way.
    let took = times[59] - times[0];
    assert!(took >= Duration::from_millis(50 * (60 - 12)), "{took:?}");
}

#[test]
fn no_more_requests_are_under_way_than_allowed() {
    let (stub, gateway) = (stub(20), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 3, "batch_size": 2}));
    let texts: Vec<String> = (0..60).map(|i| format!("text {i}")).collect();
    gateway.vectors(&embedder, Kind::Document, &texts);
    assert_eq!(stub.in_flight_max(), 3);
}

#[test]
fn requests_one_after_the_other_share_a_connection() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({}));
    for text in ["a", "b", "c", "d", "e"] {
        gateway.vectors(&embedder, Kind::Document, &[text]);
    }
    assert_eq!(stub.request_count(), 5);
    // A request may begin before the connection of the one before is back in the pool.
    assert!(stub.connections() < 5, "{} connections", stub.connections());
    assert!(stub.requests().iter().all(|seen| seen.version == hyper::Version::HTTP_11));
}

#[test]
fn a_query_goes_ahead_of_the_batches_that_wait() {
    let (stub, gateway) = (stub(50), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1, "batch_size": 1}));
    let texts: Vec<String> = (0..40).map(|i| format!("text {i}")).collect();
    std::thread::scope(|scope| {
        let ingestion = scope.spawn(|| gateway.vectors(&embedder, Kind::Document, &texts));
        until_requests(&stub, 3);
        let before = stub.request_count();
        let query = request(&embedder, Kind::Query, Urgency::Query, &["what?"]);
        let embedded = gateway.runtime.block_on(gateway.queues.embed(query)).unwrap();
        assert_eq!(embedded.failed, []);
        let sent = stub.request_count() - before;
        assert!(sent <= 5, "{sent} requests until the query was answered");
        ingestion.join().unwrap();
    });
}

#[test]
fn a_spent_budget_pauses_the_embedder_until_the_next_day() {
    on_one_day();
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"daily_token_budget": 20, "batch_size": 1}));
    // The stub counts one token per word.
    gateway.vectors(&embedder, Kind::Document, &["one two three four five"]);
    gateway.vectors(&embedder, Kind::Document, &["one two three four five six seven eight nine"]);
    let (error, usage) = gateway.error(&embedder, "one two three four five six seven eight nine");
    let Error::Paused { retry_after_ms, problem, .. } = error else { panic!("{error}") };
    assert!(problem.contains("daily_token_budget of 20"), "{problem}");
    assert!(retry_after_ms <= 86_400_000);
    assert_eq!((usage.requests, stub.request_count()), (0, 2));
    // The spending that the database knows counts for a gateway that has just started.
    let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["one"]);
    request.access.spent = Spent { day: today(), tokens: 20, ..Spent::default() };
    let gateway = Gateway::new();
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    assert!(matches!(embedded.failed[0].1.clone().into(), Error::Paused { .. }));
}

#[test]
fn no_request_has_more_tokens_than_a_day_may_spend_or_than_a_part_of_a_minute() {
    let texts: Vec<String> = (0..12).map(|i| format!("text {i} of ten tokens or so, as it seems")).collect();
    for (config, most) in [(json!({"daily_token_budget": 140}), 12), (json!({"tpm": 800, "rpm": 60000}), 10)]
    {
        for urgency in [Urgency::Ingest, Urgency::Query] {
            let (stub, gateway) = (stub(0), Gateway::new());
            let embedder = embedder(&stub, "openai", config.clone());
            let mut request = request(&embedder, Kind::Document, urgency, &texts);
            request.tokens = vec![10; 12];
            let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
            assert_eq!(embedded.failed, [], "{config} {urgency:?}");
            assert!(stub.requests().iter().all(|seen| seen.texts.len() <= most), "{config} {urgency:?}");
        }
    }
    // A budget of 0 pauses everything until it is raised.
    let (stub, gateway) = (self::stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"daily_token_budget": 0}));
    assert!(matches!(gateway.error(&embedder, "a").0, Error::Paused { .. }));
    assert_eq!(stub.request_count(), 0);
    // A single text that exceeds the budget of any day is refused, and does not wait for tomorrow.
    let (stub, gateway) = (self::stub(0), Gateway::new());
    let embedder = self::embedder(&stub, "openai", json!({"daily_token_budget": 3}));
    let (error, _) = gateway.error(&embedder, "a text that has more tokens than that");
    assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
    assert!(error.to_string().contains("daily_token_budget"), "{error}");
    assert_eq!(stub.request_count(), 0);
}

#[test]
fn no_token_is_lost_in_rounding() {
    let (stub, gateway) = (stub(50), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1}));
    // The stub counts words. The first text is sent alone, the others share a request.
    let texts = ["a", "b", "c d", "e", "f g h"];
    let used: u64 = std::thread::scope(|scope| {
        let asking: Vec<_> = texts
            .iter()
            .map(|text| {
                scope.spawn(|| gateway.ask(&embedder, Kind::Document, &[*text]).unwrap().usage.tokens)
            })
            .collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(used, 8);
    assert!(stub.request_count() < texts.len(), "none shared a request");
}

#[test]
fn a_query_that_hangs_holds_up_no_ingestion() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 2, "timeout_ms": 3000}));
    stub.script(crate::stub::Fault::Never, 1);
    std::thread::scope(|scope| {
        let query = request(&embedder, Kind::Query, Urgency::Query, &["what?"]);
        let hanging = scope.spawn(|| gateway.runtime.block_on(gateway.queues.embed(query)));
        until_requests(&stub, 1);
        gateway.vectors(&embedder, Kind::Document, &["a", "b"]);
        assert!(!hanging.is_finished(), "ingestion ended only after the query");
        hanging.join().unwrap().unwrap();
    });
}

/// Days since 1970.
fn today() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400
}

#[test]
fn ingestion_that_waits_for_tokens_holds_up_no_query() {
    let (stub, gateway) = (stub(0), Gateway::new());
    // One token a second: this batch waits for a day, however slow the machine is. There is room for one
    // request.
    let config = json!({"tpm": 60, "batch_size": 1, "max_concurrency": 1});
    let embedder = embedder(&stub, "openai", config);
    let asked = |kind, urgency, text: &str, tokens| {
        let request = EmbedRequest { tokens: vec![tokens], ..request(&embedder, kind, urgency, &[text]) };
        gateway.queues.embed(request)
    };
    gateway.runtime.block_on(async {
        let waiting = [
            (Kind::Document, Urgency::Ingest, "ingestion"),
            (Kind::Document, Urgency::Bulk, "a bulk call"),
            (Kind::Query, Urgency::Query, "a long question whose client leaves"),
        ];
        let mut waiting: Vec<_> = waiting
            .into_iter()
            .map(|(kind, urgency, text)| Box::pin(asked(kind, urgency, text, 86_400)))
            .collect();
        for waiting in &mut waiting {
            // Until it waits.
            let begun = tokio::time::timeout(Duration::from_millis(100), waiting).await;
            assert!(begun.is_err(), "it did not wait");
        }
        // The place of a question whose client has left passes to the next one.
        drop(waiting.pop());
        for question in ["what?", "when?"] {
            assert_eq!(asked(Kind::Query, Urgency::Query, question, 1).await.unwrap().failed, []);
        }
    });
    let sent: Vec<_> = stub.requests().into_iter().flat_map(|seen| seen.texts).collect();
    assert_eq!(sent, ["what?", "when?"]);
}

#[test]
fn a_bulk_call_waits_for_no_ingestion_of_the_same_embedder_that_waits_for_tokens() {
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"tpm": 60}));
    let asked = |urgency, text: &str, tokens| {
        let request = request(&embedder, Kind::Document, urgency, &[text]);
        gateway.queues.embed(EmbedRequest { tokens: vec![tokens], ..request })
    };
    gateway.runtime.block_on(async {
        let mut ingestion = Box::pin(asked(Urgency::Ingest, "ingestion", 86_400));
        let begun = tokio::time::timeout(Duration::from_millis(100), &mut ingestion).await;
        assert!(begun.is_err(), "it did not wait");
        assert_eq!(asked(Urgency::Bulk, "bulk", 2).await.unwrap().failed, []);
    });
    assert_eq!(stub.requests().into_iter().flat_map(|seen| seen.texts).collect::<Vec<_>>(), ["bulk"]);
}

#[test]
fn a_question_is_sent_first_of_the_requests_that_wait_for_a_rate() {
    let (stub, gateway) = (stub(0), Gateway::new());
    // One request a second, for which a hundred wait.
    let embedder = embedder(&stub, "openai", json!({"rpm": 60, "batch_size": 1}));
    let texts: Vec<String> = (0..100).map(|i| format!("text {i}")).collect();
    gateway.runtime.block_on(async {
        let ingestion = gateway.queues.embed(request(&embedder, Kind::Document, Urgency::Ingest, &texts));
        let bulk = gateway.queues.embed(request(&embedder, Kind::Document, Urgency::Bulk, &texts));
        let question = gateway.queues.embed(request(&embedder, Kind::Query, Urgency::Query, &["what?"]));
        tokio::select! {
            biased;
            _ = async { tokio::join!(ingestion, bulk) } => panic!("the question waited for all of them"),
            answer = question => assert_eq!(answer.unwrap().failed, []),
        }
    });
    assert!(stub.request_count() < 100, "{} requests until the question was answered", stub.request_count());
}

#[test]
fn ingestion_leaves_a_part_of_the_days_budget_to_questions() {
    on_one_day();
    let (stub, gateway) = (stub(0), Gateway::new());
    let embedder = embedder(&stub, "openai", json!({"daily_token_budget": 40, "batch_size": 1}));
    let asked = |urgency| {
        // The stub counts one token per word.
        let request = request(&embedder, Kind::Document, urgency, &["word"]);
        let request = EmbedRequest { tokens: vec![1], ..request };
        gateway.runtime.block_on(gateway.queues.embed(request)).unwrap()
    };
    for (urgency, answered) in [(Urgency::Ingest, 36), (Urgency::Bulk, 2), (Urgency::Query, 2)] {
        for _ in 0..answered {
            assert_eq!(asked(urgency).failed, [], "{urgency:?}");
        }
        let refused: Error = asked(urgency).failed.remove(0).1.into();
        assert!(matches!(refused, Error::Paused { of_tenant: false, .. }), "{urgency:?}: {refused}");
        assert!(refused.to_string().contains("daily_token_budget of 40"), "{refused}");
    }
    assert_eq!(stub.request_count(), 40);
}

#[test]
fn unused_endpoints_are_forgotten_but_not_the_spending_of_a_budget() {
    on_one_day();
    let (stub, gateway) = (stub(200), Gateway::new());
    let free = embedder(&stub, "openai", json!({}));
    let bound = embedder(&stub, "cohere", json!({"daily_token_budget": 7, "rpm": 60000}));
    // One host and key are one account, whatever the rates.
    gateway.vectors(&bound, Kind::Document, &["three tokens here"]);
    gateway.vectors(&free, Kind::Document, &["a"]);
    gateway.vectors(&free, Kind::Query, &["a"]);
    gateway.queues.forget_idle(Duration::from_secs(600));
    assert_eq!(gateway.queues.count(), 3, "they were asked just now");
    // An endpoint that is in use is not forgotten.
    std::thread::scope(|scope| {
        let asked = stub.request_count();
        let asking = scope.spawn(|| gateway.vectors(&free, Kind::Document, &["b"]));
        while stub.request_count() == asked && !asking.is_finished() {
            std::thread::yield_now();
        }
        gateway.queues.forget_idle(Duration::ZERO);
        assert_eq!(gateway.queues.count(), 1);
        asking.join().unwrap();
    });
    // The sweep would remove limits after their last queue has ended.
    for _ in 0..50 {
        gateway.queues.forget_idle(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(gateway.queues.count(), 0);
    // They are created again at the next request.
    gateway.vectors(&free, Kind::Document, &["c"]);
    let (error, _) = gateway.error(&bound, "two tokens");
    assert!(matches!(error, Error::Paused { .. }), "{error}");
}
