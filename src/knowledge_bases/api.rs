//! SQL functions over knowledge bases.

use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::pg::function_arguments::{json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;

use kb_types::states::RunStrategy;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn create_knowledge_base(
    id: Option<&str>,
    embedder: default!(Option<&str>, "NULL"),
    vector_db: default!(Option<&str>, "NULL"),
    description: default!(Option<&str>, "NULL"),
    chunking: default!(Option<Jsonb>, "NULL"),
    preprocess: default!(Option<Jsonb>, "NULL"),
    retrieval: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        let wanted = WantedKnowledgeBase {
            embedder: embedder.map(str::to_string),
            vector_db: vector_db.map(str::to_string),
            description: description.map(str::to_string),
            chunking: value("chunking", chunking)?,
            preprocess: value("preprocess", preprocess)?,
            retrieval: value("retrieval", retrieval)?,
            metadata: json("metadata", metadata)?,
        };
        crate::knowledge_bases::create_knowledge_base::create_knowledge_base(id, wanted)
    })
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn alter_knowledge_base(
    id: Option<&str>,
    embedder: default!(Option<&str>, "NULL"),
    description: default!(Option<&str>, "NULL"),
    chunking: default!(Option<Jsonb>, "NULL"),
    preprocess: default!(Option<Jsonb>, "NULL"),
    retrieval: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        let wanted = WantedKnowledgeBase {
            embedder: embedder.map(str::to_string),
            vector_db: None,
            description: description.map(str::to_string),
            chunking: value("chunking", chunking)?,
            preprocess: value("preprocess", preprocess)?,
            retrieval: value("retrieval", retrieval)?,
            metadata: json("metadata", metadata)?,
        };
        crate::knowledge_bases::alter_knowledge_base::alter_knowledge_base(id, wanted)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_knowledge_base(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| crate::knowledge_bases::drop_knowledge_base::drop_knowledge_base(required("id", id)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn move_knowledge_base(id: Option<&str>, tenant: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| {
        crate::knowledge_bases::move_knowledge_base::move_knowledge_base(
            required("id", id)?,
            required("tenant", tenant)?,
        )
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn ingest(kb_id: Option<&str>, strategy: default!(Option<&str>, "'upsert'")) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, strategy) = (required("kb_id", kb_id)?, required("strategy", strategy)?);
        crate::knowledge_bases::ingest::ingest(kb_id, RunStrategy::parse(strategy)?)
    })
}

#[pg_extern(
    volatile,
    parallel_unsafe,
    sql = "
CREATE FUNCTION kb.index_metadata(kb_id text, key text, type text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"
)]
fn index_metadata(
    kb_id: Option<&str>,
    key: Option<&str>,
    index_type: Option<&str>,
) -> Result<bool, ErrorReport> {
    reported(|| {
        let (kb_id, key) = (required("kb_id", kb_id)?, required("key", key)?);
        crate::knowledge_bases::index_metadata::index_metadata(kb_id, key, required("type", index_type)?)
    })
}

#[pg_extern(
    volatile,
    parallel_unsafe,
    sql = "
CREATE FUNCTION kb.unindex_metadata(kb_id text, key text, type text DEFAULT NULL) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"
)]
fn unindex_metadata(
    kb_id: Option<&str>,
    key: Option<&str>,
    index_type: Option<&str>,
) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, key) = (required("kb_id", kb_id)?, required("key", key)?);
        crate::knowledge_bases::index_metadata::unindex_metadata(kb_id, key, index_type)
    })
}
