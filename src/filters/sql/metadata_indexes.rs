//! kb.metadata_indexes: the keys of metadata whose values can be looked up in ranges, and the indexes that
//! serve this.
//!
//! All knowledge bases that want an index on a key and type share one, which has the knowledge base before
//! the value. Every write to kb.documents, and the planning of each statement that reads it, pays for every
//! index on the table, so there must not be one for each knowledge base. Documents without such a value are
//! not in the index.
//!
//! The indexer creates and drops these indexes. It compares the rows of kb.metadata_indexes with the existing
//! indexes ([`tasks`]), so a restore, which brings only the rows, needs nothing more. The indexes hold
//! shortened values, so that no document is too large for them; the condition itself decides.

use crate::pg::setting;
use crate::pg::spi::{self, Arg, literal, quote};
use kb_types::Filter;
use kb_types::error::Result;
use kb_types::filter::IndexType;
use kb_types::named::Named;

/// The most indexes on different keys and types of all tenants together.
pub const MOST: i64 = 32;

/// A key of metadata that is indexed.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataIndex {
    pub key: String,
    pub index_type: IndexType,
}

impl MetadataIndex {
    /// Whether the index serves look-ups of a key whose values are compared as this type.
    pub fn serves(&self, key: &str, index_type: IndexType) -> bool {
        self.key == key && self.index_type == index_type
    }
}

/// What the index holds for a key, as an expression. The condition of a filter and the definition of the
/// index must have the same text. The result is bounded in size and the expression raises no error, because
/// an index must not refuse documents.
pub fn key_expression(index_type: IndexType, metadata: &str, key: &str) -> String {
    let typed = |kind: &str, value: &str| {
        format!("CASE WHEN pg_catalog.jsonb_typeof({metadata} -> {key}) = '{kind}' THEN {value} END")
    };
    match index_type {
        IndexType::Number => typed("number", &shortened_number(&format!("({metadata} -> {key})::numeric"))),
        IndexType::Text => {
            format!(
                "({}) COLLATE \"C\"",
                typed("string", &shortened_text(&format!("({metadata} ->> {key})")))
            )
        }
        IndexType::Timestamp => typed("string", &format!("kb._microseconds({metadata} ->> {key})")),
    }
}

/// A number as an index holds it. Shortening keeps the order, except that different numbers may become equal.
pub fn shortened_number(number: &str) -> String {
    format!("pg_catalog.round(LEAST(GREATEST({number}, -1e15), 1e15), 6)")
}

/// A text as an index holds it. Shortening keeps the order, except that different texts may become equal.
pub fn shortened_text(text: &str) -> String {
    format!("pg_catalog.left({text}, 100)")
}

/// The indexes that a filter of a knowledge base can use. Must run as the owner.
pub fn of_filter(kb_no: i64, filter: &Filter) -> Result<Vec<MetadataIndex>> {
    if !filter.has_ranges() {
        return Ok(Vec::new());
    }
    let found = spi::read(
        "SELECT m.key, m.type FROM kb.metadata_indexes m WHERE m.kb_no = $1",
        &[Arg::Long(kb_no)],
        |row| Ok((row.get("key")?, row.get("type")?)),
    )?;
    let read =
        |(key, name): (String, String)| Some(MetadataIndex { key, index_type: IndexType::named(&name)? });
    Ok(found.into_iter().filter_map(read).collect())
}

/// Keeps other transactions that call this from adding an index until this transaction ends. Rows can still
/// be written, also by the drop of a knowledge base, so queries never have to wait. Returns an error (55P03)
/// if another transaction, of whatever tenant, has called this and stays open. Must run as the owner.
pub fn lock() -> Result<()> {
    setting::with(&[(c"lock_timeout", c"2s")], || {
        spi::execute_utility("LOCK TABLE kb.metadata_indexes IN SHARE UPDATE EXCLUSIVE MODE")
    })
}

/// Whether any knowledge base wants an index on this key and type. Must run as the owner.
pub fn is_wanted(index: &MetadataIndex) -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.metadata_indexes m WHERE m.key = $1 AND m.type = $2)",
        &[Arg::Text(&index.key), Arg::Text(index.index_type.name())],
    )
}

/// Whether a knowledge base of a tenant wants an index on this key and type. Must run as the owner.
pub fn is_wanted_by(tenant_id: &str, index: &MetadataIndex) -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.metadata_indexes m WHERE m.tenant_id = $1 AND m.key = $2 AND m.type = $3)",
        &[Arg::Text(tenant_id), Arg::Text(&index.key), Arg::Text(index.index_type.name())],
    )
}

