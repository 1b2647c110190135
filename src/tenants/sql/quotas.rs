//! kb.quotas and kb.quota_counts: what tenants may have, and what they have. A count is the sum of rows. A
//! transaction that deletes adds such a row without waiting for any other; a transaction that adds documents
//! locks the tenant's quota.
//!
//! A new quota applies at once, and is counted once more when all transactions that did not know of it have
//! ended (`tenants/upkeep.rs`). The bytes that a document counts are in its row (`stored_bytes`),
//! which the worker does not change, so exactly as much is subtracted as was added. Triggers count what other
//! tables hold.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::table_cache::{self, TableCache};
use crate::pg::{setting, txn};
use crate::sql::{BY_INDEX, BY_LOOKUPS};
use kb_types::error::{Error, Result};
use kb_types::quota::{Quota, Thing, Volume};
use std::cell::RefCell;

thread_local! {
    static QUOTAS: RefCell<TableCache<String, Option<Quota>>> = RefCell::default();
}

/// The rows of counts of a tenant are folded into one per knowledge base once there are this many more rows
/// than two for each.
const FOLDED_FROM: i64 = 64;

/// Whether a document d has text. A placeholder of a row that could not be read has none.
const HAS_TEXT: &str =
    "coalesce(pg_catalog.octet_length(d.original), pg_catalog.octet_length(d.content), 0) > 0";

from_row! {
    /// The sizes of a stored document.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct StoredSize {
        /// The bytes of everything that was put.
        pub bytes: i64,
        pub has_text: bool,
        pub title: i64,
        pub uri: i64,
        pub metadata: i64,
    }
}

/// The quota of a tenant, if it has one.
pub fn of(tenant_id: &str) -> Option<Quota> {
    table_cache::get(&QUOTAS, &tenant_id.to_string(), || {
        let mut found = None;
        table_cache::scan(c"quotas", Some((c"quotas_pkey", tenant_id)), |row| {
            found = Some(quota(row)?);
            Ok(())
        });
        found
    })
}

fn quota(row: &Row) -> Result<Quota> {
    Ok(Quota {
        bytes: row.get("bytes")?,
        documents: row.get("documents")?,
        document_bytes: row.get("document_bytes")?,
        knowledge_bases: row.get("knowledge_bases")?,
        tokens_per_day: row.get("tokens_per_day")?,
        attached_tables: row.get("attached_tables")?,
        metadata_indexes: row.get("metadata_indexes")?,
        memory_entries: row.get("memory_entries")?,
    })
}

/// Sets the quota of a tenant. Must run as the owner.
pub fn set(tenant_id: &str, quota: &Quota) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.quotas
             (tenant_id, bytes, documents, document_bytes, knowledge_bases, tokens_per_day, attached_tables, metadata_indexes,
              memory_entries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (tenant_id) DO UPDATE SET bytes = EXCLUDED.bytes, documents = EXCLUDED.documents,
             document_bytes = EXCLUDED.document_bytes, knowledge_bases = EXCLUDED.knowledge_bases,
             tokens_per_day = EXCLUDED.tokens_per_day, attached_tables = EXCLUDED.attached_tables,
             metadata_indexes = EXCLUDED.metadata_indexes, memory_entries = EXCLUDED.memory_entries, is_settled = false, settle_after = NULL, updated_at = now()",
        &[
            Arg::Text(tenant_id),
            Arg::LongOrNull(quota.bytes),
            Arg::LongOrNull(quota.documents),
            Arg::LongOrNull(quota.document_bytes),
            Arg::LongOrNull(quota.knowledge_bases),
            Arg::LongOrNull(quota.tokens_per_day),
            Arg::LongOrNull(quota.attached_tables),
            Arg::LongOrNull(quota.metadata_indexes),
            Arg::LongOrNull(quota.memory_entries),
        ],
    )?;
    Ok(())
}

/// Removes the quota of a tenant. Must run as the owner.
pub fn delete(tenant_id: &str) -> Result<()> {
    spi::execute("DELETE FROM kb.quotas WHERE tenant_id = $1", &[Arg::Text(tenant_id)])?;
    spi::execute("DELETE FROM kb.quota_counts WHERE tenant_id = $1", &[Arg::Text(tenant_id)])?;
    Ok(())
}

