//! The vector tables: making, filling, indexing and dropping them.

use super::server::vector_schema;
use super::vector_dbs::VectorTable;
use crate::error::{Error, Result};
use crate::model::VectorDbType;
use crate::pg::ddl;
use crate::pg::role;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, quote};
use std::collections::HashSet;
use uuid::Uuid;

/// Makes a vector table with the policies of every tenant table. As the owner.
pub fn create_table(table: &VectorTable) -> Result<()> {
    let name = quote(&table.table_name);
    if table_exists(&table.table_name)? {
        return Err(Error::AlreadyExists { what: "table", id: format!("kb.{}", table.table_name) });
    }
    let unlogged = if table.kind == VectorDbType::Memory { "UNLOGGED " } else { "" };
    let column = format!("{}.{}({})", vector_schema()?, table.element.name(), table.dimension);
    for statement in [
        format!(
            "CREATE {unlogged}TABLE kb.{name} (
                 chunk_id uuid NOT NULL,
                 build_no bigint NOT NULL,
                 kb_no bigint NOT NULL,
                 tenant_id text NOT NULL,
                 fingerprint bigint NOT NULL,
                 embedding {column} NOT NULL,
                 PRIMARY KEY (build_no, chunk_id),
                 FOREIGN KEY (build_no, chunk_id) REFERENCES kb.chunks (build_no, chunk_id) ON DELETE CASCADE)"
        ),
        // Vectors do not compress, and inline ones spare a look-up each.
        format!("ALTER TABLE kb.{name} ALTER COLUMN embedding SET STORAGE PLAIN"),
        format!("ALTER TABLE kb.{name} ENABLE ROW LEVEL SECURITY"),
        format!("ALTER TABLE kb.{name} FORCE ROW LEVEL SECURITY"),
        format!(
            "CREATE POLICY tenant_read ON kb.{name} FOR SELECT
             USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]))"
        ),
        format!(
            "CREATE POLICY tenant_write ON kb.{name} USING (tenant_id = (SELECT kb.current_tenant()))
             WITH CHECK (tenant_id = (SELECT kb.current_tenant()))"
        ),
    ] {
        // A vector of over about 2,000 numbers does not fit a page and must stay TOASTable.
        let wide = table.dimension * if table.element.name() == "vector" { 4 } else { 2 } > 7000;
        if wide && statement.contains("SET STORAGE PLAIN") {
            continue;
        }
        spi::execute_utility(&statement)?;
    }
    attach(&table.table_name)
}

pub fn table_exists(table_name: &str) -> Result<bool> {
    let exists = spi::write_one(
        "SELECT pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1)) IS NOT NULL",
        &[Arg::Text(table_name)],
        |row| row.get::<bool>(0),
    )?;
    Ok(exists == Some(true))
}

/// How many vectors a build has; 0 where the caller may not see the build, and where its table is gone or cannot be read
/// (an unlogged one on a standby). Works on a standby.
pub fn count(build_no: i64) -> Result<i64> {
    let table = spi::read_one(
        "SELECT c.relname::text FROM kb.builds b
         JOIN pg_catalog.pg_class c ON c.relname = b.table_name AND c.relnamespace = 'kb'::regnamespace
         WHERE b.build_no = $1 AND (c.relpersistence <> 'u' OR NOT pg_catalog.pg_is_in_recovery())",
        &[Arg::Long(build_no)],
        |row| row.get::<String>(0),
    )?;
    let Some(table) = table else { return Ok(0) };
    let counted = || {
        spi::read_one(
            &format!("SELECT count(*) FROM kb.{} WHERE build_no = $1", quote(&table)),
            &[Arg::Long(build_no)],
            |row| row.get::<i64>(0),
        )
    };
    // Whoever sees all tenants' rows sees all of their vectors, too.
    let count =
        if role::bypasses_policies() { role::as_owner(counted) } else { role::as_vector_reader(counted) };
    Ok(count?.unwrap_or(0))
}

