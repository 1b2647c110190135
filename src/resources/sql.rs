//! Resources as JSON, as their reader sees them.

use super::resource::Resource;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_LOOKUPS;
use crate::tenants::{Meant, bindings};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::{Json, ServiceKind};

from_row! {
    pub struct Found {
        pub id: String,
        pub resource: Json,
    }
}

/// The properties of resources, which kb.export writes, too. A table has an alias of one letter.
pub mod properties {
    /// Of kb.llms s, kb.rerankers s and kb.extractors s.
    pub const SERVICE: &str = "pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
        'base_url', s.base_url, 'secret', s.secret, 'config', s.config)";
    /// Of kb.embedders s.
    pub const EMBEDDER: &str = "pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
        'dimension', s.dimension, 'base_url', s.base_url, 'secret', s.secret, 'config', s.config)";
    /// Of kb.vector_dbs v.
    pub const VECTOR_DB: &str = "pg_catalog.jsonb_build_object('type', v.type, 'dimension', v.dimension,
        'metric', v.metric, 'config', pg_catalog.jsonb_strip_nulls(v.config))";
    /// Of kb.knowledge_bases k.
    pub const KNOWLEDGE_BASE: &str =
        "pg_catalog.jsonb_build_object('embedder', k.embedder, 'vector_db', k.vector_db,
        'description', k.description, 'chunking', pg_catalog.jsonb_strip_nulls(k.chunking),
        'preprocess', pg_catalog.jsonb_strip_nulls(k.preprocess),
        'retrieval', pg_catalog.jsonb_strip_nulls(k.retrieval), 'metadata', k.metadata)";
    /// Of kb.sources s that are attached tables.
    pub const TABLE: &str = "pg_catalog.jsonb_build_object(
        'content', COALESCE(s.config #> '{content,columns}', s.config #> '{content,template}'),
        'published_when', s.config -> 'published_when', 'metadata', NULLIF(s.config -> 'metadata', '[]'),
        'tenant', s.config -> 'tenant', 'title', s.config -> 'title', 'uri', s.config -> 'uri',
        'content_type', s.config -> 'content_type', 'replicated', NULLIF(s.config -> 'replicated', 'false'),
        'json_fields', pg_catalog.jsonb_strip_nulls(s.config -> 'json_fields'),
        'adopt', s.config #> '{adopt,column}')";
    /// Of kb.sources s that are not.
    pub const SOURCE: &str = "pg_catalog.jsonb_build_object('type', s.type,
        'config', pg_catalog.jsonb_strip_nulls(s.config))";
}

/// The table of a kind of service.
pub fn table_of(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Embedder => "kb.embedders",
        ServiceKind::Reranker => "kb.rerankers",
        ServiceKind::Llm => "kb.llms",
        ServiceKind::Extractor => "kb.extractors",
    }
}

/// The source s as it stands in a file: everything beside name and type is its configuration.
fn source() -> String {
    format!(
        "CASE s.type WHEN 'table' THEN
             pg_catalog.jsonb_build_object('type', s.type, 'table', s.relation_name) || pg_catalog.jsonb_strip_nulls({})
         ELSE pg_catalog.jsonb_build_object('name', s.name, 'type', s.type) || pg_catalog.jsonb_strip_nulls(s.config) END",
        properties::TABLE
    )
}

/// The name of source s.
const SOURCE_NAME: &str = "COALESCE(s.name, s.relation_name)";

