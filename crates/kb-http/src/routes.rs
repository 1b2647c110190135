//! What a client can ask for.

use crate::bodies::{self, Problems};
use crate::{Problem, Request};
use kb_types::named;
use schemars::{Schema, SchemaGenerator};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    ListKnowledgeBases,
    GetKnowledgeBase,
    PutKnowledgeBase,
    DeleteKnowledgeBase,
    IngestKnowledgeBase,
    QueryKnowledgeBase,
    SemanticSearch,
    OpenApi,
}

/// What an API key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Definitions of knowledge bases, and their ingestion.
    KnowledgeBases,
    /// Questions.
    Search,
    /// Documents, over MCP.
    Documents,
    /// Memories, over MCP.
    Memories,
    /// Answers of a chat model, over MCP.
    Answers,
}

named!(Scope {
    KnowledgeBases => "knowledge_bases",
    Search => "search",
    Documents => "documents",
    Memories => "memories",
    Answers => "answers",
});

/// A parameter of the query string.
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub is_required: bool,
    pub kind: ParameterKind,
}

pub enum ParameterKind {
    Text,
    /// May be given several times.
    Texts,
    /// A whole number from 1 to this, and what it is unless given.
    Number {
        most: i32,
        default: i32,
    },
}

/// A schema of a body.
pub type Body = fn(&mut SchemaGenerator) -> Schema;

pub struct Route {
    pub method: &'static str,
    /// With its parameters in braces.
    pub path: &'static str,
    pub operation: Operation,
    /// None: whoever may call kb.http.
    pub scope: Option<Scope>,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
    /// The header If-Match or If-None-Match, where it counts.
    pub condition: Option<&'static str>,
    pub request: Option<Body>,
    /// The statuses of success, each with its body.
    pub responses: &'static [(u16, Option<Body>)],
}

fn body<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The most knowledge bases of a page, and rows of an answer.
pub const MOST_LISTED: i32 = 1000;
pub const MOST_FOUND: i32 = 1000;

const LIMIT: Parameter = Parameter {
    name: "limit",
    about: "The most items of the page.",
    is_required: false,
    kind: ParameterKind::Number { most: MOST_LISTED, default: 100 },
};

pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/api/v0/knowledge-bases",
        operation: Operation::ListKnowledgeBases,
        scope: Some(Scope::KnowledgeBases),
        summary: "Lists knowledge bases in the order of their ids.",
        parameters: &[
            LIMIT,
            Parameter {
                name: "cursor",
                about: "The next_cursor of the page before.",
                is_required: false,
                kind: ParameterKind::Text,
            },
        ],
        condition: None,
        request: None,
        responses: &[(200, Some(body::<bodies::Envelope<bodies::KnowledgeBases>>))],
    },
    Route {
        method: "GET",
        path: "/api/v0/knowledge-bases/{id}",
        operation: Operation::GetKnowledgeBase,
        scope: Some(Scope::KnowledgeBases),
        summary: "Reads a knowledge base with its etag.",
        parameters: &[],
        condition: Some("if-none-match"),
        request: None,
        responses: &[(200, Some(body::<bodies::Envelope<bodies::KnowledgeBase>>)), (304, None)],
    },
    Route {
        method: "PUT",
        path: "/api/v0/knowledge-bases/{id}",
        operation: Operation::PutKnowledgeBase,
        scope: Some(Scope::KnowledgeBases),
        summary: "Creates a knowledge base, or changes one whose etag is given as If-Match.",
        parameters: &[],
        condition: Some("if-match"),
        request: Some(body::<bodies::Declared>),
        responses: &[
            (200, Some(body::<bodies::Envelope<bodies::KnowledgeBase>>)),
            (201, Some(body::<bodies::Envelope<bodies::KnowledgeBase>>)),
        ],
    },
    Route {
        method: "DELETE",
        path: "/api/v0/knowledge-bases/{id}",
        operation: Operation::DeleteKnowledgeBase,
        scope: Some(Scope::KnowledgeBases),
        summary: "Drops a knowledge base with its documents and vectors.",
        parameters: &[],
        condition: Some("if-match"),
        request: None,
        responses: &[(204, None)],
    },
    Route {
        method: "POST",
        path: "/api/v0/knowledge-bases/{id}/ingest",
        operation: Operation::IngestKnowledgeBase,
        scope: Some(Scope::KnowledgeBases),
        summary: "Begins to process the documents of a knowledge base, and to read its sources.",
        parameters: &[],
        condition: None,
        request: Some(body::<bodies::Ingest>),
        responses: &[(202, Some(body::<bodies::Envelope<bodies::Run>>))],
    },
    Route {
        method: "POST",
        path: "/api/v0/knowledge-bases/{id}/query",
        operation: Operation::QueryKnowledgeBase,
        scope: Some(Scope::Search),
        summary: "Finds the passages of a knowledge base that answer a question.",
        parameters: &[],
        condition: None,
        request: Some(body::<bodies::Query>),
        responses: &[(200, Some(body::<bodies::Envelope<bodies::Matches>>))],
    },
    Route {
        method: "GET",
        path: "/api/search/semantic",
        operation: Operation::SemanticSearch,
        scope: Some(Scope::Search),
        summary: "Finds passages in several knowledge bases.",
        parameters: &[
            Parameter { name: "query", about: "The question.", is_required: true, kind: ParameterKind::Text },
            Parameter {
                name: "limit",
                about: "The most passages.",
                is_required: false,
                kind: ParameterKind::Number { most: MOST_FOUND, default: 5 },
            },
            Parameter {
                name: "knowledge_base",
                about: "The id of a knowledge base to search; without it, every knowledge base of the tenant, but no memory and none of an agent, task or workflow.",
                is_required: false,
                kind: ParameterKind::Texts,
            },
        ],
        condition: None,
        request: None,
        responses: &[(200, Some(body::<bodies::SearchResults>))],
    },
    Route {
        method: "GET",
        path: "/openapi.json",
        operation: Operation::OpenApi,
        scope: None,
        summary: "Describes this interface.",
        parameters: &[],
        condition: None,
        request: None,
        responses: &[(200, Some(body::<bodies::Anything>))],
    },
];

