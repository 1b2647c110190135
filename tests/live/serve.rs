//! kb serve: who may call and as whom, what rough clients and a restart of the database do, and how it stops.

use crate::program::{program, said};
use crate::support::{APP, Cluster, Db, SOON, signal, until};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

pub const LIST: &str = "/api/v0/knowledge-bases";
const SECRET: &str = "a secret of more than thirty-two bytes";
/// Megabytes of memory that the process may have, however its clients behave.
const MEMORY: usize = 200;

/// A process of kb serve on a port of its own.
pub struct Served {
    child: Child,
    pub address: String,
    log: Arc<Mutex<String>>,
}

impl Served {
    pub fn start(cluster: &Cluster, arguments: &[&str]) -> Served {
        Served::begin(Served::command(cluster, arguments))
    }

    fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
        let mut command = program(cluster);
        command.args(["-U", "kb_serve", "serve", "--listen", "127.0.0.1:0", "--role", "app_reader"]);
        command.args(arguments);
        command
    }

    fn begin(mut command: Command) -> Served {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (written, mut lines) = (log.clone(), BufReader::new(child.stderr.take().unwrap()).lines());
        std::thread::spawn(move || {
            while let Some(Ok(line)) = lines.next() {
                *written.lock().unwrap() += &format!("{line}\n");
            }
        });
        let mut address = String::new();
        until(SOON, "kb serve listens", || {
            let log = log.lock().unwrap();
            let after = log.split_once("://").and_then(|(_, rest)| rest.split_once('"'));
            address = after.map(|(address, _)| address.to_string()).unwrap_or_default();
            assert!(!log.contains("kb: error"), "{log}");
            !address.is_empty()
        });
        Served { child, address, log }
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Sends a request whose answer ends with the connection.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(request(method, path, headers, body).as_bytes()).unwrap();
        stream
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        Answered::read(self.send(method, path, headers, body))
    }

    pub fn get(&self, path: &str, authorization: Option<&str>) -> Answered {
        let headers: Vec<(&str, &str)> =
            authorization.map(|value| ("authorization", value)).into_iter().collect();
        self.ask("GET", path, &headers, "")
    }

    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    }

    fn signal(&self, number: i32) {
        signal(i32::try_from(self.child.id()).unwrap(), number);
    }

    fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        until(SOON, "kb serve ends", || {
            let ended = self.child.try_wait().unwrap();
            code = ended.and_then(|status| status.code());
            ended.is_some()
        });
        code
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    format!("{text}content-length: {}\r\n\r\n{body}", body.len())
}

