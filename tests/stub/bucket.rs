//! A stub of object storages: a real HTTP server that has the published interface of S3, of Google Cloud
//! Storage or of Azure Blob Storage for listing and reading, verifies every signature, and has the faults
//! that a test sets.

#![allow(dead_code)] // not every test uses all of it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::{digest, hmac, signature};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The bucket of every stub, and the account of Azure.
pub const BUCKET: &str = "documents";
pub const ACCOUNT: &str = "account1";
pub const REGION: &str = "eu-test-1";

/// An RSA key that signs nothing but the tokens of these tests.
const GOOGLE_KEY: &str = include_str!("google_test_key.pem");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    S3,
    Gcs,
    Azure,
}

#[derive(Debug, Clone)]
pub enum Fault {
    /// A status with this code.
    Status(u16, &'static str),
    /// A page of HTML with this status.
    Html(u16),
    /// An answer whose text ends in its middle, with the right length.
    CutText,
    /// An answer that announces more bytes than it has.
    CutConnection,
    /// A page that names itself as the next one.
    SameToken,
    /// A page that says that it goes on, and not how.
    NoToken,
    /// A redirect.
    Redirect(String),
}

struct Stored {
    bytes: Vec<u8>,
    etag: String,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    versions: u64,
    list_faults: VecDeque<Fault>,
    read_faults: VecDeque<Fault>,
    /// What happens to an object when it is asked for: it gets this content, or is deleted.
    on_read: HashMap<String, Option<Vec<u8>>>,
    lists: usize,
    reads: Vec<String>,
    complaints: Vec<String>,
    ignores_ranges: bool,
}

pub struct BucketStub {
    flavour: Flavour,
    port: u16,
    state: Arc<Mutex<State>>,
}

struct Request {
    path: String,
    query: String,
    headers: Vec<(String, String)>,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// How many bytes of the body are sent before the connection is closed.
    cut: Option<usize>,
}

impl BucketStub {
    /// Lists `page` objects at a time. `is_public`: no request may be signed.
    pub fn start(flavour: Flavour, page: usize, is_public: bool) -> BucketStub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Server { flavour, port, page, is_public, state: Arc::clone(&shared) };
                std::thread::spawn(move || server.serve(&stream));
            }
        });
        BucketStub { flavour, port, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The URL that a source is given as its endpoint.
    pub fn endpoint(&self) -> String {
        match self.flavour {
            Flavour::Azure => format!("http://127.0.0.1:{}/{ACCOUNT}", self.port),
            _ => format!("http://127.0.0.1:{}", self.port),
        }
    }

    /// The secret that is right.
    pub fn secret(&self) -> String {
        match self.flavour {
            Flavour::S3 => "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            Flavour::Azure => BASE64_STANDARD.encode(b"the key of the account of the test"),
            Flavour::Gcs => format!(
                "{{\n  \"type\": \"service_account\",\n  \"private_key_id\": \"k1\",\n  \"private_key\": \"{}\",\n  \
                 \"client_email\": \"kb@test.example\"\n}}\n",
                GOOGLE_KEY.replace('\n', "\\n")
            ),
        }
    }

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        self.state().put(key, bytes.into());
    }

    pub fn delete(&self, key: &str) {
        self.state().objects.remove(key).unwrap();
    }

    /// All objects, in the order of their keys.
    pub fn objects(&self) -> Vec<(String, Vec<u8>)> {
        self.state().objects.iter().map(|(key, stored)| (key.clone(), stored.bytes.clone())).collect()
    }

    /// The next requests for a page get this fault.
    pub fn fail_lists(&self, fault: Fault, times: usize) {
        self.state().list_faults.extend(std::iter::repeat_n(fault, times));
    }

    /// The next requests for an object get this fault.
    pub fn fail_reads(&self, fault: Fault, times: usize) {
        self.state().read_faults.extend(std::iter::repeat_n(fault, times));
    }

    pub fn end_faults(&self) {
        let mut state = self.state();
        state.list_faults.clear();
        state.read_faults.clear();
    }

    /// When the object is asked for, it is replaced or deleted before it is sent.
    pub fn on_read(&self, key: &str, becomes: Option<&[u8]>) {
        self.state().on_read.insert(key.into(), becomes.map(<[u8]>::to_vec));
    }

    /// From now on whole objects are sent, whatever part is asked for.
    pub fn ignore_ranges(&self) {
        self.state().ignores_ranges = true;
    }

    /// The number of pages that were asked for.
    pub fn lists(&self) -> usize {
        self.state().lists
    }

    /// The keys of objects that were asked for, in order.
    pub fn reads(&self) -> Vec<String> {
        self.state().reads.clone()
    }

    /// What was wrong with requests.
    pub fn complaints(&self) -> Vec<String> {
        self.state().complaints.clone()
    }
}

