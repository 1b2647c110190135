//! Every fault of the stub with every reranker, and with every chat model that rates texts.

use super::{Gateway, assert_close, by_chat, expected, question, stub, texts};
use crate::stub::{Fault, Stub};
use crate::support::KEY;
use kb_gateway::provider::names;
use kb_gateway::rerank::Question;
use kb_types::ServiceKind;
use serde_json::{Value, json};
use std::time::Duration;

const TEXTS: usize = 5;
/// The number of refusals in a row after which a call no longer waits.
const REFUSALS: usize = 10;

/// A way to have texts scored: by a reranker, or by a chat model in one call or in one call per text.
#[derive(Debug, Clone, Copy)]
struct Way {
    provider: &'static str,
    /// Of a chat model.
    scoring: Option<&'static str>,
}

impl Way {
    fn all() -> Vec<Way> {
        let rerankers =
            names(ServiceKind::Reranker).into_iter().map(|provider| Way { provider, scoring: None });
        let chat_models = names(ServiceKind::Llm)
            .into_iter()
            .flat_map(|provider| ["batch", "single"].map(|scoring| Way { provider, scoring: Some(scoring) }));
        rerankers.chain(chat_models).collect()
    }

    /// One request is made at a time.
    fn question(self, stub: &Stub, mut config: Value) -> Question {
        config["max_concurrency"] = json!(1);
        match self.scoring {
            Some(scoring) => by_chat(stub, self.provider, scoring, config, TEXTS),
            None => question(stub, self.provider, config, TEXTS),
        }
    }

    fn expected(self) -> Vec<f64> {
        expected(&texts(TEXTS), if self.scoring.is_some() { 10.0 } else { 1.0 })
    }

    /// The number of requests if nothing goes wrong.
    fn requests(self) -> usize {
        if self.scoring == Some("single") { TEXTS } else { 1 }
    }

    /// Whether the stub has this fault for it.
    fn has(self, fault: &Fault) -> bool {
        match fault {
            // OpenAI's own models answer null, which is no fault of the answer. For a reranker, one score is
            // missing then.
            Fault::Null => ["ollama", "anthropic", "gemini"].contains(&self.provider),
            Fault::WrongCount => self.scoring.is_some(),
            Fault::NaN | Fault::WrongDimension | Fault::Shuffled => self.scoring.is_none(),
            _ => true,
        }
    }

    /// How errors begin.
    fn name(self) -> String {
        match self.scoring {
            Some(_) => "llm \"talker\": ".into(),
            None => format!("reranker \"{} at the stub\": ", self.provider),
        }
    }
}

