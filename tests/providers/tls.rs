//! TLS: the certificates that the gateway trusts, and HTTP/2.

use crate::stub::{Options, Stub};
use crate::support::{Gateway, KEY, embedder, request, rows};
use kb_gateway::turns::Urgency;
use kb_types::embedder::Kind;
use kb_types::error::Error;
use serde_json::json;
use std::process::Command;
use std::time::Duration;

/// The stub that the child process of a test is to ask.
const STUB_URL: &str = "KB_TEST_STUB_URL";

#[test]
fn a_certificate_that_is_not_trusted_is_refused_and_not_tried_again() {
    let stub = Stub::start(Options { key: Some(KEY.into()), tls: true, ..Options::default() });
    let (error, usage) = Gateway::new().error(&embedder(&stub, "openai", json!({})), "a");
    assert!(matches!(error, Error::Provider { passing: false, .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!((usage.requests, stub.request_count()), (1, 0));
}

/// A process reads the trusted certificates when its HTTP client is made, so this is done in a process of its
/// own.
#[test]
fn a_server_that_the_system_trusts_is_asked_by_http_2() {
    let latency = Duration::from_millis(50);
    let stub = Stub::start(Options { key: Some(KEY.into()), tls: true, latency, ..Options::default() });
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), stub.certificate().unwrap()).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::ask_many_at_once", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", trusted.path())
        .env(STUB_URL, stub.base_url("openai"))
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let requests = stub.requests();
    assert_eq!(requests.len(), 16);
    assert!(requests.iter().all(|seen| seen.version == hyper::Version::HTTP_2));
    assert!(stub.in_flight_max() > 1, "one after the other");
    assert_eq!(stub.connections(), 1);
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
#[ignore = "the child process of the test above"]
fn ask_many_at_once() {
    let stub = Stub::start(Options::default());
    let config = json!({"batch_size": 1, "max_concurrency": 16});
    let mut embedder = embedder(&stub, "openai", config);
    embedder.base_url = Some(std::env::var(STUB_URL).unwrap());
    let gateway = Gateway::new();
    // The first opens the connection that the others share.
    gateway.vectors(&embedder, Kind::Document, &["the first"]);
    let texts: Vec<String> = (0..15).map(|i| format!("text {i}")).collect();
    let request = request(&embedder, Kind::Document, Urgency::Ingest, &texts);
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    assert_eq!(embedded.failed, []);
    assert_eq!(rows(&embedded).len(), 15);
}
