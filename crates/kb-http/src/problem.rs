//! Errors as answers: problem details (RFC 9457), with the SQLSTATE, DETAIL and HINT of the error.

use crate::Response;
use schemars::JsonSchema;
use serde::Serialize;

pub const CONTENT_TYPE: &str = "application/problem+json";

/// What was wrong with a request, or why it could not be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// Always about:blank: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The words for the status.
    title: &'static str,
    pub status: u16,
    /// What was wrong.
    pub detail: String,
    /// The SQLSTATE of an error of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// More about what was wrong, such as every problem of a configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(status: u16, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: title(status),
            status,
            detail: detail.into(),
            code: None,
            errors: Vec::new(),
            hint: None,
        }
    }

    /// The problem that an error of the database is. `more` has a problem in each line.
    pub fn of_error(code: &str, message: String, more: Option<String>, hint: Option<String>) -> Problem {
        let errors = more.unwrap_or_default().lines().map(str::to_string).collect();
        Problem { code: Some(code.to_string()), errors, hint, ..Problem::new(status(code), message) }
    }

    pub fn response(&self) -> Response {
        Response::json(self.status, self).with("content-type", CONTENT_TYPE)
    }
}

/// The status for an SQLSTATE.
fn status(code: &str) -> u16 {
    match code {
        "42704" | "42P01" | "42883" => 404,
        "42501" => 403,
        "28000" | "28P01" => 401,
        "42710" | "23505" | "2BP01" | "55000" | "55006" => 409,
        "KB412" => 412,
        "54000" => 413,
        "0A000" => 415,
        "22023" => 422,
        "53400" => 429,
        "55P03" | "57P03" | "25006" => 503,
        _ => match &code[..code.len().min(2)] {
            "22" | "23" => 422,
            "08" => 502,
            "40" | "53" | "57" | "58" => 503,
            _ => 500,
        },
    }
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_that_an_error_gets_has_its_words() {
        for code in [
            "42704", "42501", "28000", "42710", "KB412", "54000", "0A000", "22023", "22004", "53400",
            "08006", "53100", "40001",
        ] {
            assert_ne!(title(status(code)), title(500), "{code}");
        }
        for code in ["XX000", "", "é", "P0001"] {
            assert_eq!(status(code), 500, "{code}");
        }
    }

    #[test]
    fn a_problem_has_each_line_of_the_detail_and_no_empty_member() {
        let problem = Problem::of_error("22023", "invalid".into(), Some("one\ntwo".into()), None);
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["errors"], serde_json::json!(["one", "two"]));
        assert!(json.get("hint").is_none());
        let response = problem.response();
        assert_eq!((response.status, response.header("content-type")), (422, Some(CONTENT_TYPE)));
    }
}
