//! Extraction services at the stub, over the gateway's own code: dialects, faults, limits, keys.

use crate::stub::{Fault, FileStub, scan};
use crate::support::KEY;
use kb_gateway::cancellation::CancellationToken;
use kb_gateway::endpoint::access::{Access, EgressSettings};
use kb_gateway::endpoint::budget::Spent;
use kb_gateway::endpoint::egress::{AllowedHosts, origin};
use kb_gateway::endpoint::pool::Endpoints;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::endpoint::usage::Usage;
use kb_gateway::file_reader;
use kb_gateway::provider::names;
use kb_gateway::services::{Caller, Services};
use kb_gateway::turns::{Urgency, Whose};
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, ExtractorConfig, ServiceText};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

struct Gateway {
    runtime: tokio::runtime::Runtime,
    services: Services,
}

impl Gateway {
    /// Provider http may connect to this machine only where it is named.
    fn new() -> Gateway {
        let settings = EgressSettings {
            allowed_hosts: AllowedHosts::parse("127.0.0.1").unwrap(),
            ..EgressSettings::default()
        };
        Gateway::with(settings)
    }

    fn with(settings: EgressSettings) -> Gateway {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Gateway { runtime, services: Services::new(Arc::new(Endpoints::new(settings))) }
    }

    fn read_as(&self, extractor: &Extractor, access: &Access, file: File) -> (Result<ServiceText>, Usage) {
        let mut usage = Usage::default();
        let caller = Caller {
            whose: Whose::default(),
            spent: access.spent,
            urgency: Urgency::Ingest,
            cancellation: CancellationToken::default(),
        };
        let text = file_reader::read(&self.services, extractor.clone(), access, file, &caller, &mut usage);
        (self.runtime.block_on(text), usage)
    }

    fn read(&self, extractor: &Extractor, text: &str) -> Result<ServiceText> {
        self.read_as(extractor, &access(extractor), image(text)).0
    }

    fn error(&self, extractor: &Extractor, text: &str) -> Error {
        self.read(extractor, text).unwrap_err()
    }
}

fn access(extractor: &Extractor) -> Access {
    Access {
        reference: Some(Reference::Stored("test".into())),
        stored: Some(Secret::new(KEY)),
        host: origin(extractor.base_url.as_deref().unwrap()),
        spent: Spent::default(),
    }
}

fn image(text: &str) -> File {
    File {
        name: Some("scan ü.png".into()),
        content_type: Some("image/png".into()),
        bytes: scan(text),
        max_text: 1 << 20,
        ..File::default()
    }
}

fn extractor(stub: &FileStub, provider: &str, config: Value) -> Extractor {
    let mut all = json!({"retry": {"max_attempts": 2, "base_ms": 1, "max_ms": 5}, "timeout_ms": 20000});
    if provider == "http" {
        let body = json!({"model": "{{model}}", "document": {
            "name": "{{filename}}", "url": "data:{{content_type}};base64,{{base64}}"}});
        let own = json!({"path": "/ocr", "send_as": "json", "body": body, "pages_pointer": "/pages",
                         "text_pointer": "/markdown", "text_type": "text/markdown"});
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    }
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    Extractor {
        id: format!("{provider} at the stub"),
        provider: provider.into(),
        model: "reader".into(),
        base_url: Some(stub.base_url(provider)),
        config: ExtractorConfig::parse(&all).unwrap(),
    }
}

#[test]
fn every_extraction_service_gets_its_own_dialect_and_its_text_has_pages() {
    let gateway = Gateway::new();
    for provider in names(ServiceKind::Extractor) {
        let stub = FileStub::start(Some(KEY));
        let extractor = extractor(&stub, provider, json!({}));
        let (text, usage) = gateway.read_as(&extractor, &access(&extractor), image("one & only\x0ctwo"));
        let text = text.unwrap();
        let pages: Vec<_> = text.pages.iter().filter(|page| page.number.is_some()).collect();
        assert_eq!(
            pages.iter().map(|page| page.number).collect::<Vec<_>>(),
            [Some(1), Some(2)],
            "{provider}"
        );
        assert!(pages[0].text.contains("one &") && pages[1].text.contains("two"), "{provider}: {pages:?}");
        assert_eq!((usage.requests, usage.texts, usage.retries), (1, 1, 0), "{provider}");
        assert_eq!(usage.tokens, text.size() as u64 / 4 + 1, "{provider}");
        let seen = stub.requests();
        assert_eq!(seen[0].content_type, "image/png", "{provider}");
        assert!(seen[0].name.ends_with(".png"), "{provider}: {}", seen[0].name);
        assert_eq!(stub.complaints(), [] as [String; 0], "{provider}");
        // What a check sends is an image, too.
        let (yes, _) = gateway.read_as(&extractor, &access(&extractor), file_reader::probe());
        assert!(yes.unwrap().pages.iter().any(|page| page.text.contains("yes")), "{provider}");
    }
}