impl State {
    fn put(&mut self, key: &str, bytes: Vec<u8>) {
        self.versions += 1;
        let etag = format!("0x8D{:X}", self.versions);
        self.objects.insert(key.into(), Stored { bytes, etag });
    }
}

struct Server {
    flavour: Flavour,
    port: u16,
    page: usize,
    is_public: bool,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            let answer = self.answer(&request);
            let mut head =
                format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
            for (name, value) in &answer.headers {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
            head.push_str("\r\n");
            let body = &answer.body[..answer.cut.unwrap_or(answer.body.len())];
            let mut stream = stream;
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err()
                || answer.cut.is_some()
            {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut state = self.state.lock().unwrap();
        if let Err(complaint) = self.check(request) {
            state.complaints.push(format!("{complaint}: {}?{}", request.path, request.query));
            return error(403, "SignatureDoesNotMatch");
        }
        let root = match self.flavour {
            Flavour::Azure => format!("/{ACCOUNT}/{BUCKET}"),
            _ => format!("/{BUCKET}"),
        };
        let Some(rest) = request.path.strip_prefix(&root) else { return error(404, "NoSuchBucket") };
        match rest.strip_prefix('/') {
            None => self.list(&mut state, request),
            Some(key) => self.read(&mut state, request, &text(&decode(key))),
        }
    }

    fn list(&self, state: &mut State, request: &Request) -> Answer {
        state.lists += 1;
        let fault = state.list_faults.pop_front();
        if let Some(answer) = fault.as_ref().and_then(refuse) {
            return answer;
        }
        let query = pairs(&request.query);
        let is_azure = self.flavour == Flavour::Azure;
        let wanted: &[(&str, &str)] = match is_azure {
            true => &[("restype", "container"), ("comp", "list")],
            false => &[("list-type", "2")],
        };
        if wanted.iter().any(|(name, value)| query.get(*name).is_none_or(|given| given != value)) {
            state.complaints.push(format!("not a listing: {}", request.query));
            return error(400, "InvalidArgument");
        }
        let prefix = query.get("prefix").cloned().unwrap_or_default();
        let token = query.get(if is_azure { "marker" } else { "continuation-token" }).cloned();
        // Opaque, and with characters that have to be coded.
        let after = token.as_ref().map(|token| text(&BASE64_STANDARD.decode(&token["+/=".len()..]).unwrap()));
        let is_coded = query.get("encoding-type").is_some_and(|coding| coding == "url");
        let mut keys: Vec<(&String, &Stored)> = state
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after))
            .take(self.page + 1)
            .collect();
        let mut next = (keys.len() > self.page).then(|| {
            keys.pop();
            format!("+/={}", BASE64_STANDARD.encode(keys.last().unwrap().0))
        });
        if matches!(fault, Some(Fault::SameToken)) {
            next = Some(token.unwrap_or_else(|| format!("+/={}", BASE64_STANDARD.encode("!"))));
        }
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        if is_azure {
            xml.push_str("<EnumerationResults ServiceEndpoint=\"x\"><Blobs>");
            for (key, Stored { bytes, etag }) in &keys {
                let name = match key.chars().any(|c| c.is_control() || c == '\u{ffff}') {
                    true => format!("<Name Encoded=\"true\">{}</Name>", encode(key, "/")),
                    false => format!("<Name>{}</Name>", escape(key)),
                };
                let size = bytes.len();
                write!(xml, "<Blob>{name}<Properties><Last-Modified>Mon, 05 Jan 2026 00:00:00 GMT</Last-Modified><Etag>{etag}</Etag><Content-Length>{size}</Content-Length><Content-Type>text/plain</Content-Type></Properties></Blob>").unwrap();
            }
            write!(xml, "</Blobs><NextMarker>{}</NextMarker></EnumerationResults>", next.unwrap_or_default())
                .unwrap();
        } else {
            let is_cut = next.is_some() || matches!(fault, Some(Fault::NoToken));
            write!(xml, "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{BUCKET}</Name><IsTruncated>{is_cut}</IsTruncated>").unwrap();
            for (key, Stored { bytes, etag }) in &keys {
                let name = if is_coded { encode(key, "/").replace("%20", "+") } else { escape(key) };
                let size = bytes.len();
                write!(xml, "<Contents><Key>{name}</Key><LastModified>2026-01-05T00:00:00.000Z</LastModified><ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>").unwrap();
            }
            if is_coded {
                xml.push_str("<EncodingType>url</EncodingType>");
            }
            if let Some(next) = next.filter(|_| !matches!(fault, Some(Fault::NoToken))) {
                write!(xml, "<NextContinuationToken>{next}</NextContinuationToken>").unwrap();
            }
            xml.push_str("</ListBucketResult>");
        }
        spoil(
            fault,
            Answer {
                status: 200,
                headers: vec![("Content-Type".into(), "application/xml".into())],
                body: xml.into_bytes(),
                cut: None,
            },
        )
    }

    fn read(&self, state: &mut State, request: &Request, key: &str) -> Answer {
        state.reads.push(key.to_string());
        let fault = state.read_faults.pop_front();
        if let Some(answer) = fault.as_ref().and_then(refuse) {
            return answer;
        }
        match state.on_read.remove(key) {
            Some(Some(bytes)) => state.put(key, bytes),
            Some(None) => drop(state.objects.remove(key)),
            None => {}
        }
        let Some(Stored { bytes, etag }) = state.objects.get(key) else {
            return error(404, if self.flavour == Flavour::Azure { "BlobNotFound" } else { "NoSuchKey" });
        };
        if request.header("if-match").is_some_and(|wanted| wanted != format!("\"{etag}\"")) {
            return error(412, "PreconditionFailed");
        }
        let mut headers = vec![
            ("ETag".to_string(), format!("\"{etag}\"")),
            ("Content-Type".to_string(), "binary/octet-stream".to_string()),
        ];
        let range = request.header("range").filter(|_| !state.ignores_ranges).map(|range| {
            let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap())
        });
        let (status, body) = match range {
            None => (200, bytes.clone()),
            Some((first, _)) if first >= bytes.len() => return error(416, "InvalidRange"),
            Some((first, last)) => {
                let last = last.min(bytes.len() - 1);
                headers.push(("Content-Range".into(), format!("bytes {first}-{last}/{}", bytes.len())));
                (206, bytes[first..=last].to_vec())
            }
        };
        spoil(fault, Answer { status, headers, body, cut: None })
    }

    /// Whether a request is signed as the interface demands.
    fn check(&self, request: &Request) -> Result<(), String> {
        let host = format!("127.0.0.1:{}", self.port);
        if request.header("host") != Some(&host) {
            return Err("another host".into());
        }
        let authorization = request.header("authorization");
        if self.is_public {
            return authorization.map_or(Ok(()), |_| Err("a public bucket was sent a credential".into()));
        }
        let Some(authorization) = authorization else { return Err("not signed".into()) };
        let secret = BucketStub { flavour: self.flavour, port: 0, state: Arc::default() }.secret();
        match self.flavour {
            Flavour::S3 => check_s3(request, authorization, &secret),
            Flavour::Gcs => check_google(authorization),
            Flavour::Azure => check_azure(request, authorization, &secret),
        }
    }
}