pub struct Answered {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answered {
    pub fn read(mut stream: impl Read) -> Answered {
        let mut bytes = Vec::new();
        // The server may close a connection whose request it has not read to its end.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Answered { status, headers: headers.to_ascii_lowercase(), body: body.to_string() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// The roles of the pages of docs/, and a knowledge base of each of two tenants.
pub fn prepare(db: &mut Db) {
    db.run(
        "CREATE ROLE app_reader; GRANT kb_reader TO app_reader;
         CREATE ROLE kb_serve LOGIN NOINHERIT; GRANT app_reader TO kb_serve;
         GRANT USAGE ON SCHEMA kb TO kb_serve; GRANT EXECUTE ON FUNCTION kb.assume_api_key(text) TO kb_serve;
         SET kb.tenant = 'acme';
         SELECT kb.create_knowledge_base('of-acme', 'hash', retrieval => '{\"mode\": \"keyword\"}');
         SET kb.tenant = 'globex';
         SELECT kb.create_knowledge_base('of-globex', 'hash', retrieval => '{\"mode\": \"keyword\"}');
         RESET kb.tenant",
    );
}

pub fn key(db: &mut Db, tenant: &str, more: &str) -> String {
    let key: String = db.one(&format!(
        "SELECT kb.create_api_key('test', role_name => 'app_reader', tenant => '{tenant}'{more})"
    ));
    format!("Bearer {key}")
}

fn token(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&json!({"alg": "HS256"})), part(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = ring::hmac::sign(&key, message.as_bytes());
    format!("Bearer {message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Whether an answer has the knowledge base of this tenant alone.
fn is_of(answered: &Answered, tenant: &str) -> bool {
    let other = if tenant == "acme" { "of-globex" } else { "of-acme" };
    answered.status == 200
        && answered.body.contains(&format!("\"of-{tenant}\""))
        && !answered.body.contains(other)
}

/// Requests that wait for a lock.
fn waiting(db: &mut Db) -> i64 {
    db.count("pg_stat_activity WHERE application_name = 'kb serve' AND wait_event_type = 'Lock'")
}

/// A session that lets every list of knowledge bases wait.
fn locked(cluster: &Cluster) -> Db {
    let mut db = cluster.connect(APP);
    db.run("BEGIN; LOCK TABLE kb.knowledge_bases IN ACCESS EXCLUSIVE MODE");
    db
}

#[test]
fn every_kind_of_credential_acts_as_its_own_role_and_tenant() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    db.run(
        "CREATE ROLE ann LOGIN PASSWORD 'right' IN ROLE kb_reader; ALTER ROLE ann SET kb.tenant = 'globex';
         CREATE ROLE easy LOGIN IN ROLE kb_reader; CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'right'",
    );
    let hba = "local all ann scram-sha-256\nlocal all boss scram-sha-256\nlocal all all trust\n";
    std::fs::write(cluster.data().join("pg_hba.conf"), hba).unwrap();
    cluster.reload();
    let mut command =
        Served::command(&cluster, &["--pool", "1", "--basic", "--anonymous", "app_reader:acme"]);
    command.env("KB_SERVE_JWT_SECRET", SECRET);
    let served = Served::begin(command);
    let acme = key(&mut db, "acme", "");
    let globex = token(&json!({"role": "app_reader", "tenant": "globex", "exp": in_an_hour()}));
    let ann = basic("ann", "right");
    // One connection serves them all, so what one leaves behind, the next would have.
    for _ in 0..5 {
        for (tenant, authorization) in
            [("acme", Some(&acme)), ("globex", Some(&globex)), ("acme", None), ("globex", Some(&ann))]
        {
            let answered = served.get(LIST, authorization.map(String::as_str));
            assert!(is_of(&answered, tenant), "{tenant} {}: {}", answered.status, answered.body);
        }
    }
    let status = |authorization: &str| served.get(LIST, Some(authorization)).status;
    let wrong_key = format!("{}0", &acme[..acme.len() - 1]);
    assert!(wrong_key == acme || status(&wrong_key) == 401);
    assert_eq!(status("Bearer kb_"), 401);
    assert_eq!(status(&token(&json!({"role": "app_reader", "exp": 1}))), 401);
    assert_eq!(status(&token(&json!({"role": "kb_admin", "exp": in_an_hour()}))), 403);
    assert_eq!(status(&basic("ann", "wrong")), 401);
    assert_eq!(status(&basic("ann", "wrong")), 429, "the next attempt waits");
    // Where the database asks for no password, every password would be right.
    assert_eq!(status(&basic("easy", "anything")), 403);
    assert_eq!(status(&basic("boss", "right")), 403);
    // A key of a role that the server may not become.
    db.run("CREATE ROLE elsewhere IN ROLE kb_reader");
    let key: String = db.one("SELECT kb.create_api_key('x', role_name => 'elsewhere', tenant => 'acme')");
    assert_eq!(status(&format!("Bearer {key}")), 403);
    let log = served.log();
    for secret in [acme.as_str(), globex.as_str(), ann.as_str(), "right"] {
        assert!(!log.contains(secret.trim_start_matches("Bearer ")), "{log}");
    }
}

#[test]
fn without_credentials_nobody_may_call_and_a_revoked_key_is_wrong() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let served = Served::start(&cluster, &[]);
    let refused = served.get(LIST, None);
    assert_eq!(refused.status, 401);
    assert!(refused.headers.contains("www-authenticate: bearer"), "{}", refused.headers);
    assert!(refused.headers.contains("content-type: application/problem+json"), "{}", refused.headers);
    assert_eq!(refused.json()["status"], 401);
    let key = key(&mut db, "acme", ", requests_per_minute => 2");
    assert!(is_of(&served.get(LIST, Some(&key)), "acme"));
    assert_eq!(served.get(LIST, Some(&key)).status, 200);
    let slow = served.get(LIST, Some(&key));
    assert!(slow.status == 429 && slow.headers.contains("retry-after: "), "{}", slow.headers);
    db.run("SELECT kb.drop_api_key(key_id) FROM kb.api_keys");
    let other = Served::start(&cluster, &[]);
    assert_eq!(other.get(LIST, Some(&key)).status, 401);
    // A page of another origin may not even send.
    let headers = [("authorization", key.as_str()), ("origin", "https://evil.example.com")];
    assert_eq!(served.ask("POST", LIST, &headers, "{}").status, 403);
}

#[test]
fn a_login_with_more_rights_than_the_server_needs_is_refused() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let superuser = said(program(&cluster).args(["serve", "--role", "app_reader"])).complained(1);
    assert!(
        superuser.contains("is a superuser") && superuser.contains("CREATE ROLE kb_serve"),
        "{superuser}"
    );
    db.run("CREATE ROLE other; GRANT other TO kb_serve");
    let more =
        said(program(&cluster).args(["-U", "kb_serve", "serve", "--role", "app_reader"])).complained(1);
    assert!(more.contains("\"other\"") && more.contains("REVOKE"), "{more}");
    db.run("REVOKE other FROM kb_serve; ALTER ROLE kb_serve BYPASSRLS");
    let bypass =
        said(program(&cluster).args(["-U", "kb_serve", "serve", "--role", "app_reader"])).complained(1);
    assert!(bypass.contains("bypasses row security"), "{bypass}");
    db.run("ALTER ROLE kb_serve NOBYPASSRLS; REVOKE app_reader FROM kb_serve");
    let fewer =
        said(program(&cluster).args(["-U", "kb_serve", "serve", "--role", "app_reader"])).complained(1);
    assert!(fewer.contains("GRANT \"app_reader\" TO \"kb_serve\""), "{fewer}");
}

#[test]
fn a_client_that_leaves_cancels_its_statement() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let served = Served::start(&cluster, &["--anonymous", "app_reader:acme"]);
    let lock = locked(&cluster);
    let client = served.send("GET", LIST, &[], "");
    until(SOON, "the request waits for the lock", || waiting(&mut db) == 1);
    drop(client);
    until(SOON, "the statement is cancelled", || waiting(&mut db) == 0);
    drop(lock);
    assert!(is_of(&served.get(LIST, None), "acme"));
    until(SOON, "the log says so", || served.log().contains("status=499"));
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_and_says_so() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let served = Served::start(
        &cluster,
        &["--anonymous", "app_reader:acme", "--request-timeout", "1", "--log", "json"],
    );
    let lock = locked(&cluster);
    let late = served.get(LIST, None);
    // kb.http answers a cancelled statement with an error of SQL, which the server turns into an answer.
    assert_eq!(late.status, 504, "{}", late.body);
    assert_eq!(waiting(&mut db), 0);
    drop(lock);
    assert!(is_of(&served.get(LIST, None), "acme"));
    let log = served.log();
    let line = log.lines().find(|line| line.contains("504")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["method"], &line["path"], &line["status"]), (&json!("GET"), &json!(LIST), &json!(504)));
}

