//! Faults of providers and of the network, and what the caller sees of them.

use crate::stub::{Fault, Options, Stub, vector};
use crate::support::{Gateway, KEY, close, embedder, request, rows};
use kb_gateway::endpoint::access::EgressSettings;
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::{Reference, Sources};
use kb_gateway::protocol::EmbedReply;
use kb_gateway::turns::Urgency;
use kb_types::embedder::{Embedder, Kind};
use kb_types::error::Error;
use serde_json::json;
use std::time::{Duration, Instant};

fn start() -> (Stub, Gateway, Embedder) {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let embedder = embedder(&stub, "openai", json!({}));
    (stub, Gateway::new(), embedder)
}

/// The texts that failed, by position.
fn failed(embedded: &EmbedReply) -> Vec<u32> {
    embedded.failed.iter().map(|(text, _)| *text).collect()
}

#[test]
fn a_batch_refused_for_one_text_is_halved_until_that_text_is_alone() {
    for status in [400, 413, 422] {
        let (stub, gateway, embedder) = start();
        stub.refuse_text("bad", Fault::Status(status));
        let texts: Vec<String> =
            (0..96).map(|i| if i == 37 { "the bad one".into() } else { format!("text {i}") }).collect();
        let embedded = gateway.ask(&embedder, Kind::Document, &texts).unwrap();
        assert_eq!(failed(&embedded), [37], "{status}");
        let error: Error = embedded.failed[0].1.clone().into();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        let good = texts.iter().filter(|text| !text.contains("bad"));
        for (text, got) in good.zip(rows(&embedded)) {
            assert!(close(&got, &vector(text, 8)), "{text}");
            assert_eq!(stub.answered(text), 1, "{text} was paid for more than once");
        }
        // Seven halvings of 96 texts with two requests each, the first request, and one that tests whether
        // the texts are at fault.
        assert!(stub.request_count() <= 16, "{}", stub.request_count());
    }
}

#[test]
fn a_provider_that_refuses_everything_is_not_asked_for_each_text() {
    let (stub, gateway, embedder) = start();
    stub.always(Some(Fault::Status(400)));
    let texts: Vec<String> = (0..96).map(|i| format!("text {i}")).collect();
    let embedded = gateway.ask(&embedder, Kind::Document, &texts).unwrap();
    assert_eq!(embedded.failed.len(), 96);
    assert_eq!(stub.request_count(), 2);
}

#[test]
fn a_lasting_fault_is_not_tried_again() {
    for fault in [Fault::Status(401), Fault::Status(403), Fault::Status(404), Fault::WrongDimension] {
        let (stub, gateway, embedder) = start();
        stub.always(Some(fault.clone()));
        let (error, usage) = gateway.error(&embedder, "a");
        assert!(matches!(error, Error::Provider { passing: false, .. }), "{fault:?}: {error}");
        assert_eq!(stub.request_count(), 1, "{fault:?}");
        assert_eq!((usage.requests, usage.retries), (1, 0), "{fault:?}");
    }
}

