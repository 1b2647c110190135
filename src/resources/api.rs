//! SQL functions that list and read resources.

use super::resource::Resource;
use super::{get, list};
use crate::pg::function_arguments::required;
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use kb_types::ServiceKind;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

fn one(
    resource: Resource,
    id: Option<&str>,
    if_none_match: Option<&str>,
) -> Result<Option<Jsonb>, ErrorReport> {
    reported(|| Ok(get::get(resource, required("id", id)?, if_none_match)?.map(Jsonb)))
}

fn page(resource: Resource, limit: Option<i32>, cursor: Option<&str>) -> Result<Jsonb, ErrorReport> {
    reported(|| Ok(Jsonb(list::list(resource, required("limit", limit)?, cursor)?)))
}

#[pg_extern(stable, parallel_restricted)]
fn get_knowledge_base(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::KnowledgeBase, id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_knowledge_bases(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::KnowledgeBase, limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_embedder(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::Service(ServiceKind::Embedder), id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_embedders(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::Service(ServiceKind::Embedder), limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_vector_db(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::VectorDb, id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_vector_dbs(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::VectorDb, limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_llm(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::Service(ServiceKind::Llm), id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_llms(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::Service(ServiceKind::Llm), limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_reranker(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::Service(ServiceKind::Reranker), id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_rerankers(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::Service(ServiceKind::Reranker), limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_extractor(
    id: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    one(Resource::Service(ServiceKind::Extractor), id, if_none_match)
}

#[pg_extern(stable, parallel_restricted)]
fn list_extractors(
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    page(Resource::Service(ServiceKind::Extractor), limit, cursor)
}

#[pg_extern(stable, parallel_restricted)]
fn get_source(
    kb_id: Option<&str>,
    name: Option<&str>,
    if_none_match: default!(Option<&str>, "NULL"),
) -> Result<Option<Jsonb>, ErrorReport> {
    reported(|| {
        let (kb_id, name) = (required("kb_id", kb_id)?, required("name", name)?);
        Ok(get::get(Resource::Source(kb_id), name, if_none_match)?.map(Jsonb))
    })
}

#[pg_extern(stable, parallel_restricted)]
fn list_sources(
    kb_id: Option<&str>,
    limit: default!(Option<i32>, "100"),
    cursor: default!(Option<&str>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        Ok(Jsonb(list::list(Resource::Source(kb_id), required("limit", limit)?, cursor)?))
    })
}