#[test]
fn rough_clients_do_no_harm_to_others() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let served =
        Served::start(&cluster, &["--anonymous", "app_reader:acme", "--max-body", "8", "--max-bodies", "64"]);
    // A header of 10 MB.
    let mut stream = served.connect();
    let line = format!("x-filler: {}\r\n", "y".repeat(1000));
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    let _ = (0..10_000).try_for_each(|_| stream.write_all(line.as_bytes()));
    // A body without an end.
    let mut stream = served.connect();
    let _ = stream.write_all(b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = format!("10000\r\n{}\r\n", "z".repeat(65_536));
    let sent = (0..4096).try_for_each(|_| stream.write_all(chunk.as_bytes()));
    assert!(sent.is_err(), "the server has read 256 MB of a body");
    // One that says that it is too long is refused before it is sent.
    let mut stream = served.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999\r\n\r\n").unwrap();
    assert_eq!(Answered::read(stream).status, 413);
    // Connections that send half of a request, and bodies of which a half arrives.
    let half: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut stream = served.connect();
            let begun = if number % 2 == 0 {
                "GET / HT".to_string()
            } else {
                format!(
                    "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2000000\r\n\r\n{}",
                    "x".repeat(500_000)
                )
            };
            let _ = stream.write_all(begun.as_bytes());
            stream
        })
        .collect();
    assert!(is_of(&served.get(LIST, None), "acme"));
    drop(half);
    let memory = served.memory();
    assert!(memory < MEMORY, "{memory} MB");
    // No HTTP at all.
    let mut stream = served.connect();
    let _ = stream.write_all(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n");
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(is_of(&served.get(LIST, None), "acme"));
}

