//! Knowledge bases as resources with etags: what /api/v0/knowledge-bases does.

use super::answer::Answered;
use super::sql;
use crate::resources::{self, Resource};
use kb_http::bodies::{Declared, Envelope, Ingest, KnowledgeBase, KnowledgeBases, Page, Run};
use kb_http::routes::MOST_LISTED;
use kb_http::{Problem, Request, Response};
use kb_types::Json;
use kb_types::error::{Error, Result};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The answer in its envelope.
pub fn enveloped<T: Serialize>(status: u16, message: &str, data: T) -> Response {
    Response::json(status, &Envelope { status, message: message.into(), data })
}

/// JSON of the database as a part of an answer.
pub fn raw(json: &Json) -> Result<Box<RawValue>> {
    RawValue::from_string(json.to_string()).map_err(|error| Error::Internal(error.to_string()))
}

pub fn list(request: &Request) -> Answered {
    let limit = request.number("limit", 1..=MOST_LISTED)?;
    let (items, next_cursor) = sql::list_knowledge_bases(limit.unwrap_or(100), request.parameter("cursor"))?;
    let knowledge_bases: Result<Vec<KnowledgeBase>> =
        items.iter().map(|item| raw(item).map(KnowledgeBase)).collect();
    let knowledge_bases = knowledge_bases?;
    let page = Page { count: knowledge_bases.len(), next_cursor };
    Ok(enveloped(200, "knowledge bases listed", KnowledgeBases { knowledge_bases, page }))
}

pub fn get(request: &Request, id: &str) -> Answered {
    let known = request.header("if-none-match");
    match sql::get_knowledge_base(id, known)? {
        Some(found) => answered(200, "knowledge base found", &found),
        None => {
            let etag = sql::get_knowledge_base(id, None)?.as_ref().and_then(etag_of);
            Ok(Response::empty(304).with("etag", etag.unwrap_or_default()))
        }
    }
}

fn answered(status: u16, message: &str, item: &Json) -> Answered {
    let response = enveloped(status, message, KnowledgeBase(raw(item)?));
    Ok(response.with("etag", etag_of(item).unwrap_or_default()))
}

fn etag_of(item: &Json) -> Option<String> {
    item.members()?.into_iter().find(|(name, _)| name == "etag")?.1.text()
}

const UNCONDITIONAL: &str = "a knowledge base that exists is changed with its etag in If-Match";
const ABSENT: &str = "there is no knowledge base of this id";

/// Creates a knowledge base, or changes one as a file for kb.apply would.
pub fn put(request: &Request, id: &str) -> Answered {
    let Declared(mut declared) = request.json()?;
    let given = declared.insert("id".into(), json!(id));
    if given.is_some_and(|given| given != id) {
        return Err(Problem::new(422, "the id in the body is not that of the path").into());
    }
    let condition = request.header("if-match");
    let is_there = sql::has_knowledge_base(id)?;
    match (is_there, condition) {
        (true, None) => {
            return Err(Problem::new(428, UNCONDITIONAL).into());
        }
        (true, Some(etag)) if etag.trim() != "*" => {
            resources::check(Resource::KnowledgeBase, id, Some(etag))?
        }
        (true, Some(_)) | (false, None) => {}
        (false, Some(_)) => return Err(Problem::new(412, ABSENT).into()),
    }
    if is_there && request.header("if-none-match").is_some_and(|value| value.trim() == "*") {
        return Err(Problem::new(412, "there is a knowledge base of this id").into());
    }
    // Another transaction may have created or dropped it before kb.apply had its lock.
    let is_created = sql::apply(&json!({"knowledge_bases": [declared]}).to_string())?;
    match (is_there, is_created) {
        (false, false) => return Err(Problem::new(428, UNCONDITIONAL).into()),
        (true, true) => return Err(Problem::new(412, ABSENT).into()),
        _ => {}
    }
    let item = sql::latest_knowledge_base(id)?;
    match is_there {
        true => answered(200, "knowledge base changed", &item),
        false => answered(201, "knowledge base created", &item),
    }
}

pub fn delete(request: &Request, id: &str) -> Answered {
    let condition = request.header("if-match").filter(|etag| etag.trim() != "*");
    resources::check(Resource::KnowledgeBase, id, condition)?;
    sql::drop_knowledge_base(id)?;
    Ok(Response::empty(204))
}

pub fn ingest(request: &Request, id: &str) -> Answered {
    let Ingest { strategy } = request.json()?;
    let run = sql::ingest(id, strategy.name())?;
    Ok(enveloped(202, "ingestion begun", Run { knowledge_base: id.into(), run }))
}
