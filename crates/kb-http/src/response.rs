//! What a client gets.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, each once.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn empty(status: u16) -> Response {
        Response { status, headers: Vec::new(), body: Vec::new() }
    }

    pub fn json(status: u16, body: &impl Serialize) -> Response {
        // Only a map whose keys are no strings cannot be written, and no document has one.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Response { body, ..Response::empty(status) }.with("content-type", "application/json")
    }

    /// Sets a header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}
