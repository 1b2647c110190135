//! SQL functions over knowledge bases.

use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::pg::function_arguments::{json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::resources::{self, Resource};
use kb_types::error::Error;
use kb_types::named::Named;
use kb_types::row_states::RunStrategy;
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
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        resources::check(Resource::KnowledgeBase, id, if_match)?;
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
fn drop_knowledge_base(
    id: Option<&str>,
    if_match: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let id = required("id", id)?;
        resources::check(Resource::KnowledgeBase, id, if_match)?;
        crate::knowledge_bases::drop_knowledge_base::drop_knowledge_base(id)
    })
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
        let strategy = RunStrategy::one_of(strategy)
            .map_err(|problem| Error::Argument { argument: "strategy", problem })?;
        crate::knowledge_bases::ingest::ingest(kb_id, strategy)
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

#[pg_extern(name = "wait", volatile, parallel_unsafe)]
fn wait_kb(kb_id: Option<&str>, timeout: default!(Option<f64>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| {
        let kb_id = required("kb_id", kb_id)?;
        crate::knowledge_bases::wait::wait_for_knowledge_base(kb_id, timeout)
    })
}

#[pg_extern(name = "wait", volatile, parallel_unsafe)]
fn wait_run(run: Option<i64>, timeout: default!(Option<f64>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| {
        let run = required("run", run)?;
        crate::knowledge_bases::wait::wait_for_run(run, timeout)
    })
}

#[pg_extern(stable, parallel_restricted)]
fn estimate_ingest(
    kb_id: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(documents, i64),
            name!(chunks, i64),
            name!(tokens, i64),
            name!(cost, Option<f64>),
            name!(seconds, f64),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let found = crate::knowledge_bases::estimate_ingest::estimate_ingest(required("kb_id", kb_id)?)?;
        Ok(TableIterator::once((found.documents, found.chunks, found.tokens, found.cost, found.seconds)))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn acknowledge_restore() -> Result<(), ErrorReport> {
    reported(crate::models::acknowledge_restore)
}

#[pg_extern(volatile, parallel_unsafe)]
fn share(kb_id: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| crate::knowledge_bases::share::share(required("kb_id", kb_id)?, required("tenant", tenant)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn unshare(kb_id: Option<&str>, tenant: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        crate::knowledge_bases::share::unshare(required("kb_id", kb_id)?, required("tenant", tenant)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn refuse_share(kb_id: Option<&str>, owner: Option<&str>) -> Result<bool, ErrorReport> {
    reported(|| {
        crate::knowledge_bases::share::refuse_share(required("kb_id", kb_id)?, required("owner", owner)?)
    })
}
