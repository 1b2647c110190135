//! From a request to its answer. What an operation wrote is undone if it fails, and the error is the answer.

use super::{knowledge_bases, search};
use crate::pg::report;
use crate::pg::subtransaction::{Raised, in_subtransaction_with_report, is_cancel};
use crate::settings;
use kb_http::routes::{self, Operation};
use kb_http::{Problem, Request, Response, openapi as description};
use kb_types::Json;
use kb_types::error::{Error, Result};

/// Why a request is not answered as it was meant.
pub enum Refusal {
    /// The request is wrong.
    Problem(Problem),
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::Problem(problem)
    }
}

pub type Answered = std::result::Result<Response, Refusal>;

/// Answers a request. Only a cancellation is an error.
pub fn answer(method: &str, path: &str, query: &str, headers: &Json, body: &[u8]) -> Result<Response> {
    let given = headers.members().ok_or_else(|| Error::Argument {
        argument: "headers",
        problem: "must be a JSON object of strings".into(),
    })?;
    let headers = given.into_iter().filter_map(|(name, value)| Some((name, value.text()?)));
    let request = match Request::new(method, path, query, headers, body.to_vec()) {
        Ok(request) => request,
        Err(problem) => return Ok(problem.response()),
    };
    let mut refused = None;
    let answered = in_subtransaction_with_report(|| match operate(&request) {
        Ok(response) => Ok(response),
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::Problem(problem)) => {
            refused = Some(problem);
            Err(Error::State { problem: "the request is refused".into(), hint: String::new() })
        }
    });
    let mut response = match (answered, refused) {
        (Ok(response), _) => response,
        (Err(_), Some(problem)) => problem.response(),
        (Err(Raised { error, .. }), None) if is_cancel(&error) => return Err(error),
        (Err(raised), None) => of_error(raised),
    };
    if request.method == "HEAD" {
        response.body.clear();
    }
    Ok(response)
}

fn of_error(raised: Raised) -> Response {
    let Raised { error, detail, hint } = raised;
    let problem = Problem::of_error(error.sqlstate(), error.to_string(), detail, hint);
    // Whoever operates the server sees it here only.
    if problem.status == 500 {
        report::log(&format!("a request could not be answered: {error}"));
    }
    problem.response()
}

fn operate(request: &Request) -> Answered {
    let found = routes::find(request)?;
    if !routes::is_allowed(found.route, &settings::scopes()) {
        return Err(Problem::new(403, "the scopes of the API key do not allow this").into());
    }
    let first = found.path.first().copied().unwrap_or_default();
    match found.route.operation {
        Operation::ListKnowledgeBases => knowledge_bases::list(request),
        Operation::GetKnowledgeBase => knowledge_bases::get(request, first),
        Operation::PutKnowledgeBase => knowledge_bases::put(request, first),
        Operation::DeleteKnowledgeBase => knowledge_bases::delete(request, first),
        Operation::IngestKnowledgeBase => knowledge_bases::ingest(request, first),
        Operation::QueryKnowledgeBase => search::query(request, first),
        Operation::SemanticSearch => search::semantic_search(request),
        Operation::OpenApi => Ok(Response::json(200, &openapi())),
    }
}

/// The description of the interface.
pub fn openapi() -> serde_json::Value {
    description::document(env!("CARGO_PKG_VERSION"))
}
