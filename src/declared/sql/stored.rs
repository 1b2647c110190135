//! Everything of the caller's tenant that a file can declare, as its reader sees it.

use crate::pg::row::from_row;
use crate::pg::spi::{self, FromRow};
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

/// Each with its properties, those of a kind in the order in which they were made.
pub fn all() -> Result<Vec<(Identity, Map<String, Value>)>> {
    let mut all = Vec::new();
    for (kind, sql) in KINDS {
        for stored in spi::read(sql, &[], Stored::from_row)? {
            let properties = match stored.properties.value() {
                Ok(Value::Object(properties)) => properties,
                _ => {
                    return Err(Error::Internal(format!(
                        "{} \"{}\" has no properties",
                        kind.name(),
                        stored.id
                    )));
                }
            };
            let properties = properties.into_iter().filter(|(_, value)| !value.is_null()).collect();
            all.push((Identity::new(*kind, stored.of_id, stored.id), properties));
        }
    }
    Ok(all)
}

const KINDS: &[(Kind, &str)] = &[
    (
        Kind::Llm,
        "SELECT '' AS of_id, s.id, pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
             'base_url', s.base_url, 'secret', s.secret, 'config', s.config) AS properties
         FROM kb.llms s ORDER BY s.created_at, s.id",
    ),
    (
        Kind::Embedder,
        "SELECT '' AS of_id, s.id, pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
             'dimension', s.dimension, 'base_url', s.base_url, 'secret', s.secret, 'config', s.config) AS properties
         FROM kb.embedders s WHERE NOT s.seeded ORDER BY s.created_at, s.id",
    ),
    (
        Kind::Reranker,
        "SELECT '' AS of_id, s.id, pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
             'base_url', s.base_url, 'secret', s.secret, 'config', s.config) AS properties
         FROM kb.rerankers s ORDER BY s.created_at, s.id",
    ),
    (
        Kind::Extractor,
        "SELECT '' AS of_id, s.id, pg_catalog.jsonb_build_object('provider', s.provider, 'model', s.model,
             'base_url', s.base_url, 'secret', s.secret, 'config', s.config) AS properties
         FROM kb.extractors s ORDER BY s.created_at, s.id",
    ),
    (
        Kind::VectorDb,
        "SELECT '' AS of_id, v.id, pg_catalog.jsonb_build_object('type', v.type, 'dimension', v.dimension,
             'metric', v.metric, 'config', pg_catalog.jsonb_strip_nulls(v.config)) AS properties
         FROM kb.vector_dbs v ORDER BY v.created_at, v.id",
    ),
    (
        Kind::KnowledgeBase,
        "SELECT '' AS of_id, k.id, pg_catalog.jsonb_build_object('embedder', k.embedder, 'vector_db', k.vector_db,
             'description', k.description, 'chunking', pg_catalog.jsonb_strip_nulls(k.chunking),
             'preprocess', pg_catalog.jsonb_strip_nulls(k.preprocess),
             'retrieval', pg_catalog.jsonb_strip_nulls(k.retrieval), 'metadata', k.metadata) AS properties
         FROM kb.knowledge_bases k
         WHERE k.tenant_id = kb.current_tenant()
           AND NOT EXISTS (SELECT FROM kb.memory_stores m WHERE m.kb_no = k.kb_no)
         ORDER BY k.kb_no",
    ),
    (
        Kind::Memory,
        "SELECT '' AS of_id, k.id, pg_catalog.jsonb_build_object('embedder', k.embedder, 'vector_db', k.vector_db,
             'description', k.description, 'chunking', pg_catalog.jsonb_strip_nulls(k.chunking),
             'preprocess', pg_catalog.jsonb_strip_nulls(k.preprocess),
             'retrieval', pg_catalog.jsonb_strip_nulls(k.retrieval), 'metadata', k.metadata,
             'settings', m.settings) AS properties
         FROM kb.knowledge_bases k JOIN kb.memory_stores m ON m.kb_no = k.kb_no
         WHERE k.tenant_id = kb.current_tenant() ORDER BY k.kb_no",
    ),
    (
        Kind::MetadataIndex,
        "SELECT k.id AS of_id, pg_catalog.format('%s (%s)', i.key, i.type) AS id,
             pg_catalog.jsonb_build_object('key', i.key, 'type', i.type) AS properties
         FROM kb.metadata_indexes i JOIN kb.knowledge_bases k ON k.kb_no = i.kb_no
         WHERE i.tenant_id = kb.current_tenant() ORDER BY i.kb_no, i.key, i.type",
    ),
    (
        Kind::Source,
        "SELECT k.id AS of_id, s.name AS id,
             pg_catalog.jsonb_build_object('type', s.type, 'config', pg_catalog.jsonb_strip_nulls(s.config)) AS properties
         FROM kb.sources s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no
         WHERE s.tenant_id = kb.current_tenant() AND s.type <> 'table' ORDER BY s.source_no",
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