#[test]
fn a_passing_fault_is_tried_again_as_often_as_the_config_specifies() {
    for fault in [
        Fault::Status(500),
        Fault::Status(502),
        Fault::Status(503),
        Fault::CloseMidway,
        Fault::CloseAtOnce,
        Fault::Truncated,
        Fault::NotJson,
        Fault::Says(r#"{"error": "the model runner has stopped"}"#.into()),
        Fault::Huge,
    ] {
        let (stub, gateway, embedder) = start();
        stub.script(fault.clone(), 2);
        let embedded = gateway.ask(&embedder, Kind::Document, &["a", "b"]).unwrap();
        assert_eq!(embedded.failed, [], "{fault:?}");
        assert!(close(&rows(&embedded)[1], &vector("b", 8)), "{fault:?}");
        assert_eq!((embedded.usage.requests, embedded.usage.retries), (3, 2), "{fault:?}");
        stub.forget();
        stub.always(Some(fault.clone()));
        let (error, usage) = gateway.error(&embedder, "a");
        assert!(matches!(error, Error::Provider { passing: true, .. }), "{fault:?}: {error}");
        assert_eq!((stub.request_count(), usage.requests, usage.retries), (3, 3, 2), "{fault:?}");
    }
}

#[test]
fn a_vector_that_is_no_vector_fails_its_text_alone() {
    for fault in [Fault::NaN, Fault::ZeroVector] {
        let (stub, gateway, embedder) = start();
        stub.always(Some(fault.clone()));
        let embedded = gateway.ask(&embedder, Kind::Document, &["a", "b"]).unwrap();
        match fault {
            // "NaN" is not JSON, so the whole answer is unreadable.
            Fault::NaN => assert_eq!(failed(&embedded), [0, 1]),
            _ => {
                assert_eq!(failed(&embedded), [0]);
                assert!(close(&rows(&embedded)[0], &vector("b", 8)));
            }
        }
    }
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let in_base64 = embedder(&stub, "openai", json!({"encoding_format": "base64"}));
    stub.always(Some(Fault::NaN));
    let embedded = Gateway::new().ask(&in_base64, Kind::Document, &["a", "b"]).unwrap();
    assert_eq!(failed(&embedded), [0]);
}

#[test]
fn shuffled_and_gzipped_answers_are_read_right() {
    for fault in [Fault::Shuffled, Fault::Gzip] {
        let (stub, gateway, embedder) = start();
        stub.always(Some(fault));
        let vectors = gateway.vectors(&embedder, Kind::Document, &["a", "b", "c"]);
        for (text, got) in ["a", "b", "c"].iter().zip(&vectors) {
            assert!(close(got, &vector(text, 8)), "{text}");
        }
    }
}

#[test]
fn too_many_requests_is_waited_for_and_no_failure() {
    for fault in [
        Fault::RetryAfter { status: 429, seconds: 1 },
        Fault::RetryAfterDate { status: 429, seconds: 1 },
        Fault::RetryAfter { status: 503, seconds: 1 },
    ] {
        let (stub, gateway, embedder) = start();
        // More often than a fault would be tried again.
        stub.script(fault.clone(), 2);
        let begun = Instant::now();
        let embedded = gateway.ask(&embedder, Kind::Document, &["a"]).unwrap();
        assert_eq!(embedded.failed, [], "{fault:?}");
        assert!(begun.elapsed() >= Duration::from_millis(1900), "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(stub.request_count(), 3);
    }
    // Without Retry-After, the pauses of the config apply, which are longer than faults are tried.
    let (stub, gateway, embedder) = start();
    stub.script(Fault::Status(429), 6);
    assert_eq!(gateway.ask(&embedder, Kind::Document, &["a"]).unwrap().failed, []);
}

#[test]
fn a_long_retry_after_gives_the_text_back_and_nothing_is_sent_meanwhile() {
    let (stub, gateway, embedder) = start();
    stub.script(Fault::RetryAfter { status: 429, seconds: 3600 }, 1);
    for _ in 0..3 {
        let (error, _) = gateway.error(&embedder, "a");
        let Error::Paused { retry_after_ms, .. } = error else { panic!("{error}") };
        assert!(retry_after_ms > 3_500_000);
    }
    assert_eq!(stub.request_count(), 1);
}

#[test]
fn a_slow_answer_is_waited_for_and_none_ends_at_the_timeout() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let gateway = Gateway::new();
    let config = json!({"timeout_ms": 400, "retry": {"max_attempts": 2, "base_ms": 1, "max_ms": 1}});
    let embedder = embedder(&stub, "openai", config);
    stub.script(Fault::Slow(Duration::from_millis(150)), 1);
    gateway.vectors(&embedder, Kind::Document, &["a"]);
    stub.always(Some(Fault::Never));
    let begun = Instant::now();
    let (error, usage) = gateway.error(&embedder, "b");
    assert!(matches!(error, Error::Provider { passing: true, .. }), "{error}");
    assert!(error.to_string().contains("in time"), "{error}");
    assert_eq!(usage.requests, 2);
    assert!(begun.elapsed() >= Duration::from_millis(790));
}

#[test]
fn a_breaker_opens_after_repeated_faults_and_sends_nothing_while_open() {
    let (stub, gateway, embedder) = start();
    stub.always(Some(Fault::Status(500)));
    while !matches!(gateway.error(&embedder, "a").0, Error::Paused { .. }) {}
    let sent = stub.request_count();
    assert!(sent <= 6, "{sent}");
    assert_eq!(gateway.queues.open_breakers(), 1);
    for _ in 0..10 {
        let (error, usage) = gateway.error(&embedder, "a");
        assert!(matches!(error, Error::Paused { .. }), "{error}");
        assert_eq!(usage.requests, 0);
    }
    assert_eq!(stub.request_count(), sent);
    // When the endpoint works again, the first request after the pause finds out.
    stub.always(None);
    let begun = Instant::now();
    while !gateway.ask(&embedder, Kind::Document, &["a"]).unwrap().failed.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the breaker never closed");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.queues.open_breakers(), 0);
}

#[test]
fn a_refused_connection_is_a_passing_fault() {
    let (stub, gateway, embedder) = start();
    drop(stub);
    let (error, _) = gateway.error(&embedder, "a");
    assert!(matches!(error, Error::Provider { passing: true, .. }), "{error}");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[test]
fn a_redirect_is_not_followed_and_the_key_goes_nowhere_else() {
    let (stub, gateway, embedder) = start();
    let other = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    stub.always(Some(Fault::Redirect(format!("{}/embeddings", other.base_url("openai")))));
    let (error, usage) = gateway.error(&embedder, "a");
    assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", other.port())), "{error}");
    assert_eq!((usage.requests, other.request_count()), (1, 0));
}

#[test]
fn no_error_repeats_the_key() {
    let (stub, gateway, embedder) = start();
    let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["a"]);
    let wrong = "sk-wrong-9876543210-secret";
    request.access.stored = Some(Secret::new(wrong));
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    let error: Error = embedded.failed[0].1.clone().into();
    // The stub repeats the key that it was given, as providers do.
    assert!(error.to_string().contains("***"), "{error}");
    assert!(!format!("{error:?}").contains("9876543210"), "{error:?}");
    assert_eq!(stub.request_count(), 1);
}

#[test]
fn a_secret_goes_to_no_other_host_than_the_one_it_is_bound_to() {
    let (stub, gateway, embedder) = start();
    for host in [None, Some("127.0.0.1:1".to_string()), Some("api.openai.com:443".to_string())] {
        let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["a"]);
        request.access.host = host;
        let error = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap_err();
        assert!(error.to_string().contains("not bound"), "{error}");
    }
    assert_eq!(stub.request_count(), 0);
}

