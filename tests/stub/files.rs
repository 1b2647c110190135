//! A stub of extraction services: Apache Tika Server, docling-serve, Unstructured's API, and a server for
//! provider http. It checks requests as strictly as the stub of embedding providers, and answers in the
//! shapes that the services publish.
//!
//! The text of an image is known beforehand: it follows the first eight bytes of [`scan`].

use super::fault::{Fault, Schedule};
use super::payload::Payload;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How a PNG begins.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// An image of a text. Form feeds are between its pages.
pub fn scan(text: &str) -> Vec<u8> {
    [SIGNATURE, text.as_bytes()].concat()
}

/// A request, as it was received.
#[derive(Debug, Clone)]
pub struct SeenFile {
    pub provider: String,
    /// The text of the file. "yes" for the image that checks and probes send.
    pub text: String,
    pub name: String,
    pub content_type: String,
    /// The fields of the form besides the file.
    pub fields: BTreeMap<String, Vec<String>>,
    /// The status of the answer; 0 for none.
    pub status: u16,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    requests: Vec<SeenFile>,
    complaints: Vec<String>,
    in_flight: usize,
    in_flight_max: usize,
}

struct Shared {
    key: Option<String>,
    state: Mutex<State>,
    is_held: tokio::sync::watch::Sender<bool>,
}

pub struct FileStub {
    shared: Arc<Shared>,
    port: u16,
    runtime: Option<Runtime>,
}