#[test]
fn two_hundred_clients_are_answered_at_the_same_time() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let served = Served::start(&cluster, &["--anonymous", "app_reader:acme", "--pool", "4"]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..200)
            .map(|_| scope.spawn(|| (0..3).map(|_| served.get(LIST, None).status).collect::<Vec<u16>>()))
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(statuses, vec![200; 600]);
    assert!(served.memory() < MEMORY, "{} MB", served.memory());
    let connections = db.count("pg_stat_activity WHERE application_name = 'kb serve'");
    assert!(connections <= 4, "{connections} connections to the database");
}

#[test]
fn a_killed_backend_fails_its_request_and_the_next_ones_succeed() {
    let (cluster, mut db) = crate::crashing!();
    prepare(&mut db);
    let served = Served::start(&cluster, &["--anonymous", "app_reader:acme"]);
    assert!(is_of(&served.get(LIST, None), "acme"));
    let lock = locked(&cluster);
    let client = served.send("GET", LIST, &[], "");
    until(SOON, "the request waits for the lock", || waiting(&mut db) == 1);
    let pid: i32 = db.one(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'kb serve' AND wait_event_type = 'Lock'",
    );
    signal(pid, libc::SIGKILL);
    let failed = Answered::read(client);
    assert_eq!(failed.status, 503, "{}", failed.body);
    drop(lock);
    let _db = cluster.reconnect_after_crash(db);
    until(SOON, "requests succeed again", || is_of(&served.get(LIST, None), "acme"));
    assert_eq!(served.get("/ready", None).status, 200);
}

#[test]
fn a_stop_lets_requests_end_and_takes_no_more() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let mut served = Served::start(&cluster, &["--anonymous", "app_reader:acme"]);
    let lock = locked(&cluster);
    let client = served.send("GET", LIST, &[], "");
    until(SOON, "the request waits for the lock", || waiting(&mut db) == 1);
    served.signal(libc::SIGTERM);
    until(SOON, "the server stops", || served.log().contains("stopping"));
    assert_eq!(waiting(&mut db), 1, "the request goes on");
    drop(lock);
    assert!(is_of(&Answered::read(client), "acme"));
    assert_eq!(served.ended(), Some(0));
    assert!(TcpStream::connect(&served.address).is_err());
}

#[test]
fn tls_is_spoken_with_the_certificate_that_is_there_after_a_sighup() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let (certificate, key) = (cluster.path("serve.crt"), cluster.path("serve.key"));
    let make = || {
        let made = rcgen::generate_simple_self_signed(["kb.test".to_string()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        made.cert.der().clone()
    };
    let first = make();
    let (certificate_path, key_path) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let arguments = ["--anonymous", "app_reader:acme", "--tls-cert", certificate_path, "--tls-key", key_path];
    let served = Served::start(&cluster, &arguments);
    let ask = |trusted: &rustls::pki_types::CertificateDer<'static>| -> std::io::Result<Answered> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "kb.test".try_into().unwrap();
        let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(client, served.connect());
        stream.write_all(request("GET", LIST, &[], "").as_bytes())?;
        stream.flush()?;
        Ok(Answered::read(stream))
    };
    assert!(is_of(&ask(&first).unwrap(), "acme"));
    let second = make();
    assert!(ask(&second).is_err());
    served.signal(libc::SIGHUP);
    until(SOON, "the new certificate is read", || ask(&second).is_ok());
    assert!(ask(&first).is_err());
    // Files that are wrong change nothing.
    std::fs::write(&certificate, "nonsense").unwrap();
    served.signal(libc::SIGHUP);
    until(SOON, "the log says so", || served.log().contains("it has no certificate"));
    assert!(is_of(&ask(&second).unwrap(), "acme"));
}