/// Vector tables that are not there, of knowledge bases that the caller can see, in words. Works on a standby.
pub fn lost() -> Result<Vec<String>> {
    spi::read(
        "SELECT DISTINCT pg_catalog.format('table kb.%I of knowledge base \"%s\" is gone', b.table_name, k.id)
         FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
         WHERE b.state = 'live' AND NOT EXISTS (SELECT FROM pg_catalog.pg_class t
             WHERE t.relname = b.table_name AND t.relnamespace = 'kb'::regnamespace)
         ORDER BY 1 LIMIT 5",
        &[],
        |row| row.get(0),
    )
}

/// Vector tables in use that DROP EXTENSION would not drop: a restore makes them so.
pub fn unattached() -> Result<Vec<String>> {
    spi::write(
        "SELECT t.relname::text FROM pg_catalog.pg_class t
         WHERE t.relnamespace = 'kb'::regnamespace
           AND t.relname IN (SELECT table_name FROM kb.builds UNION SELECT table_name FROM kb.vector_dbs)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_class'::regclass
               AND d.objid = t.oid AND d.refclassid = 'pg_extension'::regclass)",
        &[],
        |row| row.get(0),
    )
}

/// Has DROP EXTENSION drop a vector table, and queries read it; nobody else does, for which vectors are near to what
/// would tell of other tenants' documents.
pub fn attach(table_name: &str) -> Result<()> {
    spi::execute_utility(&format!("GRANT SELECT ON kb.{} TO kb_vectors", quote(table_name)))?;
    ddl::drop_with_extension(table_name)
}

/// As the owner or the worker. With what others made on it, such as views: those must not keep it, and their names are
/// not told.
pub fn drop_table(table_name: &str) -> Result<()> {
    setting::with(&[(c"client_min_messages", c"warning")], || {
        spi::execute_utility(&format!("DROP TABLE IF EXISTS kb.{} CASCADE", quote(table_name)))
    })
}

/// Inserts vectors of chunks; `numbers` holds them one after the other. Chunks that went away in the meantime, or that a
/// transaction which is not over is deleting, are passed over: returned are the others.
pub fn insert(
    table: &VectorTable,
    build_no: i64,
    fingerprint: i64,
    chunk_ids: &[Uuid],
    numbers: &[f32],
) -> Result<HashSet<Uuid>> {
    let schema = vector_schema()?;
    let found = spi::write(
        &format!(
            "WITH c AS MATERIALIZED (
                 SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, u.i
                 FROM pg_catalog.unnest($1::uuid[]) WITH ORDINALITY AS u (chunk_id, i)
                 JOIN kb.chunks c ON c.chunk_id = u.chunk_id AND c.build_no = $2
                 FOR KEY SHARE OF c SKIP LOCKED),
             inserted AS (
                 INSERT INTO kb.{table} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding)
                 SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, $3,
                        ($4::real[])[(c.i - 1) * {d} + 1 : c.i * {d}]::{schema}.{element}({d})
                 FROM c ON CONFLICT DO NOTHING)
             SELECT c.chunk_id FROM c",
            table = quote(&table.table_name),
            d = table.dimension,
            element = table.element.name(),
        ),
        &[Arg::Uuids(chunk_ids), Arg::Long(build_no), Arg::Long(fingerprint), Arg::Floats(numbers)],
        |row| row.uuid(0),
    )?;
    Ok(found.into_iter().collect())
}

/// Gives chunks of these documents that have no vector yet the vector of the same text under the same
/// fingerprint elsewhere in the knowledge base, from this build or from `other` (the live one).
pub fn reuse(
    table: &VectorTable,
    build_no: i64,
    fingerprint: i64,
    document_ids: &[i64],
    other: Option<(&VectorTable, i64)>,
) -> Result<u64> {
    let name = quote(&table.table_name);
    let schema = vector_schema()?;
    let (element, d) = (table.element.name(), table.dimension);
    let mut sources = vec![(name.clone(), build_no)];
    if let Some((other, build_no)) = other {
        sources.push((quote(&other.table_name), build_no));
    }
    let mut copied = 0;
    for (source, from_build) in sources {
        copied += spi::execute(
            &format!(
                "INSERT INTO kb.{name} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding)
                 SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, $2, s.embedding::{schema}.{element}({d})
                 FROM kb.chunks c CROSS JOIN LATERAL (
                     SELECT v.embedding FROM kb.chunks o
                     JOIN kb.{source} v ON v.chunk_id = o.chunk_id AND v.build_no = o.build_no
                     WHERE o.build_no = $4 AND o.content_hash = c.content_hash
                       AND v.fingerprint = $2
                     LIMIT 1) s
                 WHERE c.document_id = ANY ($3::bigint[]) AND c.build_no = $1
                   AND NOT EXISTS (SELECT FROM kb.{name} h WHERE h.chunk_id = c.chunk_id AND h.build_no = $1)
                 ON CONFLICT DO NOTHING"
            ),
            &[Arg::Long(build_no), Arg::Long(fingerprint), Arg::Longs(document_ids), Arg::Long(from_build)],
        )?;
    }
    Ok(copied)
}

