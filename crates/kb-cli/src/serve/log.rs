//! Lines on standard error, one for each request. None has a key, a question, a query string or a body.

use super::config::LogForm;
use crate::output::clean::clean_line;
use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

#[derive(Clone, Copy)]
pub struct Log(pub LogForm);

impl Log {
    /// Something that concerns the server rather than a request.
    pub fn message(self, level: &str, text: &str) {
        self.line(level, "server", vec![("message", text.into())]);
    }

    fn line(self, level: &str, kind: &str, members: Vec<(&str, Value)>) {
        let line = line(self.0, level, kind, members);
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn line(form: LogForm, level: &str, kind: &str, members: Vec<(&str, Value)>) -> String {
    let time = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    match form {
        LogForm::Json => {
            let mut object = Map::new();
            for (name, value) in [("time", time.as_str()), ("level", level), ("event", kind)] {
                object.insert(name.into(), value.into());
            }
            object.extend(members.into_iter().map(|(name, value)| (name.to_string(), value)));
            format!("{}\n", Value::from(object))
        }
        LogForm::Text => {
            let mut text = format!("{time} {level} {kind}");
            for (name, value) in members {
                let value = match value {
                    Value::String(value) => clean_line(&value),
                    value => value.to_string(),
                };
                let quoted = if value.is_empty() || value.contains([' ', '"', '=']) {
                    Value::from(value).to_string()
                } else {
                    value
                };
                let _ = write!(text, " {name}={quoted}");
            }
            text + "\n"
        }
    }
}

/// The line of a request, which is written when this is dropped: also if the client went away.
pub struct Entry {
    log: Log,
    started: Instant,
    pub id: String,
    method: String,
    path: String,
    peer: SocketAddr,
    /// Who called.
    pub name: String,
    pub traceparent: String,
    /// Bytes of the body of the request, and of that of the answer.
    pub received: usize,
    pub sent: usize,
    /// The status of the answer; 499 as long as there is none.
    pub status: u16,
    pub sqlstate: Option<String>,
}

/// As nginx writes it: the client closed the connection before it had an answer.
const GONE: u16 = 499;

impl Entry {
    pub fn new(log: Log, id: String, method: &str, path: &str, peer: SocketAddr) -> Entry {
        Entry {
            log,
            started: Instant::now(),
            id,
            method: method.into(),
            path: path.into(),
            peer,
            name: String::new(),
            traceparent: String::new(),
            received: 0,
            sent: 0,
            status: GONE,
            sqlstate: None,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ms = (self.started.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        let mut members: Vec<(&str, Value)> = vec![
            ("request_id", std::mem::take(&mut self.id).into()),
            ("method", std::mem::take(&mut self.method).into()),
            ("path", std::mem::take(&mut self.path).into()),
            ("status", self.status.into()),
            ("ms", ms.into()),
            ("received", self.received.into()),
            ("sent", self.sent.into()),
            ("client", self.peer.to_string().into()),
        ];
        for (name, text) in [("caller", &self.name), ("traceparent", &self.traceparent)] {
            if !text.is_empty() {
                members.push((name, text.clone().into()));
            }
        }
        if let Some(sqlstate) = &self.sqlstate {
            members.push(("sqlstate", sqlstate.clone().into()));
        }
        let level = if self.status >= 500 { "error" } else { "info" };
        self.log.line(level, "request", members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_forge_a_line() {
        let path = "/a\nlevel=error \"x\" \u{1b}[2J";
        for form in [LogForm::Text, LogForm::Json] {
            let line = line(form, "info", "request", vec![("path", path.into())]);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
    }
}