/// Signature version 4, as Amazon's documentation describes it.
fn check_s3(request: &Request, authorization: &str, secret: &str) -> Result<(), String> {
    let (key_id, key) = secret.split_once(':').unwrap();
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or("another algorithm")?;
    let fields: HashMap<&str, &str> = fields.split(", ").filter_map(|field| field.split_once('=')).collect();
    let of = |name: &str| fields.get(name).copied().ok_or(format!("no {name}"));
    let time = request.header("x-amz-date").ok_or("no x-amz-date")?;
    let day = time.get(..8).ok_or("no date")?;
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    if of("Credential")? != format!("{key_id}/{scope}") {
        return Err(format!("another credential: {}", of("Credential")?));
    }
    let signed: Vec<&str> = of("SignedHeaders")?.split(';').collect();
    let must_be_signed = |name: &str| name == "host" || name.starts_with("x-amz-");
    if request.headers.iter().any(|(name, _)| must_be_signed(name) && !signed.contains(&name.as_str())) {
        return Err("a header is not signed".into());
    }
    let payload = request.header("x-amz-content-sha256").ok_or("no x-amz-content-sha256")?;
    if payload != hex(digest::digest(&digest::SHA256, b"").as_ref()) {
        return Err("another payload".into());
    }
    let mut query: Vec<(String, String)> = pairs(&request.query).into_iter().collect();
    query.sort();
    let query: Vec<String> =
        query.iter().map(|(name, value)| format!("{}={}", encode(name, ""), encode(value, ""))).collect();
    let mut canonical = format!("GET\n{}\n{}\n", encode(&text(&decode(&request.path)), "/"), query.join("&"));
    for name in &signed {
        let value = request.header(name).ok_or(format!("{name} is signed and not sent"))?;
        writeln!(canonical, "{name}:{}", value.trim()).unwrap();
    }
    write!(canonical, "\n{}\n{payload}", signed.join(";")).unwrap();
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let mut derived = format!("AWS4{key}").into_bytes();
    for part in [day, REGION, "s3", "aws4_request"] {
        derived = mac(&derived, part.as_bytes());
    }
    let wanted = hex(&mac(&derived, format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}").as_bytes()));
    if of("Signature")? == wanted { Ok(()) } else { Err("another signature".into()) }
}

/// Authorisation by shared key, as Microsoft's documentation describes it.
fn check_azure(request: &Request, authorization: &str, secret: &str) -> Result<(), String> {
    let of = |name: &str| request.header(name).unwrap_or_default();
    if of("x-ms-version").is_empty() {
        return Err("no x-ms-version".into());
    }
    let mut text_to_sign = String::from("GET\n");
    for name in [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ] {
        writeln!(text_to_sign, "{}", of(name)).unwrap();
    }
    let mut own: Vec<&(String, String)> =
        request.headers.iter().filter(|(name, _)| name.starts_with("x-ms-")).collect();
    own.sort();
    for (name, value) in own {
        writeln!(text_to_sign, "{name}:{value}").unwrap();
    }
    write!(text_to_sign, "/{ACCOUNT}{}", request.path).unwrap();
    let mut query: Vec<(String, String)> = pairs(&request.query).into_iter().collect();
    query.sort();
    for (name, value) in query {
        write!(text_to_sign, "\n{name}:{value}").unwrap();
    }
    let key = BASE64_STANDARD.decode(secret).unwrap();
    let wanted = BASE64_STANDARD.encode(mac(&key, text_to_sign.as_bytes()));
    match authorization == format!("SharedKey {ACCOUNT}:{wanted}") {
        true => Ok(()),
        false => Err(format!("another signature than of {text_to_sign:?}")),
    }
}

/// A token that the key of the service account has signed.
fn check_google(authorization: &str) -> Result<(), String> {
    let token = authorization.strip_prefix("Bearer ").ok_or("no token")?;
    let (signed, signature) = token.rsplit_once('.').ok_or("no JWT")?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|e| e.to_string())?;
    let pem: String = GOOGLE_KEY.lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = signature::RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(pem).unwrap()).unwrap();
    let public = signature::UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, pair.public());
    public.verify(signed.as_bytes(), &signature).map_err(|_| "another signature")?;
    let claims = text(&BASE64_URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap());
    match claims.contains("\"iss\":\"kb@test.example\"") && claims.contains("auth/cloud-platform") {
        true => Ok(()),
        false => Err(format!("other claims: {claims}")),
    }
}