/// Those of these chunks, none of which has a vector, whose text has one by now elsewhere in the build.
pub fn twins(table: &VectorTable, build_no: i64, fingerprint: i64, chunk_ids: &[Uuid]) -> Result<Vec<Uuid>> {
    spi::write(
        &format!(
            "SELECT c.chunk_id FROM kb.chunks c WHERE c.build_no = $1 AND c.chunk_id = ANY ($3::uuid[]) AND EXISTS (
                 SELECT FROM kb.chunks o JOIN kb.{} v ON v.chunk_id = o.chunk_id AND v.build_no = o.build_no
                 WHERE o.build_no = $1 AND o.content_hash = c.content_hash AND v.fingerprint = $2)",
            quote(&table.table_name)
        ),
        &[Arg::Long(build_no), Arg::Long(fingerprint), Arg::Uuids(chunk_ids)],
        |row| row.uuid(0),
    )
}

/// A chunk that has no vector yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    pub document_id: i64,
    pub ordinal: i32,
    pub chunk_id: Uuid,
    pub content: String,
    pub token_count: i32,
}

/// The next chunks without a vector, by document and ordinal, after `after`.
pub fn missing(
    table: &VectorTable,
    build_no: i64,
    document_ids: &[i64],
    after: (i64, i32),
    limit: i64,
) -> Result<Vec<Missing>> {
    spi::write(
        &format!(
            "SELECT c.document_id, c.ordinal, c.chunk_id, c.content, c.token_count FROM kb.chunks c
             WHERE c.document_id = ANY ($2::bigint[]) AND c.build_no = $1
               AND (c.document_id, c.ordinal) > ($3, $4)
               AND NOT EXISTS (SELECT FROM kb.{} v WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no)
             ORDER BY c.document_id, c.ordinal LIMIT $5",
            quote(&table.table_name)
        ),
        &[
            Arg::Long(build_no),
            Arg::Longs(document_ids),
            Arg::Long(after.0),
            Arg::Int(after.1),
            Arg::Long(limit),
        ],
        |row| {
            Ok(Missing {
                document_id: row.get(0)?,
                ordinal: row.get(1)?,
                chunk_id: row.uuid(2)?,
                content: row.get(3)?,
                token_count: row.get(4)?,
            })
        },
    )
}

/// As long as no document has waited for longer, a bulk build is better than one insertion after the other.
const FILLING: &str = "10 min";

/// A vector table and how its index stands.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexState {
    pub table: VectorTable,
    /// None: no index; Some(false): one that a failed build left behind.
    pub valid: Option<bool>,
    /// Much is about to be written: the index is built when that is done, or has lasted for [`FILLING`].
    pub is_filling: bool,
    /// It is not being filled and has as many rows as the configuration asks for.
    pub is_wanted: bool,
}

/// Name of a vector table's HNSW index.
pub fn index_name(table_name: &str) -> String {
    format!("{table_name}_hnsw")
}