impl FileStub {
    /// Every request must have this key in the place of its service, or none.
    pub fn start(key: Option<&str>) -> FileStub {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            key: key.map(str::to_string),
            state: Mutex::default(),
            is_held: tokio::sync::watch::Sender::new(false),
        });
        let served = Arc::clone(&shared);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&served);
                tokio::spawn(async move {
                    let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        FileStub { shared, port, runtime: Some(runtime) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    pub fn base_url(&self, provider: &str) -> String {
        format!("http://127.0.0.1:{}/{provider}", self.port)
    }

    pub fn requests(&self) -> Vec<SeenFile> {
        self.state().requests.clone()
    }

    /// How often the text of this file was asked for.
    pub fn seen(&self, text: &str) -> usize {
        self.state().requests.iter().filter(|seen| seen.text == text).count()
    }

    pub fn complaints(&self) -> Vec<String> {
        self.state().complaints.clone()
    }

    pub fn script(&self, fault: Fault, times: usize) {
        self.state().schedule.script.push_back((fault, times));
    }

    pub fn always(&self, fault: Option<Fault>) {
        self.state().schedule.always = fault;
    }

    /// A file whose text has this part gets the fault.
    pub fn refuse_text(&self, part: &str, fault: Fault) {
        self.state().schedule.refused.push((part.to_string(), fault));
    }

    /// Holds all answers back, or releases them.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    pub fn in_flight_max(&self) -> usize {
        self.state().in_flight_max
    }

    pub fn forget(&self) {
        let mut state = self.state();
        state.requests.clear();
        state.in_flight_max = state.in_flight;
    }
}

impl Drop for FileStub {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

/// A file in a request, with the fields beside it.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    name: String,
    content_type: String,
    fields: BTreeMap<String, Vec<String>>,
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Reads a form. What is wrong is added to `problems`.
fn form(headers: &HeaderMap, body: &[u8], file_field: &str, problems: &mut Vec<String>) -> Sent {
    let mut sent = Sent::default();
    let media = header(headers, "content-type");
    let Some(boundary) = media.strip_prefix("multipart/form-data; boundary=") else {
        problems.push(format!("the content type is {media:?}, not that of a form"));
        return sent;
    };
    // Latin-1, so that bytes are characters.
    let body: String = body.iter().map(|byte| char::from(*byte)).collect();
    let utf8 = |text: &str| String::from_utf8(text.chars().map(|c| c as u8).collect()).unwrap_or_default();
    let delimiter = format!("--{boundary}");
    let mut parts = body.split(&delimiter);
    if parts.next() != Some("") || !body.ends_with(&format!("{delimiter}--\r\n")) {
        problems.push("the form does not begin and end with its boundary".into());
    }
    for part in parts.filter(|part| *part != "--\r\n") {
        let part = part.strip_prefix("\r\n").and_then(|part| part.strip_suffix("\r\n")).unwrap_or_default();
        let Some((head, content)) = part.split_once("\r\n\r\n") else {
            problems.push(format!("a part of the form has no head: {part:?}"));
            continue;
        };
        let parameter = |name: &str| {
            let (_, rest) = head.split_once(&format!("; {name}=\""))?;
            Some(utf8(rest.split_once('"')?.0))
        };
        let Some(name) = parameter("name").filter(|_| head.starts_with("Content-Disposition: form-data; "))
        else {
            problems.push(format!("a part of the form has no name: {head:?}"));
            continue;
        };
        match parameter("filename") {
            Some(filename) if name == file_field && sent.name.is_empty() => {
                sent.name = filename;
                sent.content_type = head.split_once("\r\nContent-Type: ").unwrap_or_default().1.to_string();
                sent.bytes = content.chars().map(|c| c as u8).collect();
            }
            Some(_) => problems.push(format!("there is a file in the field {name:?}")),
            None => sent.fields.entry(name).or_default().push(utf8(content)),
        }
    }
    sent
}

fn check_fields(sent: &Sent, known: &[&str], problems: &mut Vec<String>) {
    for name in sent.fields.keys().filter(|name| !known.contains(&name.as_str())) {
        problems.push(format!("the field {name:?} is unknown"));
    }
}

/// Reads a request to a service, and finds everything that is wrong with it.
fn examine(provider: &str, path: &str, head: &Request<()>, body: &[u8]) -> (Sent, Vec<String>) {
    let mut problems = Vec::new();
    let headers = head.headers();
    let (method, expected_path) = match provider {
        "tika" => (Method::PUT, "/tika"),
        "docling" => (Method::POST, "/v1/convert/file"),
        "unstructured" => (Method::POST, "/general/v0/general"),
        _ => (Method::POST, "/ocr"),
    };
    if (head.method(), path) != (&method, expected_path) {
        problems.push(format!("{} {path} is not {method} {expected_path}", head.method()));
    }
    let sent = match provider {
        "tika" => {
            if !["text/html", "text/plain"].contains(&header(headers, "accept")) {
                problems.push(format!("Accept is {:?}", header(headers, "accept")));
            }
            let name = header(headers, "content-disposition").strip_prefix("attachment; filename=");
            let is_token = |name: &&str| {
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
            };
            match name.filter(is_token) {
                None => problems.push("Content-Disposition names no file".into()),
                Some(_) if header(headers, "content-type").is_empty() => {
                    problems.push("no Content-Type".into())
                }
                _ => {}
            }
            Sent {
                bytes: body.to_vec(),
                name: name.unwrap_or_default().to_string(),
                content_type: header(headers, "content-type").to_string(),
                fields: BTreeMap::new(),
            }
        }
        "docling" => {
            let sent = form(headers, body, "files", &mut problems);
            let known = "from_formats to_formats image_export_mode do_ocr force_ocr ocr_engine ocr_lang pdf_backend \
                         table_mode abort_on_error page_range document_timeout do_table_structure include_images \
                         images_scale md_page_break_placeholder pipeline";
            check_fields(&sent, &known.split_whitespace().collect::<Vec<_>>(), &mut problems);
            if sent.fields.get("to_formats") != Some(&vec!["md".to_string()])
                || sent.fields.get("image_export_mode") != Some(&vec!["placeholder".to_string()])
            {
                problems.push(format!("the output is not Markdown without images: {:?}", sent.fields));
            }
            sent
        }
        "unstructured" => {
            let sent = form(headers, body, "files", &mut problems);
            let known = "strategy languages output_format include_page_breaks coordinates encoding hi_res_model_name \
                         pdf_infer_table_structure skip_infer_table_types starting_page_number unique_element_ids";
            check_fields(&sent, &known.split_whitespace().collect::<Vec<_>>(), &mut problems);
            if header(headers, "accept") != "application/json" {
                problems.push("Accept is not application/json".into());
            }
            sent
        }
        _ => {
            let json: Value = serde_json::from_slice(body).unwrap_or_default();
            let text =
                |pointer| json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
            let url = text("/document/url");
            let (content_type, data) = url.split_once(";base64,").unwrap_or_default();
            if text("/model") != "reader" || header(headers, "content-type") != "application/json" {
                problems.push(format!("the body is {json}"));
            }
            Sent {
                bytes: STANDARD.decode(data).unwrap_or_default(),
                name: text("/document/name"),
                content_type: content_type.trim_start_matches("data:").to_string(),
                fields: BTreeMap::new(),
            }
        }
    };
    if !sent.bytes.starts_with(SIGNATURE) && !sent.bytes.starts_with(b"%PDF") {
        problems.push("the file is neither an image nor a PDF".into());
    }
    (sent, problems)
}

/// The text of an image, in pages.
fn recognised(bytes: &[u8]) -> String {
    let text = bytes.strip_prefix(SIGNATURE).map(std::str::from_utf8);
    match text {
        Some(Ok(text)) => text.to_string(),
        // A real image: that of a check, the only one here.
        Some(Err(_)) => "yes".to_string(),
        None => "words of the PDF".to_string(),
    }
}

/// The answer, with its media type.
fn answer(provider: &str, sent: &Sent, accept: &str, text: &str) -> (&'static str, String) {
    let pages: Vec<&str> = text.split('\x0c').collect();
    match provider {
        "tika" if accept == "text/plain" => ("text/plain", format!("\n\n{}\n", pages.join("\n\n"))),
        "tika" => {
            let html = |page: &&str| {
                let page = page.replace('&', "&amp;").replace('<', "&lt;");
                format!("<div class=\"page\"><p/>\n<p>{page}\n</p>\n<p/>\n</div>\n")
            };
            let body: String = pages.iter().map(html).collect();
            let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><html xmlns=\"http://www.w3.org/1999/xhtml\">\n\
                        <head>\n<meta name=\"Content-Type\" content=\"image/png\"/>\n<title>Scanned</title>\n</head>";
            ("text/html;charset=UTF-8", format!("{head}\n<body>{body}</body></html>"))
        }
        "docling" => {
            let between = sent.fields.get("md_page_break_placeholder").and_then(|values| values.first());
            let between = format!("\n\n{}\n\n", between.cloned().unwrap_or_default());
            let body = json!({
                "document": {"filename": sent.name, "md_content": pages.join(&between), "json_content": null,
                             "html_content": null, "text_content": null, "doctags_content": null},
                "status": "success", "errors": [], "processing_time": 0.1, "timings": {},
            });
            ("application/json", body.to_string())
        }
        "unstructured" => {
            let element = |(page, number): (&&str, u32)| {
                json!({"type": "NarrativeText", "element_id": format!("{number:032x}"), "text": page,
                       "metadata": {"filename": sent.name, "filetype": sent.content_type, "languages": ["eng"],
                                    "page_number": number}})
            };
            let elements: Vec<Value> = pages.iter().zip(1..).map(element).collect();
            ("application/json", Value::from(elements).to_string())
        }
        _ => {
            let pages: Vec<Value> = pages.iter().map(|page| json!({"markdown": page})).collect();
            ("application/json", json!({"pages": pages}).to_string())
        }
    }
}

/// Counts a request in progress until it is dropped.
struct InFlight(Arc<Shared>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().in_flight -= 1;
    }
}

/// The error breaks the connection.
async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<Payload>> {
    let in_flight = InFlight(Arc::clone(&shared));
    {
        let mut state = shared.state.lock().unwrap();
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let head = Request::from_parts(head, ());
    let path = head.uri().path().to_string();
    let (provider, rest) = path[1..].split_at(path[1..].find('/').unwrap_or(path.len() - 1));
    let (sent, problems) = examine(provider, rest, &head, &body);
    let text = recognised(&sent.bytes);
    let key = match provider {
        "docling" => header(head.headers(), "x-api-key"),
        "unstructured" => header(head.headers(), "unstructured-api-key"),
        _ => header(head.headers(), "authorization").trim_start_matches("Bearer "),
    };
    let has_key = key == shared.key.as_deref().unwrap_or_default();
    let (status, fault) = {
        let mut state = shared.state.lock().unwrap();
        let complaints = problems.iter().map(|problem| format!("{path}: {problem}"));
        state.complaints.extend(complaints);
        let fault = if has_key && problems.is_empty() { state.schedule.next(&[&text]) } else { None };
        let status = match (has_key, problems.is_empty()) {
            (false, _) => 401,
            (_, false) => 400,
            _ => fault.as_ref().map_or(200, Fault::status),
        };
        state.requests.push(SeenFile {
            provider: provider.to_string(),
            text: text.clone(),
            name: sent.name.clone(),
            content_type: sent.content_type.clone(),
            fields: sent.fields.clone(),
            status,
        });
        (status, fault)
    };
    let _ = shared.is_held.subscribe().wait_for(|is_held| !is_held).await;
    let (mut media, body) = answer(provider, &sent, header(head.headers(), "accept"), &text);
    let refused = json!({"detail": format!("the stub says {status} (key {key})")}).to_string();
    let mut response = Response::builder().status(status.max(200));
    let payload = match fault {
        None if status == 200 => Payload::whole(body),
        None => Payload::whole(refused),
        Some(Fault::Never) => return std::future::pending().await,
        Some(Fault::CloseAtOnce) => return Err(io::Error::other("closed, as told")),
        Some(Fault::CloseMidway) => Payload::broken(&Bytes::from(body)),
        Some(Fault::Huge) => Payload::huge(Bytes::from(body)),
        Some(Fault::Says(words)) => Payload::whole(words),
        Some(Fault::NotJson) => {
            media = "text/html";
            Payload::whole("<!DOCTYPE html><body>Please log in.</body>")
        }
        Some(Fault::RetryAfter { seconds, .. }) => {
            response = response.header("retry-after", seconds.to_string());
            Payload::whole(refused)
        }
        Some(Fault::Redirect(to)) => {
            response = response.header("location", to);
            Payload::whole(refused)
        }
        Some(Fault::Status(204)) => Payload::whole(Bytes::new()),
        Some(_) => Payload::whole(refused),
    };
    drop(in_flight);
    response.header("content-type", media).body(payload).map_err(io::Error::other)
}