/// The schema of every answer that is no success.
pub const PROBLEM: Body = body::<Problems>;

/// A request's route, with the values of the parameters of its path.
pub struct Found<'a> {
    pub route: &'static Route,
    pub path: Vec<&'a str>,
}

/// Finds the route of a request. HEAD is answered as GET without a body.
pub fn find(request: &Request) -> Result<Found<'_>, Problem> {
    let method = if request.method == "HEAD" { "GET" } else { &request.method };
    let mut allowed: Vec<&str> = Vec::new();
    for route in ROUTES {
        let Some(path) = matched(route.path, &request.segments) else { continue };
        if route.method == method {
            return Ok(Found { route, path });
        }
        allowed.push(route.method);
    }
    match allowed.is_empty() {
        true => Err(Problem::new(404, "there is no such path")),
        false => Err(Problem::new(405, format!("this path allows {}", allowed.join(", ")))),
    }
}

fn matched<'a>(pattern: &str, segments: &'a [String]) -> Option<Vec<&'a str>> {
    let mut values = Vec::new();
    let mut segments = segments.iter();
    for part in pattern[1..].split('/') {
        let segment = segments.next()?;
        match part.starts_with('{') {
            true if !segment.is_empty() => values.push(segment.as_str()),
            false if part == segment => {}
            _ => return None,
        }
    }
    segments.next().is_none().then_some(values)
}

/// Whether the scopes, which are separated by spaces or commas, allow the route. No scopes allow everything.
pub fn is_allowed(route: &Route, scopes: &str) -> bool {
    let mut given = scopes.split([' ', ',']).filter(|scope| !scope.is_empty()).peekable();
    given.peek().is_none() || route.scope.is_none_or(|needed| given.any(|scope| scope == needed.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str) -> Request {
        Request::new(method, path, "", [], Vec::new()).unwrap()
    }

    #[test]
    fn a_route_is_found_by_its_method_and_path() {
        let asked = request("HEAD", "/api/v0/knowledge-bases/a%2Fb");
        let found = find(&asked).ok().unwrap();
        assert_eq!((found.route.operation, found.path), (Operation::GetKnowledgeBase, vec!["a/b"]));
        let asked = request("POST", "/api/v0/knowledge-bases/k/query");
        assert_eq!(find(&asked).ok().unwrap().path, ["k"]);
        for (method, path, status) in [
            ("GET", "/", 404),
            ("GET", "/api/v0/knowledge-bases/k/query/more", 404),
            ("GET", "/api/v0/knowledge-bases/k/query", 405),
            ("PATCH", "/api/v0/knowledge-bases/k", 405),
            ("GET", "/api/v0/knowledge-bases//query", 404),
        ] {
            let asked = request(method, path);
            assert_eq!(find(&asked).err().map(|problem| problem.status), Some(status), "{method} {path}");
        }
    }

    #[test]
    fn scopes_allow_what_they_name_and_none_allow_everything() {
        let route = |operation| ROUTES.iter().find(|route| route.operation == operation).unwrap();
        let query = route(Operation::QueryKnowledgeBase);
        for (scopes, allowed) in [
            ("", true),
            (" ", true),
            ("search", true),
            ("a,search", true),
            ("knowledge_bases", false),
            ("searching", false),
        ] {
            assert_eq!(is_allowed(query, scopes), allowed, "{scopes}");
        }
        assert!(is_allowed(route(Operation::OpenApi), "other"));
    }
}