/// The keys and types that are wanted, each once, however many knowledge bases want it; the statement steps
/// from one to the next. With the transaction in which one of them requested it.
const WANTED: &str = "WITH RECURSIVE w AS (
        (SELECT m.key, m.type, m.xmin::text AS said FROM kb.metadata_indexes m ORDER BY m.key, m.type LIMIT 1)
        UNION ALL
        SELECT n.key, n.type, n.said FROM w CROSS JOIN LATERAL (
            SELECT m.key, m.type, m.xmin::text AS said FROM kb.metadata_indexes m WHERE (m.key, m.type) > (w.key, w.type)
            ORDER BY m.key, m.type LIMIT 1) n)";

/// The number of indexes. Must run as the owner.
pub fn count() -> Result<i64> {
    spi::write_value(&format!("{WANTED} SELECT count(*) FROM w"), &[])
}

/// Returns false if the row existed already. Must run as the owner.
pub fn put(kb_no: i64, tenant_id: &str, index: &MetadataIndex) -> Result<bool> {
    let put = spi::execute(
        "INSERT INTO kb.metadata_indexes (kb_no, tenant_id, key, type) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        &[Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Text(&index.key), Arg::Text(index.index_type.name())],
    )?;
    Ok(put > 0)
}

/// Returns the number of rows deleted. Must run as the owner.
pub fn delete(kb_no: i64, key: &str, index_type: Option<IndexType>) -> Result<i64> {
    let deleted = spi::execute(
        "DELETE FROM kb.metadata_indexes WHERE kb_no = $1 AND key = $2 AND ($3 IS NULL OR type = $3)",
        &[Arg::Long(kb_no), Arg::Text(key), Arg::TextOrNull(index_type.map(IndexType::name))],
    )?;
    Ok(deleted as i64)
}

/// An index that is to be created or dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexTask {
    pub name: String,
    /// The index to create. None: no knowledge base wants it any more.
    wanted: Option<(String, IndexType)>,
    /// Whether an index of this name exists: one that is no longer wanted, or the remains of a failed build.
    is_there: bool,
    /// The transaction that requested the index, or the object that nobody wants. A request that follows a
    /// drop is another task, and does not wait because of an earlier failure.
    origin: String,
}

/// The tasks after which each key and type that is wanted has a valid index, and no others exist. For the
/// worker and the indexer.
pub fn tasks() -> Result<Vec<IndexTask>> {
    let sql = format!(
        "{WANTED}, wanted AS (
            SELECT w.key, w.type, w.said,
                'documents_' || w.type || '_' || pg_catalog.left(pg_catalog.md5(w.key), 24) AS name FROM w),
        present AS (
            SELECT c.relname::text AS name, c.oid, i.indisvalid FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
            WHERE i.indrelid = 'kb.documents'::regclass
              AND c.relname ~ '^documents_(text|number|timestamp)_[0-9a-f]{{24}}$')
        SELECT coalesce(wanted.name, present.name) AS name, wanted.key, wanted.type, present.name IS NOT NULL AS is_there,
            coalesce(wanted.said, present.oid::text) AS origin
        FROM wanted FULL JOIN present ON present.name = wanted.name
        WHERE wanted.name IS NULL OR present.indisvalid IS DISTINCT FROM true ORDER BY 1"
    );
    spi::write(&sql, &[], |row| {
        let (key, type_name): (Option<String>, Option<String>) = (row.get("key")?, row.get("type")?);
        let index_type = type_name.as_deref().and_then(IndexType::named);
        Ok(IndexTask {
            name: row.get("name")?,
            wanted: key.zip(index_type),
            is_there: row.get("is_there")?,
            origin: row.get("origin")?,
        })
    })
}

impl IndexTask {
    /// The statements that carry out the task without blocking writers. Each must run at top level.
    pub fn statements(&self) -> Vec<String> {
        let drop =
            self.is_there.then(|| format!("DROP INDEX CONCURRENTLY IF EXISTS kb.{}", quote(&self.name)));
        let create = self.wanted.as_ref().map(|(key, index_type)| {
            let value = key_expression(*index_type, "metadata", &literal(key));
            format!(
                "CREATE INDEX CONCURRENTLY {} ON kb.documents (kb_no, ({value})) WHERE ({value}) IS NOT NULL",
                quote(&self.name)
            )
        });
        drop.into_iter().chain(create).collect()
    }
}

/// Gives the planner statistics of the indexed expressions.
pub fn analyze() -> Result<()> {
    spi::execute_utility("ANALYZE kb.documents")
}