#[test]
fn each_fault_of_an_extraction_service_is_classified() {
    let (gateway, stub) = (Gateway::new(), FileStub::start(Some(KEY)));
    for provider in names(ServiceKind::Extractor) {
        let quick = extractor(&stub, provider, json!({"timeout_ms": 300}));
        let extractor = extractor(&stub, provider, json!({}));
        // A fault that passes is tried again.
        for fault in [Fault::Status(500), Fault::CloseAtOnce, Fault::CloseMidway, Fault::Status(503)] {
            stub.script(fault.clone(), 1);
            assert!(gateway.read(&extractor, "a").is_ok(), "{provider}: {fault:?}");
        }
        let mut faults = vec![(Fault::Status(500), "it answered 500: the stub says 500")];
        if provider != "tika" {
            faults.push((Fault::NotJson, "not the JSON expected"));
        }
        for (fault, words) in faults {
            stub.script(fault.clone(), 2);
            let error = gateway.error(&extractor, "a");
            assert!(error.to_string().contains(words) && error.is_transient(), "{provider}: {error}");
            assert!(gateway.read(&extractor, "a").is_ok(), "{provider}");
        }
        stub.script(Fault::Never, 2);
        let error = gateway.error(&quick, "a");
        assert!(error.to_string().contains("in time") && error.is_transient(), "{provider}: {error}");
        // The file is refused: not a fault of the service, and not tried again.
        stub.forget();
        for (fault, words) in [
            (Fault::Status(422), "it answered 422"),
            (Fault::Status(400), "it answered 400"),
            (Fault::Status(415), "it answered 415"),
            (Fault::Huge, "more than 33554432 bytes of text"),
            (Fault::Redirect("http://elsewhere.example/".into()), "redirect to http://elsewhere.example"),
        ] {
            stub.script(fault.clone(), 1);
            let error = gateway.error(&extractor, "a");
            assert!(error.to_string().contains(words) && !error.is_transient(), "{provider}: {error}");
            assert!(!error.to_string().contains(KEY), "{error}");
        }
        assert_eq!(stub.requests().len(), 5, "{provider}");
        let mut short = image("ten letters");
        short.max_text = 5;
        let (error, _) = gateway.read_as(&extractor, &access(&extractor), short);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("more than 5 bytes of text") && !error.is_transient(), "{error}");
    }
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn an_extraction_service_that_throttles_or_keeps_failing_is_paused_and_recovers() {
    let (gateway, stub) = (Gateway::new(), FileStub::start(Some(KEY)));
    let throttled = extractor(&stub, "tika", json!({"rpm": 1000}));
    stub.script(Fault::RetryAfter { status: 429, seconds: 60 }, 1);
    let error = gateway.error(&throttled, "a");
    assert!(matches!(&error, Error::ServicePaused { .. }) && !error.is_of_the_work(), "{error}");
    let failing = extractor(&stub, "docling", json!({}));
    stub.always(Some(Fault::Status(500)));
    let mut faults = 0;
    let error = loop {
        match gateway.error(&failing, "a") {
            error @ Error::ServicePaused { .. } => break error,
            _ => faults += 1,
        }
        assert!(faults < 10, "the breaker does not open");
    };
    assert!(error.to_string().contains("keeps failing"), "{error}");
    let sent = stub.requests().len();
    gateway.error(&failing, "a");
    assert_eq!(stub.requests().len(), sent, "nothing is sent while the breaker is open");
    stub.always(None);
    while let Err(error) = gateway.read(&failing, "healed") {
        assert!(matches!(error, Error::ServicePaused { .. }), "{error}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The probe was sent first.
    assert_eq!((stub.seen("yes"), stub.seen("healed")), (1, 1));
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn a_file_goes_to_allowed_hosts_and_a_key_to_the_host_it_is_bound_to() {
    let stub = FileStub::start(Some(KEY));
    let tika = extractor(&stub, "tika", json!({}));
    let http = extractor(&stub, "http", json!({}));
    let elsewhere = Gateway::with(EgressSettings {
        allowed_hosts: AllowedHosts::parse("files.example").unwrap(),
        ..EgressSettings::default()
    });
    for extractor in [&tika, &http] {
        let error = elsewhere.error(extractor, "a");
        assert!(error.to_string().contains("kb.allowed_hosts") && !error.is_transient(), "{error}");
    }
    // A server that is told in a template what to do is reached on this machine only where it is named.
    let anywhere = Gateway::with(EgressSettings::default());
    let error = anywhere.error(&http, "a");
    assert!(error.to_string().contains("kb.allowed_hosts"), "{error}");
    assert!(anywhere.read(&tika, "a").is_ok());
    stub.forget();
    let gateway = Gateway::new();
    let foreign = Access { host: Some("https://files.example".into()), ..access(&tika) };
    let error = gateway.read_as(&tika, &foreign, image("a")).0.unwrap_err();
    assert!(error.to_string().contains("not bound"), "{error}");
    let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let quota =
        Access { spent: Spent { day, quota: Some(5), of_quota: 5, ..Spent::default() }, ..access(&tika) };
    let error = gateway.read_as(&tika, &quota, image("a")).0.unwrap_err();
    assert!(error.to_string().contains("5 tokens that this tenant may spend"), "{error}");
    assert!(matches!(error, Error::ServicePaused { .. }), "{error}");
    assert_eq!(stub.requests().len(), 0);
}

#[test]
fn at_most_as_many_files_as_the_config_says_are_under_way() {
    let (gateway, stub) = (Gateway::new(), FileStub::start(Some(KEY)));
    let extractor = extractor(&stub, "unstructured", json!({"max_concurrency": 2}));
    stub.hold(true);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|n| {
                scope.spawn({
                    let (gateway, extractor) = (&gateway, &extractor);
                    move || gateway.read(extractor, &format!("text {n}"))
                })
            })
            .collect();
        while stub.requests().len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        stub.hold(false);
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
    });
    assert_eq!((stub.requests().len(), stub.in_flight_max()), (6, 2));
}