/// The answer of a fault that leaves nothing of the right one.
fn refuse(fault: &Fault) -> Option<Answer> {
    match fault {
        Fault::Status(status, code) => Some(error(*status, code)),
        Fault::Html(status) => Some(Answer {
            status: *status,
            headers: vec![("Content-Type".into(), "text/html".into())],
            body: b"<html><body><h1>internal words</h1></body></html>".to_vec(),
            cut: None,
        }),
        Fault::Redirect(to) => {
            Some(Answer { headers: vec![("Location".into(), to.clone())], ..error(307, "TemporaryRedirect") })
        }
        _ => None,
    }
}

fn spoil(fault: Option<Fault>, mut answer: Answer) -> Answer {
    let half = answer.body.len() / 2;
    match fault {
        Some(Fault::CutText) => answer.body.truncate(half),
        Some(Fault::CutConnection) => answer.cut = Some(half),
        _ => {}
    }
    answer
}

fn error(status: u16, code: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>Words of the storage.</Message><RequestId>1</RequestId></Error>"
    );
    Answer {
        status,
        headers: vec![("Content-Type".into(), "application/xml".into())],
        body: body.into_bytes(),
        cut: None,
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.by_ref().take(1 << 20).read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let target = lines.first()?.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines[1..].iter().filter_map(|line| line.split_once(':'));
    let headers =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string())).collect();
    Some(Request { path: path.into(), query: query.into(), headers })
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (text(&decode(name)), text(&decode(value)))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let pair = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(pair, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

fn encode(text: &str, besides: &str) -> String {
    let mut coded = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || besides.as_bytes().contains(&byte) {
            true => coded.push(char::from(byte)),
            false => write!(coded, "%{byte:02X}").unwrap(),
        }
    }
    coded
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
