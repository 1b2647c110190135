//! The memory that clients may take in the gateway, over its socket, with the model `hash`. No PostgreSQL.

use kb_gateway::endpoint::access;
use kb_gateway::frame;
use kb_gateway::frame::{Envelope, Head, MAX_TEXT, MAX_VECTORS};
use kb_gateway::protocol::{Client, Request, Response};
use kb_gateway::server::{Server, Settings};
use kb_gateway::turns::Urgency;
use kb_types::embedder::{Embedder, EmbedderConfig, Kind};
use kb_types::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A gateway of the test's own.
struct Gateway {
    dir: tempfile::TempDir,
    _server: Server,
}

impl Gateway {
    fn start() -> Gateway {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            model_dir: PathBuf::new(),
            model_threads: 0,
            query_cache_size: 0,
            endpoints: access::EgressSettings::default(),
        };
        let server = Server::start(dir.path().join("socket").to_str().unwrap(), settings).unwrap();
        Gateway { dir, _server: server }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.dir.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }
}

fn embedder(dimension: usize) -> Embedder {
    Embedder {
        id: "hash".into(),
        provider: "hash".into(),
        model: "hash".into(),
        dimension,
        base_url: None,
        config: EmbedderConfig::default(),
    }
}

fn embed(urgency: Urgency, dimension: usize, texts: Vec<String>) -> Request {
    Request::Embed {
        embedder: embedder(dimension),
        access: Default::default(),
        kind: Kind::Document,
        urgency,
        texts,
        tokens: vec![],
        client: Client::default(),
        patience_ms: None,
    }
}

fn receive(stream: &mut UnixStream) -> std::io::Result<Envelope<Response>> {
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix)?;
        let mut content = vec![0; frame::frame_length(prefix).unwrap()];
        stream.read_exact(&mut content)?;
        let answer = frame::decode::<Response>(&content).unwrap();
        if answer.body != Response::Alive {
            return Ok(answer);
        }
    }
}

fn ask(stream: &mut UnixStream, request: &Request) -> Response {
    stream.write_all(&frame::encode_request(7, request).unwrap()).unwrap();
    receive(stream).unwrap().body
}

/// The most bytes that this process had in memory.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn a_client_that_reads_no_answers_takes_bounded_memory_and_delays_no_other() {
    let gateway = Gateway::start();
    let (mut deaf, mut other) = (gateway.connect(), gateway.connect());
    let before = peak();
    // Small requests whose answers have 840 MB. The two clients take turns.
    let (texts, count) = (vec!["a".to_string(); frame::max_texts(4000)], 100);
    let mut writer = deaf.try_clone().unwrap();
    std::thread::scope(|scope| {
        // This blocks while the gateway does not read on.
        scope.spawn(|| {
            for id in 0..count {
                let request = embed(Urgency::Bulk, 4000, texts.clone());
                writer.write_all(&frame::encode_request(id, &request).unwrap()).unwrap();
            }
        });
        for _ in 0..count {
            let answer = ask(&mut other, &embed(Urgency::Bulk, 4000, texts.clone()));
            assert!(matches!(answer, Response::Embedded(_)), "a bulk call is not answered");
        }
        let question = embed(Urgency::Query, 4000, vec!["a question".into()]);
        assert!(matches!(ask(&mut other, &question), Response::Embedded(_)));
        let grown = peak() - before;
        assert!(grown < 600 * 1024 * 1024, "{} MB in memory", grown / 1024 / 1024);
        // In the end it gets all its answers.
        let mut ids: Vec<u64> = (0..count).map(|_| receive(&mut deaf).unwrap().id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>());
    });
}

#[test]
fn frames_that_are_announced_and_do_not_come_hold_up_nobody() {
    let gateway = Gateway::start();
    let announced: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = gateway.connect();
            let numbers = [frame::MAX_FRAME as u32, MAX_VECTORS as u32, Urgency::Ingest as u32];
            stream.write_all(&numbers.map(u32::to_le_bytes).concat()).unwrap();
            stream
        })
        .collect();
    let mut other = gateway.connect();
    for (urgency, count) in [(Urgency::Query, 1), (Urgency::Bulk, 100), (Urgency::Ingest, 100)] {
        let request = embed(urgency, 384, vec!["a text".into(); count]);
        assert!(matches!(ask(&mut other, &request), Response::Embedded(_)), "{urgency:?}");
    }
    drop(announced);
}

#[test]
fn a_request_that_is_too_large_is_refused_or_ends_only_its_connection() {
    let gateway = Gateway::start();
    let mut client = gateway.connect();
    // The sender does not send it, and the gateway refuses one that is sent.
    let request = embed(Urgency::Bulk, 8, vec!["a".repeat(MAX_TEXT + 1)]);
    assert!(matches!(frame::encode_request(1, &request), Err(Error::TooLarge { .. })));
    let body = frame::encode(1, &request).unwrap();
    let head = |length: usize, answer: usize, urgency: Urgency| {
        [length, answer, urgency as usize].map(|number| (number as u32).to_le_bytes()).concat()
    };
    let mut send = |body: &[u8], urgency| {
        client.write_all(&head(body.len() - 4, MAX_VECTORS, urgency)).unwrap();
        client.write_all(&body[4..]).unwrap();
        match receive(&mut client).unwrap().body {
            Response::Error(fault) => Error::from(fault),
            other => panic!("{other:?}"),
        }
    };
    let error = send(&body, Urgency::Bulk);
    assert_eq!(error.sqlstate(), "54000", "{error}");
    // A bulk call does not count as a question because it says so, either.
    let many = frame::encode(1, embed(Urgency::Query, 8, vec!["a".into(), "b".into()])).unwrap();
    send(&many, Urgency::Query);
    // A header that announces too much ends the connection.
    client.write_all(&head(u32::MAX as usize, 0, Urgency::Bulk)).unwrap();
    let end = receive(&mut client).unwrap_err();
    assert!(matches!(end.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end}");
    let question = embed(Urgency::Query, 8, vec!["a question".into()]);
    assert!(matches!(ask(&mut gateway.connect(), &question), Response::Embedded(_)));
    assert_eq!(Head::SIZE, 12);
}