/// Tables whose HNSW index is missing or invalid.
pub fn without_index() -> Result<Vec<IndexState>> {
    let waiting = "(SELECT FROM kb.jobs j JOIN kb.builds o USING (kb_no)
                    WHERE o.table_name = b.table_name AND o.state <> 'old'";
    let sql = format!(
        "SELECT DISTINCT ON (b.table_name) b.table_name, b.dimension, b.type, b.metric, b.config, i.indisvalid,
                EXISTS {waiting}) AND NOT EXISTS {waiting} AND j.queued_at < now() - '{FILLING}'::interval)
         FROM kb.builds b
         JOIN pg_catalog.pg_class t ON t.relname = b.table_name AND t.relnamespace = 'kb'::regnamespace
         LEFT JOIN pg_catalog.pg_class x ON x.relname = b.table_name || '_hnsw' AND x.relnamespace = t.relnamespace
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid AND i.indrelid = t.oid
         WHERE b.state <> 'old' AND b.type = 'pgvector' AND i.indisvalid IS DISTINCT FROM true
         ORDER BY b.table_name"
    );
    let tables = spi::write(&sql, &[], |row| {
        let (kind, metric): (String, String) = (row.get(2)?, row.get(3)?);
        let table = VectorTable::from_parts(row.get(0)?, row.get(1)?, &kind, &metric, &row.json(4)?)?;
        Ok((table, row.opt::<bool>(5)?, row.get::<bool>(6)?))
    })?;
    let mut states = Vec::new();
    for (table, valid, is_filling) in tables {
        let is_wanted = !is_filling
            && !is_locked(&table.table_name)?
            && has_rows(&table.table_name, table.config.min_rows)?;
        states.push(IndexState { table, valid, is_filling, is_wanted });
    }
    Ok(states)
}

/// Whether somebody keeps a table from being read.
fn is_locked(table_name: &str) -> Result<bool> {
    let found = spi::write_one(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class t ON t.oid = l.relation
             WHERE t.relname = $1 AND t.relnamespace = 'kb'::regnamespace AND l.granted
               AND l.mode = 'AccessExclusiveLock' AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
               AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))",
        &[Arg::Text(table_name)],
        |row| row.get::<bool>(0),
    )?;
    Ok(found.unwrap_or(false))
}

/// Whether a table has at least so many rows, without counting more.
fn has_rows(table_name: &str, rows: usize) -> Result<bool> {
    let sql = format!("SELECT count(*) FROM (SELECT FROM kb.{} LIMIT $1) t", quote(table_name));
    let found = spi::write_one(&sql, &[Arg::Long(rows.max(1) as i64)], |row| row.get::<i64>(0))?;
    Ok(found.unwrap_or(0) >= rows.max(1) as i64)
}

/// The statement that builds the index without blocking writers.
pub fn create_index_statement(table: &VectorTable) -> Result<String> {
    Ok(format!(
        "CREATE INDEX CONCURRENTLY {} ON kb.{} USING hnsw (embedding {}.{}) WITH (m = {}, ef_construction = {})",
        quote(&index_name(&table.table_name)),
        quote(&table.table_name),
        vector_schema()?,
        table.metric.operator_class(table.element),
        table.config.m,
        table.config.ef_construction
    ))
}

/// Has the planner know what a query touches.
pub fn analyze(table: &VectorTable) -> Result<()> {
    spi::execute_utility(&format!("ANALYZE kb.documents, kb.chunks, kb.{}", quote(&table.table_name)))
}

/// The statement that removes what a failed build left.
pub fn drop_index_statement(table: &VectorTable) -> String {
    format!("DROP INDEX CONCURRENTLY IF EXISTS kb.{}", quote(&index_name(&table.table_name)))
}

/// Fresh statistics of what a worker fills, so that plans made while the tables were small (its own, and those of
/// foreign keys) are made anew. Cheap: only of the columns that rows are looked up by. Gives up at once where an
/// index is being built.
pub fn refresh_statistics(table_names: &[String]) -> Result<()> {
    let mut tables = String::from(
        "kb.documents (document_id, kb_no, external_id, status), kb.jobs,
         kb.chunks (build_no, chunk_id, document_id, kb_no, ordinal, content_hash)",
    );
    for name in table_names {
        // It may have gone with its knowledge base.
        if !table_exists(name)? {
            continue;
        }
        tables.push_str(&format!(", kb.{} (build_no, chunk_id)", quote(name)));
    }
    setting::with(&[(c"lock_timeout", c"100ms")], || spi::execute_utility(&format!("ANALYZE {tables}")))
}