/// Locks a tenant's quota until the transaction ends, so that no other transaction adds to what the tenant
/// has. Returns false if the tenant has no quota. If another transaction holds the lock, waits for it, or
/// returns an error (55P03) if `waits` is false. Must run as the owner.
pub fn lock(tenant_id: &str, waits: bool) -> Result<bool> {
    let waiting = if waits { "" } else { "NOWAIT" };
    let locked = spi::execute(
        &format!("SELECT FROM kb.quotas WHERE tenant_id = $1 FOR NO KEY UPDATE {waiting}"),
        &[Arg::Text(tenant_id)],
    )?;
    Ok(locked > 0)
}

/// What a tenant, whose quota is locked, has in a knowledge base and in all of them, whatever snapshot the
/// transaction has. Must run as the owner.
pub fn used(tenant_id: &str, kb_no: i64) -> Result<Volume> {
    let count = || {
        let found = spi::read_one(
            "SELECT count(*) - 2 * count(DISTINCT c.kb_no) AS spare,
                    coalesce(sum(c.documents) FILTER (WHERE c.kb_no = $2), 0)::bigint AS documents,
                    coalesce(sum(c.bytes), 0)::bigint AS bytes
             FROM kb.quota_counts c WHERE c.tenant_id = $1
               AND (SELECT true FROM kb.knowledge_bases k WHERE k.kb_no = c.kb_no)",
            &[Arg::Text(tenant_id), Arg::Long(kb_no)],
            |row| {
                let volume = Volume { documents: row.get("documents")?, bytes: row.get("bytes")? };
                Ok((row.get::<i64>("spare")?, volume))
            },
        )?;
        found.ok_or_else(|| Error::Internal("no counts".into()))
    };
    let (spare, volume) = txn::with_latest_snapshot(|| setting::with(BY_INDEX, count))?;
    // Under an older snapshot, rows that other transactions have folded since cannot be deleted.
    if spare > FOLDED_FROM && txn::is_read_committed() {
        fold(tenant_id)?;
    }
    Ok(volume)
}

fn fold(tenant_id: &str) -> Result<()> {
    setting::with(BY_INDEX, || {
        spi::execute(
            "WITH taken AS (DELETE FROM kb.quota_counts WHERE tenant_id = $1 RETURNING kb_no, documents, bytes)
             INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes)
             SELECT $1, kb_no, sum(documents), sum(bytes) FROM taken
             WHERE (SELECT true FROM kb.knowledge_bases k WHERE k.kb_no = taken.kb_no) GROUP BY kb_no",
            &[Arg::Text(tenant_id)],
        )
    })?;
    Ok(())
}

/// Adds to what a tenant has. Must run as the owner.
pub fn add(tenant_id: &str, kb_no: i64, more: Volume) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes) VALUES ($1, $2, $3, $4)",
        &[Arg::Text(tenant_id), Arg::Long(kb_no), Arg::Long(more.documents), Arg::Long(more.bytes)],
    )?;
    Ok(())
}

/// What of a knowledge base k counts beside its documents: rows, and the columns of them that count. The
/// triggers bytes_changed (sql/tables.sql) count the same.
const OTHERS: &str = "SELECT pg_catalog.to_jsonb(k) AS of_row, ARRAY['description', 'metadata'] AS columns
    UNION ALL SELECT pg_catalog.to_jsonb(s), ARRAY['config'] FROM kb.sources s WHERE s.kb_no = k.kb_no
    UNION ALL SELECT pg_catalog.to_jsonb(s), ARRAY['tenant_id'] FROM kb.shares s WHERE s.kb_no = k.kb_no
    UNION ALL SELECT pg_catalog.to_jsonb(s), ARRAY['name'] FROM kb.eval_sets s WHERE s.kb_no = k.kb_no
    UNION ALL SELECT pg_catalog.to_jsonb(q), ARRAY['question_id', 'question', 'relevant', 'filter']
        FROM kb.eval_sets s JOIN kb.eval_questions q USING (eval_set_no) WHERE s.kb_no = k.kb_no
    UNION ALL SELECT pg_catalog.to_jsonb(m), ARRAY['subject', 'tags'] FROM kb.memory_entries m WHERE m.kb_no = k.kb_no";

