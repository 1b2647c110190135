//! Errors as answers: `application/problem+json` (RFC 9457) with the SQLSTATE, the detail and the hint of the
//! database, if it has them.

use super::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value};
use tokio_postgres::error::SqlState;

#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub detail: String,
    /// More about what was wrong, such as every problem of a configuration.
    pub errors: Vec<String>,
    pub hint: Option<String>,
    pub sqlstate: Option<String>,
    /// Seconds after which the client may try again.
    pub retry_after: Option<u64>,
    /// What the header WWW-Authenticate says.
    pub challenge: Option<&'static str>,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let detail = detail.into();
        Problem {
            status,
            detail,
            errors: Vec::new(),
            hint: None,
            sqlstate: None,
            retry_after: None,
            challenge: None,
        }
    }

    /// A lack of the server's that is over soon.
    pub fn unavailable(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1)
    }

    pub fn unauthorized(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, detail)
    }

    pub fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after = Some(seconds.max(1));
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    pub fn challenge(mut self, challenge: &'static str) -> Problem {
        self.challenge = Some(challenge);
        self
    }

    /// The members of the answer, which are those of kb.http.
    pub fn json(&self) -> Value {
        let mut members = Map::new();
        let title = self.status.canonical_reason().unwrap_or("Error");
        members.insert("type".into(), "about:blank".into());
        members.insert("title".into(), title.into());
        members.insert("status".into(), self.status.as_u16().into());
        members.insert("detail".into(), self.detail.clone().into());
        if !self.errors.is_empty() {
            members.insert("errors".into(), self.errors.as_slice().into());
        }
        for (name, value) in [("hint", &self.hint), ("code", &self.sqlstate)] {
            if let Some(value) = value {
                members.insert(name.into(), value.clone().into());
            }
        }
        members.into()
    }

    /// The problem as a text.
    pub fn text(&self) -> String {
        let lines = [&self.detail].into_iter().chain(&self.errors).chain(&self.hint);
        lines.cloned().collect::<Vec<_>>().join("\n")
    }

    /// Whether another request may do better, and not only another time.
    pub fn is_of_the_request(&self) -> bool {
        self.status.is_client_error() && self.status != StatusCode::UNAUTHORIZED
    }

    pub fn response(&self) -> Response<Body> {
        let mut response = Response::new(Full::new(Bytes::from(self.json().to_string())).boxed());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// What an error of the database means for a request. kb.http answers itself for all errors but those of a
/// cancelled statement, a lost connection and a crash.
impl From<tokio_postgres::Error> for Problem {
    fn from(error: tokio_postgres::Error) -> Problem {
        let Some(db) = error.as_db_error() else {
            return Problem::unavailable("the connection to the database was lost");
        };
        let code = db.code();
        let mut problem = match code {
            &SqlState::QUERY_CANCELED => {
                Problem::new(StatusCode::GATEWAY_TIMEOUT, "the database did not answer in time")
            }
            &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                Problem::unauthorized(db.message())
            }
            &SqlState::INSUFFICIENT_PRIVILEGE => Problem::new(StatusCode::FORBIDDEN, db.message()),
            // Too many connections, a shutdown, a start, a crash, a standby in conflict.
            _ => match code.code().get(..2).unwrap_or_default() {
                // Too many connections, a shutdown, a start, a crash, a standby in conflict.
                "08" | "40" | "53" | "57" => Problem::unavailable(db.message()),
                "42" if ["42704", "42P01", "42883"].contains(&code.code()) => {
                    Problem::new(StatusCode::NOT_FOUND, db.message())
                }
                // Data, constraints and states that the caller has to do with.
                "22" | "23" | "42" | "54" | "55" | "KB" | "P0" => {
                    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, db.message())
                }
                _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, db.message()),
            },
        };
        problem.errors = db.detail().unwrap_or_default().lines().map(str::to_string).collect();
        problem.sqlstate = Some(code.code().into());
        problem.hint = db.hint().map(str::to_string);
        problem
    }
}

impl From<crate::exit::Error> for Problem {
    fn from(error: crate::exit::Error) -> Problem {
        let mut problem = Problem::unavailable("the database cannot be reached");
        problem.sqlstate = error.sqlstate;
        problem
    }
}
