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
        Problem { status, detail, hint: None, sqlstate: None, retry_after: None, challenge: None }
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

    pub fn response(&self) -> Response<Body> {
        let mut members = Map::new();
        let title = self.status.canonical_reason().unwrap_or("Error");
        members.insert("type".into(), "about:blank".into());
        members.insert("title".into(), title.into());
        members.insert("status".into(), self.status.as_u16().into());
        members.insert("detail".into(), self.detail.clone().into());
        for (name, value) in [("hint", &self.hint), ("sqlstate", &self.sqlstate)] {
            if let Some(value) = value {
                members.insert(name.into(), value.clone().into());
            }
        }
        let mut response = Response::new(Full::new(Bytes::from(Value::from(members).to_string())).boxed());
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
            _ if ["53", "57", "08", "40"].contains(&&code.code()[..2]) => Problem::unavailable(db.message()),
            _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, db.message()),
        };
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