/// Counts again what a tenant has, whose quota is locked. Deletions by other transactions meanwhile are
/// subtracted when they commit. Must run as the owner.
pub fn count_again(tenant_id: &str) -> Result<()> {
    setting::with(BY_INDEX, || {
        spi::execute(
            &format!(
                "WITH old AS (DELETE FROM kb.quota_counts WHERE tenant_id = $1)
                 INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes)
                 SELECT $1, k.kb_no, n.documents, n.bytes + o.bytes FROM kb.knowledge_bases k CROSS JOIN LATERAL (
                     SELECT count(*) FILTER (WHERE {HAS_TEXT}) AS documents, coalesce(sum(d.stored_bytes), 0) AS bytes
                     FROM kb.documents d WHERE d.kb_no = k.kb_no) n
                 CROSS JOIN LATERAL (SELECT coalesce(sum(kb._bytes(r.of_row, r.columns)), 0) AS bytes FROM ({OTHERS}) r) o
                 WHERE k.tenant_id = $1 AND n.documents + n.bytes + o.bytes > 0"
            ),
            &[Arg::Text(tenant_id)],
        )
    })?;
    Ok(())
}

/// Records, for quotas that are new, which transactions may not know of them: all that run now, whose ids are
/// below the id of this one. (The xmax of a snapshot may be the id of a running transaction.)
pub fn note_new() -> Result<()> {
    spi::execute(
        "UPDATE kb.quotas SET settle_after = pg_catalog.pg_current_xact_id()
         WHERE NOT is_settled AND settle_after IS NULL",
        &[],
    )?;
    Ok(())
}

/// The tenants whose new quota is known to all running transactions, because those that added documents
/// without knowing of it have ended. A transaction id of the future is another server's, from a restore.
pub fn to_settle() -> Result<Vec<String>> {
    spi::write(
        "SELECT tenant_id FROM kb.quotas WHERE NOT is_settled
           AND (settle_after <= pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
                OR settle_after > pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()))",
        &[],
        Row::only,
    )
}

/// Marks the counts of a tenant as exact.
pub fn settle(tenant_id: &str) -> Result<()> {
    spi::execute("UPDATE kb.quotas SET is_settled = true WHERE tenant_id = $1", &[Arg::Text(tenant_id)])?;
    Ok(())
}

/// Whether the counts of some quota are not exact yet.
pub fn any_unsettled() -> Result<bool> {
    spi::read_value("SELECT EXISTS (SELECT FROM kb.quotas WHERE NOT is_settled)", &[])
}

/// The number of things of a kind that a tenant has, up to `most`. Must run as the owner.
pub fn count(tenant_id: &str, thing: Thing, most: i64) -> Result<i64> {
    let things = match thing {
        Thing::KnowledgeBases => "SELECT FROM kb.knowledge_bases WHERE tenant_id = $1",
        Thing::AttachedTables => "SELECT FROM kb.sources WHERE tenant_id = $1",
        Thing::MetadataIndexes => "SELECT DISTINCT key, type FROM kb.metadata_indexes WHERE tenant_id = $1",
        Thing::MemoryEntries => {
            "SELECT FROM kb.memory_stores s
             CROSS JOIN LATERAL (SELECT FROM kb.memory_entries m WHERE m.kb_no = s.kb_no) m WHERE s.tenant_id = $1"
        }
    };
    let sql = format!("SELECT count(*) FROM ({things} LIMIT $2) t");
    let count = || spi::read_one(&sql, &[Arg::Text(tenant_id), Arg::Long(most)], Row::only::<i64>);
    let found = txn::with_latest_snapshot(|| setting::with(BY_LOOKUPS, count))?;
    Ok(found.unwrap_or(0))
}

/// The sizes of those of these documents that exist, by external_id. Must run as the owner.
pub fn sizes(kb_no: i64, tenant_id: &str, external_ids: &[String]) -> Result<Vec<(String, StoredSize)>> {
    let length = |column: &str| format!("coalesce(pg_catalog.octet_length({column}), 0)::bigint");
    let (title, uri) = (length("d.title"), length("d.uri"));
    let metadata = length("nullif(d.metadata::text, '{}')");
    spi::write(
        &format!(
            "SELECT u.id, d.* FROM pg_catalog.unnest($3::text[]) AS u (id)
             CROSS JOIN LATERAL (
                 SELECT d.stored_bytes AS bytes, {HAS_TEXT} AS has_text, {title} AS title, {uri} AS uri, {metadata} AS metadata
                 FROM kb.documents d
                 WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id LIMIT 1) d"
        ),
        &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Texts(external_ids)],
        |row| Ok((row.get("id")?, StoredSize::from_row(row)?)),
    )
}