/// The knowledge base k with its tenant and what belongs to it.
fn knowledge_base() -> String {
    format!(
        "{} || pg_catalog.jsonb_build_object(
             'id', k.id, 'tenant', k.tenant_id,
             'settings', (SELECT m.settings FROM kb.memory_stores m WHERE m.kb_no = k.kb_no),
             'sources', COALESCE((SELECT pg_catalog.jsonb_agg({} ORDER BY {SOURCE_NAME} COLLATE \"C\")
                                  FROM kb.sources s WHERE s.kb_no = k.kb_no), '[]'),
             'metadata_indexes', COALESCE((SELECT pg_catalog.jsonb_agg(
                                               pg_catalog.jsonb_build_object('key', i.key, 'type', i.type)
                                               ORDER BY i.key COLLATE \"C\", i.type)
                                           FROM kb.metadata_indexes i WHERE i.kb_no = k.kb_no), '[]'),
             'shared_with', COALESCE((SELECT pg_catalog.jsonb_agg(h.tenant_id ORDER BY h.tenant_id COLLATE \"C\")
                                      FROM kb.shares h WHERE h.kb_no = k.kb_no), '[]'))",
        properties::KNOWLEDGE_BASE,
        source()
    )
}

fn service(kind: ServiceKind) -> String {
    match kind {
        ServiceKind::Embedder => format!(
            "{} || pg_catalog.jsonb_build_object('id', s.id, 'seeded', s.seeded)",
            properties::EMBEDDER
        ),
        _ => format!("{} || pg_catalog.jsonb_build_object('id', s.id)", properties::SERVICE),
    }
}

fn vector_db() -> String {
    format!("{} || pg_catalog.jsonb_build_object('id', v.id)", properties::VECTOR_DB)
}

/// The resource of this id, if the caller may read it.
pub fn find(resource: Resource, id: &str) -> Result<Option<Found>> {
    let one = |sql: String| spi::read_one(&sql, &[Arg::Text(id)], Found::from_row);
    match resource {
        Resource::Service(kind) => one(format!(
            "SELECT s.id, {} AS resource FROM {} s WHERE s.id = $1",
            service(kind),
            table_of(kind)
        )),
        Resource::VectorDb => {
            one(format!("SELECT v.id, {} AS resource FROM kb.vector_dbs v WHERE v.id = $1", vector_db()))
        }
        Resource::KnowledgeBase => {
            let meant = Meant::of_session()?;
            let sql = format!(
                "SELECT k.id, {} AS resource FROM kb.knowledge_bases k {}",
                knowledge_base(),
                meant.condition()
            );
            setting::with(BY_LOOKUPS, || spi::read_one(&sql, &meant.arguments(id), Found::from_row))
        }
        Resource::Source(kb_id) => {
            let sql = format!(
                "SELECT {SOURCE_NAME} AS id, {} AS resource FROM kb.sources s
                 WHERE s.kb_no = $1 AND {SOURCE_NAME} = $2",
                source()
            );
            let kb_no = number(kb_id)?;
            setting::with(BY_LOOKUPS, || {
                spi::read_one(&sql, &[Arg::Long(kb_no), Arg::Text(id)], Found::from_row)
            })
        }
    }
}

/// At most `most` resources that the caller may read, after this id.
pub fn page(resource: Resource, after: Option<&str>, most: i32) -> Result<Vec<Found>> {
    let arguments = [Arg::TextOrNull(after), Arg::Int(most)];
    let by_id = |sql: String| setting::with(BY_LOOKUPS, || spi::read(&sql, &arguments, Found::from_row));
    match resource {
        Resource::Service(kind) => by_id(format!(
            "SELECT s.id, {} AS resource FROM {} s WHERE s.id > COALESCE($1, '') ORDER BY s.id LIMIT $2",
            service(kind),
            table_of(kind)
        )),
        Resource::VectorDb => by_id(format!(
            "SELECT v.id, {} AS resource FROM kb.vector_dbs v WHERE v.id > COALESCE($1, '') ORDER BY v.id LIMIT $2",
            vector_db()
        )),
        Resource::KnowledgeBase => {
            // Of knowledge bases with the same id, the one that a caller means by it (Meant).
            let sql = format!(
                "SELECT k.id, {} AS resource
                 FROM (SELECT DISTINCT ON (a.id) a.id, a.kb_no
                       FROM ((SELECT o.id, o.kb_no, 0 AS place FROM kb.knowledge_bases o
                              WHERE o.tenant_id = $3 AND o.id > COALESCE($1, '') ORDER BY o.id LIMIT $2)
                             UNION ALL
                             (SELECT o.id, o.kb_no, 1 FROM kb.knowledge_bases o
                              WHERE o.tenant_id = 'shared' AND o.id > COALESCE($1, '') ORDER BY o.id LIMIT $2)
                             UNION ALL
                             (SELECT o.id, o.kb_no, 2 FROM kb.shares s JOIN kb.knowledge_bases o ON o.kb_no = s.kb_no
                              WHERE s.tenant_id = $3 AND o.id > COALESCE($1, '') ORDER BY o.id, s.created_at LIMIT $2)) a
                       ORDER BY a.id, a.place, a.kb_no LIMIT $2) f
                 JOIN kb.knowledge_bases k ON k.kb_no = f.kb_no
                 ORDER BY k.id",
                knowledge_base()
            );
            let tenant = bindings::current()?;
            let arguments = [arguments[0], arguments[1], Arg::Text(&tenant)];
            setting::with(BY_LOOKUPS, || spi::read(&sql, &arguments, Found::from_row))
        }
        Resource::Source(kb_id) => {
            let sql = format!(
                "SELECT {SOURCE_NAME} AS id, {} AS resource FROM kb.sources s
                 WHERE s.kb_no = $3 AND {SOURCE_NAME} > COALESCE($1, '') ORDER BY {SOURCE_NAME} LIMIT $2",
                source()
            );
            let arguments = [arguments[0], arguments[1], Arg::Long(number(kb_id)?)];
            setting::with(BY_LOOKUPS, || spi::read(&sql, &arguments, Found::from_row))
        }
    }
}

/// The number of the knowledge base that the caller means. An error says that there is none.
fn number(kb_id: &str) -> Result<i64> {
    let meant = Meant::of_session()?;
    let sql = format!("SELECT k.kb_no FROM kb.knowledge_bases k {}", meant.condition());
    let found = setting::with(BY_LOOKUPS, || spi::read_one(&sql, &meant.arguments(kb_id), Row::only))?;
    found.ok_or_else(|| Error::NotFound { what: ObjectKind::KnowledgeBase, id: kb_id.into() })
}

/// Locks the resource of the tenant until the transaction ends. Must run as the owner.
pub fn lock(resource: Resource, id: &str, tenant: &str) -> Result<()> {
    let locked = match resource {
        Resource::Service(kind) => {
            let sql = format!("SELECT s.id FROM {} s WHERE s.id = $1 FOR NO KEY UPDATE", table_of(kind));
            spi::write(&sql, &[Arg::Text(id)], Row::only::<String>)
        }
        Resource::VectorDb => spi::write(
            "SELECT v.id FROM kb.vector_dbs v WHERE v.id = $1 FOR NO KEY UPDATE",
            &[Arg::Text(id)],
            Row::only::<String>,
        ),
        // Sources and tables change under this lock, too. Shares and metadata indexes do not: one that is
        // added after the check is not overwritten by an alteration, but is dropped with its knowledge base.
        Resource::KnowledgeBase | Resource::Source(_) => {
            let kb_id = if let Resource::Source(kb_id) = resource { kb_id } else { id };
            spi::write(
                "SELECT k.id FROM kb.knowledge_bases k WHERE k.tenant_id = $1 AND k.id = $2 FOR NO KEY UPDATE",
                &[Arg::Text(tenant), Arg::Text(kb_id)],
                Row::only::<String>,
            )
        }
    };
    locked.map(drop)
}