#[test]
fn a_host_that_is_not_allowed_is_not_connected_to() {
    let (stub, _, mut embedder) = start();
    let allowed_hosts = AllowedHosts::parse("api.openai.com").unwrap();
    let gateway = Gateway::with(EgressSettings { allowed_hosts, ..EgressSettings::default() });
    let error = gateway.ask(&embedder, Kind::Document, &["a"]).unwrap_err();
    assert!(error.to_string().contains("kb.allowed_hosts"), "{error}");
    embedder.base_url = Some("http://169.254.169.254/v1".into());
    let error = Gateway::new().ask(&embedder, Kind::Document, &["a"]).unwrap_err();
    assert!(error.to_string().contains("link-local"), "{error}");
    assert_eq!(stub.request_count(), 0);
}

#[test]
fn a_key_file_is_read_again_for_every_request() {
    let (stub, _, embedder) = start();
    let dir = tempfile::tempdir().unwrap();
    let secrets = Sources { dir: Some(dir.path().into()), ..Sources::default() };
    let settings = EgressSettings { secrets, ..EgressSettings::default() };
    let gateway = Gateway::with(settings);
    let ask = || {
        let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["a"]);
        request.access.reference = Some(Reference::File("openai".into()));
        request.access.stored = None;
        gateway.runtime.block_on(gateway.queues.embed(request))
    };
    assert!(ask().unwrap_err().to_string().contains("openai"));
    std::fs::write(dir.path().join("openai"), "sk-old").unwrap();
    assert_eq!(ask().unwrap().failed.len(), 1);
    std::fs::write(dir.path().join("openai"), KEY).unwrap();
    assert_eq!(ask().unwrap().failed, []);
    assert_eq!(stub.request_count(), 2);
}

#[test]
fn a_text_that_a_provider_breaks_on_is_found_and_fails_alone() {
    let (stub, gateway, embedder) = start();
    stub.refuse_text("poison", Fault::Status(500));
    let texts: Vec<String> =
        (0..96).map(|i| if i == 60 { "the poison one".into() } else { format!("text {i}") }).collect();
    let embedded = gateway.ask(&embedder, Kind::Document, &texts).unwrap();
    assert_eq!(failed(&embedded), [60]);
    // The provider may be repaired some day, so the text is tried again another time.
    let error: Error = embedded.failed[0].1.clone().into();
    assert!(matches!(error, Error::Provider { passing: true, .. }), "{error}");
    assert!(texts.iter().filter(|text| !text.contains("poison")).all(|text| stub.answered(text) == 1));
    // Three tries, a probe, one request for each half, three tries of the text alone.
    assert!(stub.request_count() <= 21, "{}", stub.request_count());
    assert_eq!(gateway.queues.open_breakers(), 0);
}

#[test]
fn a_providers_message_about_one_clients_text_is_not_shown_to_another() {
    let stub = Stub::start(Options {
        key: Some(KEY.into()),
        latency: Duration::from_millis(100),
        ..Options::default()
    });
    let gateway = Gateway::new();
    let embedder = embedder(&stub, "openai", json!({"max_concurrency": 1}));
    stub.always(Some(Fault::Status(403)));
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..10)
            .map(|i| {
                let (gateway, embedder) = (&gateway, &embedder);
                scope.spawn(move || gateway.error(embedder, &format!("text of client {i}")).0.to_string())
            })
            .collect();
        let said: Vec<String> = asking.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(said.iter().all(|error| error.contains("403")), "{said:?}");
        // The first was sent alone, so its client reads everything; those that shared a request read only the
        // status.
        let told = said.iter().filter(|error| error.contains("the stub says")).count();
        assert!(told < 10 - told, "{said:?}");
    });
}