/// The faults after which the same request may be answered.
fn passing() -> Vec<Fault> {
    vec![
        Fault::Status(500),
        Fault::Status(503),
        Fault::CloseMidway,
        Fault::CloseAtOnce,
        Fault::Truncated,
        Fault::NaN,
        Fault::Null,
        Fault::WrongCount,
        Fault::WrongDimension, // an index that no text has
        Fault::NotJson,
        Fault::Says(r#"{"error": {"message": "Provider returned error", "code": 502}}"#.into()),
        Fault::Says(
            r#"{"choices": [{"error": {"message": "upstream is gone"}, "message": {"content": ""}}]}"#.into(),
        ),
        Fault::Huge,
        Fault::RetryAfter { status: 429, seconds: 0 },
        Fault::RetryAfterDate { status: 429, seconds: 0 },
    ]
}

#[test]
fn a_fault_that_passes_is_tried_again() {
    for way in Way::all() {
        let (gateway, stub) = (Gateway::new(), stub());
        for fault in passing().into_iter().filter(|fault| way.has(fault)) {
            stub.forget();
            stub.script(fault.clone(), 1);
            let (got, usage) = gateway.rerank(way.question(&stub, json!({})));
            let got = got.unwrap_or_else(|error| panic!("{way:?}: {fault:?}: {error}"));
            assert_close(&got, &way.expected(), &format!("{way:?}: {fault:?}"));
            let requests = (stub.request_count(), usage.retries);
            assert_eq!(requests, (way.requests() + 1, 1), "{way:?}: {fault:?}");
        }
        assert_eq!(stub.complaints(), [] as [String; 0], "{way:?}");
    }
}

#[test]
fn a_lasting_fault_is_returned_after_the_attempts_that_its_kind_deserves() {
    let lasting = [
        Fault::Status(400),
        Fault::Status(401),
        Fault::Says(r#"{"error": {"message": "no such key", "code": 401}}"#.into()),
        Fault::Says(r#"{"message": "invalid request"}"#.into()),
        Fault::Redirect("http://127.0.0.1:1/".into()),
    ];
    let is_refusal = |fault: &Fault| fault.status() == 429;
    let all = passing().into_iter().filter(|fault| !is_refusal(fault)).map(|fault| (fault, true, 2));
    let all: Vec<_> = all.chain(lasting.map(|fault| (fault, false, 1))).collect();
    for way in Way::all() {
        for (fault, is_passing, requests) in all.iter().filter(|(fault, ..)| way.has(fault)) {
            // A breaker that one fault opened must not affect the next.
            let (gateway, stub) = (Gateway::new(), stub());
            stub.always(Some(fault.clone()));
            let error = gateway.error(way.question(&stub, json!({})));
            let found = (error.is_transient(), stub.request_count());
            assert_eq!(found, (*is_passing, *requests), "{way:?}: {fault:?}: {error}");
            let says = error.to_string();
            assert!(says.starts_with(&way.name()) && !says.contains(KEY), "{way:?}: {fault:?}: {says}");
        }
    }
}

#[test]
fn one_that_always_asks_for_patience_is_paused_after_bounded_refusals() {
    for way in Way::all() {
        let (gateway, stub) = (Gateway::new(), stub());
        stub.always(Some(Fault::RetryAfter { status: 429, seconds: 0 }));
        let error = gateway.error(way.question(&stub, json!({})));
        let says = error.to_string();
        assert!(error.is_transient() && says.contains("is paused") && !says.contains(KEY), "{way:?}: {says}");
        assert_eq!(stub.request_count(), REFUSALS, "{way:?}");
    }
}

#[test]
fn an_answer_that_is_slow_compressed_or_in_another_order_is_accepted() {
    for way in Way::all() {
        let (gateway, stub) = (Gateway::new(), stub());
        let good = [Fault::Slow(Duration::from_millis(150)), Fault::Gzip, Fault::Shuffled];
        for fault in good.into_iter().filter(|fault| way.has(fault)) {
            stub.forget();
            stub.script(fault.clone(), 1);
            let (got, usage) = gateway.rerank(way.question(&stub, json!({})));
            assert_close(&got.unwrap(), &way.expected(), &format!("{way:?}: {fault:?}"));
            let requests = (stub.request_count(), usage.retries);
            assert_eq!(requests, (way.requests(), 0), "{way:?}: {fault:?}");
        }
    }
}

#[test]
fn a_text_without_a_score_is_last_and_nothing_is_asked_again() {
    for way in Way::all().into_iter().filter(|way| way.scoring.is_none()) {
        // The first text's score is null, or the last one's is missing.
        for (fault, missing) in [(Fault::Null, 0), (Fault::WrongCount, TEXTS - 1)] {
            let (gateway, stub) = (Gateway::new(), stub());
            stub.always(Some(fault.clone()));
            let mut expected = way.expected();
            expected[missing] = 0.0;
            let got = gateway.scores(way.question(&stub, json!({})));
            assert_close(&got, &expected, &format!("{way:?}: {fault:?}"));
            assert_eq!(stub.request_count(), 1, "{way:?}: {fault:?}");
        }
    }
}

#[test]
fn one_that_hangs_is_left_after_its_timeout() {
    for way in Way::all() {
        let (gateway, stub) = (Gateway::new(), stub());
        // It would answer after all.
        stub.always(Some(Fault::Slow(Duration::from_secs(20))));
        let config = json!({"timeout_ms": 200, "retry": {"max_attempts": 1}});
        let error = gateway.error(way.question(&stub, config));
        assert!(error.is_transient(), "{way:?}: {error}");
        assert!(error.to_string().starts_with(&way.name()), "{way:?}: {error}");
        assert_eq!(stub.request_count(), 1, "{way:?}");
    }
}

#[test]
fn a_chat_model_that_says_nothing_has_rated_nothing_and_is_not_asked_again() {
    let (gateway, stub) = (Gateway::new(), stub());
    stub.always(Some(Fault::Null));
    let error = gateway.error(by_chat(&stub, "openai", "batch", json!({}), 3));
    assert!(error.to_string().starts_with("reranker \"judge\": ") && error.is_transient(), "{error}");
    assert_eq!(stub.request_count(), 1, "what it said is paid for");
    assert_eq!(gateway.scores(by_chat(&stub, "openai", "single", json!({}), 3)), [0.0; 3]);
}

#[test]
fn a_breaker_that_reranking_opened_stops_nothing_else_at_the_same_address() {
    let (gateway, stub) = (Gateway::new(), stub());
    stub.always(Some(Fault::Status(500)));
    let error = loop {
        let error = gateway.error(question(&stub, "jina", json!({}), 2));
        if error.to_string().contains("paused") {
            break error;
        }
    };
    assert!(error.is_transient());
    stub.always(None);
    let before = stub.request_count();
    gateway.error(question(&stub, "jina", json!({}), 2));
    assert_eq!(stub.request_count(), before, "nothing is sent");
    // The same address, for another purpose.
    let mut other = question(&stub, "jina", json!({"path": "/rerank"}), 2);
    other.reranker.config.remote.path = Some("/other".into());
    gateway.error(other);
    assert_eq!(stub.request_count(), before + 1, "another path has another breaker");
}

#[test]
fn one_fault_ends_a_series_of_calls_for_single_texts() {
    let (gateway, stub) = (Gateway::new(), stub());
    stub.always(Some(Fault::Status(401)));
    let error = gateway.error(by_chat(&stub, "openai", "single", json!({"max_concurrency": 2}), 50));
    assert!(error.to_string().contains("llm \"talker\"") && !error.is_transient(), "{error}");
    assert!(stub.request_count() <= 4, "{}", stub.request_count());
}
