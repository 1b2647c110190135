//! Everything of the caller's tenant that a file can declare, as its reader sees it.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::resources::properties;
use kb_declared::declaration::{Identity, Kind};
use kb_types::Json;
use kb_types::error::{Error, Result};
use serde_json::{Map, Value};

from_row! {
    struct Stored {
        of_id: String,
        id: String,
        properties: Json,
    }
}

type Properties = Map<String, Value>;

/// Each with its properties, those of a kind in the order in which they were made.
pub fn all() -> Result<Vec<(Identity, Properties)>> {
    let mut all = Vec::new();
    for (kind, sql) in kinds() {
        all.extend(read(kind, &sql)?);
    }
    Ok(all)
}

/// The same, if a file can say all of it: a number that has more digits than a file keeps is an error.
pub fn all_exactly() -> Result<Vec<(Identity, Properties)>> {
    let all = all()?;
    let is_text =
        |(_, properties): &&(Identity, Properties)| properties.get(METADATA).is_some_and(Value::is_string);
    match all.iter().find(is_text) {
        None => Ok(all),
        Some((identity, _)) => Err(Error::State {
            problem: format!(
                "the metadata of {} \"{}\" has a number that a file cannot keep as it is",
                identity.kind.name().replace('_', " "),
                identity.text()
            ),
            hint: "Write the number as a string, with kb.alter_knowledge_base.".into(),
        }),
    }
}

/// The attached tables, with their properties.
pub fn tables() -> Result<Vec<(Identity, Properties)>> {
    read(Kind::Table, &attached())
}

/// The name of a table as kb stores it, with its schema and quoted. None: there is no such table.
pub fn printed_name(name: &str) -> Result<Option<String>> {
    spi::read_one(
        "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = pg_catalog.to_regclass($1)",
        &[Arg::Text(name)],
        Row::only,
    )
}

fn read(kind: Kind, sql: &str) -> Result<Vec<(Identity, Properties)>> {
    let stored = spi::read(sql, &[], Stored::from_row)?;
    let with_properties = |stored: Stored| match properties_of(&stored.properties) {
        Some(properties) => Ok((Identity::new(kind, stored.of_id, stored.id), properties)),
        None => Err(Error::Internal(format!("{} \"{}\" has no properties", kind.name(), stored.id))),
    };
    stored.into_iter().map(with_properties).collect()
}

/// The metadata of a knowledge base, which may have any numbers. What a value does not keep becomes the
/// string of its JSON, which is like nothing that a file declares as metadata.
const METADATA: &str = "metadata";

fn properties_of(stored: &Json) -> Option<Properties> {
    let members = stored.members()?.into_iter();
    let with_value = members.map(|(name, json)| {
        let value = match json.value() {
            Err(_) if name == METADATA => Value::String(json.to_string()),
            value => value.ok()?,
        };
        Some((name, value))
    });
    let all: Option<Properties> = with_value.collect();
    all.map(|all| all.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

fn service(table: &str, properties: &str, which: &str) -> String {
    format!(
        "SELECT '' AS of_id, s.id, {properties} AS properties FROM {table} s {which} ORDER BY s.created_at, s.id"
    )
}

fn attached() -> String {
    format!(
        "SELECT k.id AS of_id, s.relation_name AS id, {} AS properties
         FROM kb.sources s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no
         WHERE s.tenant_id = kb.current_tenant() AND s.type = 'table' ORDER BY s.source_no",
        properties::TABLE
    )
}

fn kinds() -> Vec<(Kind, String)> {
    let of_services = [
        (Kind::Llm, service("kb.llms", properties::SERVICE, "")),
        (Kind::Embedder, service("kb.embedders", properties::EMBEDDER, "WHERE NOT s.seeded")),
        (Kind::Reranker, service("kb.rerankers", properties::SERVICE, "")),
        (Kind::Extractor, service("kb.extractors", properties::SERVICE, "")),
    ];
    let of_knowledge_bases = [
        (
            Kind::VectorDb,
            format!(
                "SELECT '' AS of_id, v.id, {} AS properties FROM kb.vector_dbs v ORDER BY v.created_at, v.id",
                properties::VECTOR_DB
            ),
        ),
        (
            Kind::KnowledgeBase,
            format!(
                "SELECT '' AS of_id, k.id, {} AS properties FROM kb.knowledge_bases k
                 WHERE k.tenant_id = kb.current_tenant()
                   AND NOT EXISTS (SELECT FROM kb.memory_stores m WHERE m.kb_no = k.kb_no)
                 ORDER BY k.kb_no",
                properties::KNOWLEDGE_BASE
            ),
        ),
        (
            Kind::Memory,
            format!(
                "SELECT '' AS of_id, k.id, {} || pg_catalog.jsonb_build_object('settings', m.settings) AS properties
                 FROM kb.knowledge_bases k JOIN kb.memory_stores m ON m.kb_no = k.kb_no
                 WHERE k.tenant_id = kb.current_tenant() ORDER BY k.kb_no",
                properties::KNOWLEDGE_BASE
            ),
        ),
        (
            Kind::Source,
            format!(
                "SELECT k.id AS of_id, s.name AS id, {} AS properties
                 FROM kb.sources s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no
                 WHERE s.tenant_id = kb.current_tenant() AND s.type <> 'table' ORDER BY s.source_no",
                properties::SOURCE
            ),
        ),
        (Kind::Table, attached()),
    ];
    let others = OTHERS.iter().map(|(kind, sql)| (*kind, sql.to_string()));
    let mut kinds: Vec<(Kind, String)> =
        of_services.into_iter().chain(of_knowledge_bases).chain(others).collect();
    // In the order in which they are made.
    kinds.sort_by_key(|(kind, _)| *kind);
    kinds
}

const OTHERS: &[(Kind, &str)] = &[
    (
        Kind::MetadataIndex,
        "SELECT k.id AS of_id, pg_catalog.format('%s (%s)', i.key, i.type) AS id,
             pg_catalog.jsonb_build_object('key', i.key, 'type', i.type) AS properties
         FROM kb.metadata_indexes i JOIN kb.knowledge_bases k ON k.kb_no = i.kb_no
         WHERE i.tenant_id = kb.current_tenant() ORDER BY i.kb_no, i.key, i.type",
    ),
    (
        Kind::Share,
        "SELECT k.id AS of_id, s.tenant_id AS id, pg_catalog.jsonb_build_object() AS properties
         FROM kb.shares s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no
         WHERE s.owner_id = kb.current_tenant() ORDER BY s.kb_no, s.tenant_id",
    ),
    (
        Kind::Binding,
        "SELECT b.scope AS of_id, b.id_ref AS id, pg_catalog.jsonb_build_object('top_k', b.top_k, 'min_score', b.min_score,
             'max_tokens', b.max_tokens, 'fallback', b.fallback, 'inject_as', b.inject_as, 'filter', b.filter) AS properties
         FROM kb.bindings b WHERE b.tenant_id = kb.current_tenant() ORDER BY b.binding_no",
    ),
    (
        Kind::Quota,
        "SELECT '' AS of_id, q.tenant_id AS id, pg_catalog.jsonb_build_object('bytes', q.bytes, 'documents', q.documents,
             'document_bytes', q.document_bytes, 'knowledge_bases', q.knowledge_bases, 'tokens_per_day', q.tokens_per_day,
             'attached_tables', q.attached_tables, 'metadata_indexes', q.metadata_indexes,
             'memory_entries', q.memory_entries) AS properties
         FROM kb.quotas q WHERE q.tenant_id <> '' ORDER BY q.tenant_id",
    ),
];
