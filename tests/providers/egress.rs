//! The hosts to which the gateway connects and the keys that it reads, whatever the row of an embedder says.

use crate::stub::{Options, Stub};
use crate::support::{Gateway, KEY, embedder, request};
use kb_gateway::endpoint::access::EgressSettings;
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_gateway::endpoint::secret_reference::{Reference, Sources, Variables};
use kb_gateway::turns::Urgency;
use kb_types::embedder::Kind;
use kb_types::error::Error;
use serde_json::json;

#[test]
fn provider_http_does_not_reach_this_machine_unless_it_is_named() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let gateway = Gateway::new();
    let free = embedder(&stub, "http", json!({}));
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"] {
        let mut free = free.clone();
        free.base_url = Some(stub.base_url("http").replace("127.0.0.1", host));
        let error = gateway.ask(&free, Kind::Document, &["a"]).unwrap_err();
        assert!(matches!(error, Error::Provider { passing: false, .. }), "{error:?}");
        assert!(error.to_string().contains("kb.allowed_hosts"), "{host}: {error}");
    }
    assert_eq!(stub.request_count(), 0);
    // Other providers may reach it, and so may http once the host is named.
    gateway.vectors(&embedder(&stub, "openai", json!({})), Kind::Document, &["a"]);
    let allowed_hosts = AllowedHosts::parse("127.0.0.1").unwrap();
    gateway.queues.configure(EgressSettings { allowed_hosts, ..EgressSettings::default() });
    gateway.vectors(&free, Kind::Document, &["a"]);
    assert_eq!(stub.request_count(), 2);
    // But not when it is no longer named.
    gateway.queues.configure(EgressSettings::default());
    assert!(gateway.ask(&free, Kind::Document, &["a"]).is_err());
    assert_eq!(stub.request_count(), 2);
}

#[test]
fn a_variable_that_is_not_listed_is_never_sent_whatever_the_row_says() {
    let stub = Stub::start(Options::default());
    let embedder = embedder(&stub, "openai", json!({}));
    let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["a"]);
    // Every process has this variable.
    request.access.reference = Some(Reference::Env("PATH".into()));
    request.access.stored = None;
    let gateway = Gateway::new();
    let error = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap_err();
    assert!(error.to_string().contains("kb.secret_env"), "{error}");
    assert_eq!(stub.request_count(), 0);
}

#[test]
fn a_variable_that_is_listed_is_sent_as_the_key() {
    let path = std::env::var("PATH").unwrap();
    let stub = Stub::start(Options { key: Some(path), ..Options::default() });
    let embedder = embedder(&stub, "openai", json!({}));
    let mut request = request(&embedder, Kind::Document, Urgency::Ingest, &["a"]);
    request.access.reference = Some(Reference::Env("PATH".into()));
    request.access.stored = None;
    let secrets = Sources { variables: Variables::parse("PATH").unwrap(), ..Sources::default() };
    let gateway = Gateway::with(EgressSettings { secrets, ..EgressSettings::default() });
    let embedded = gateway.runtime.block_on(gateway.queues.embed(request)).unwrap();
    assert_eq!((embedded.failed, stub.complaints()), (vec![], vec![]));
}
