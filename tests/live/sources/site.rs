//! A web server for tests: pages that can be changed, with the faults of servers.

use crate::support::SOON;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What is sent for a path.
#[derive(Clone)]
pub enum Answer {
    /// A content type, a body, and whether it has an ETag, by which it is known again.
    Page(String, Vec<u8>, bool),
    Status(u16, String),
    /// The bytes as they are, again and again if they end with this word.
    Raw(Vec<u8>),
}

#[derive(Default)]
struct State {
    answers: BTreeMap<String, Answer>,
    /// Method, path, and whether it asks if the page has changed.
    seen: Vec<(String, bool)>,
    /// Paths that are not answered before they are released.
    held: Vec<String>,
}

#[derive(Clone)]
pub struct Site {
    pub url: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

pub const ENDLESS: &[u8] = b"ENDLESS";

impl Site {
    pub fn start() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let site = Site { url, state: Arc::default() };
        let served = site.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || while served.serve(&stream).is_some() {});
            }
        });
        site
    }

    /// A page with an ETag.
    pub fn put(&self, path: &str, content_type: &str, body: impl Into<Vec<u8>>) {
        self.answer(path, Answer::Page(content_type.into(), body.into(), true));
    }

    pub fn html(&self, path: &str, body: &str) {
        self.put(path, "text/html; charset=utf-8", body);
    }

    pub fn answer(&self, path: &str, answer: Answer) {
        self.state.0.lock().unwrap().answers.insert(path.to_string(), answer);
    }

    pub fn status(&self, path: &str, status: u16, headers: &str) {
        self.answer(path, Answer::Status(status, headers.to_string()));
    }

    pub fn redirect(&self, path: &str, to: &str) {
        self.status(path, 302, &format!("location: {to}\r\n"));
    }

    pub fn remove(&self, path: &str) {
        self.state.0.lock().unwrap().answers.remove(path);
    }

    /// A request for this path waits until it is released.
    pub fn hold(&self, path: &str) {
        self.state.0.lock().unwrap().held.push(path.to_string());
    }

    pub fn release(&self) {
        self.state.0.lock().unwrap().held.clear();
        self.state.1.notify_all();
    }

    /// The requests since this was last called: path, and whether each asked if the page has changed.
    pub fn take_seen(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.state.0.lock().unwrap().seen)
    }

    pub fn has_seen(&self, path: &str) -> bool {
        self.state.0.lock().unwrap().seen.iter().any(|(seen, _)| seen == path)
    }

    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let path = head.split(' ').nth(1)?.to_string();
        let headers: HashMap<String, String> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_string()))
            .collect();
        let known = headers.get("if-none-match");
        let answer = {
            let mut state = self.state.0.lock().unwrap();
            state.seen.push((path.clone(), known.is_some()));
            let is_held = |state: &mut State| state.held.contains(&path);
            let (state, _) = self.state.1.wait_timeout_while(state, SOON, is_held).unwrap();
            state.answers.get(&path).cloned()
        };
        let with = |status: u16, headers: &str, body: &[u8]| {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n");
            [head.as_bytes(), body].concat()
        };
        match answer {
            None => stream.write_all(&with(404, "", b"nothing here")).ok(),
            Some(Answer::Status(status, headers)) => stream.write_all(&with(status, &headers, b"")).ok(),
            Some(Answer::Page(content_type, body, has_etag)) => {
                let hash =
                    body.iter().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                let etag = format!("\"{hash}\"");
                match has_etag && known == Some(&etag) {
                    true => stream.write_all(&with(304, "", b"")).ok(),
                    false => {
                        let mut headers = format!("content-type: {content_type}\r\n");
                        if has_etag {
                            headers.push_str(&format!("etag: {etag}\r\n"));
                        }
                        stream.write_all(&with(200, &headers, &body)).ok()
                    }
                }
            }
            Some(Answer::Raw(bytes)) => {
                stream.write_all(&bytes).ok()?;
                while bytes.ends_with(ENDLESS) {
                    stream.write_all(&[b'x'; 4096]).ok()?;
                }
                None
            }
        }
    }
}
