//! kb.sources: attached tables. `sources/sql/catalog.rs` has the other types.

use crate::documents::new_documents::DocumentPlace;
use crate::pg::row::{FromColumn, from_row};
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::table_cache::{self, TableCache};
use crate::sql::{BY_INDEX, BY_LOOKUPS};
use kb_types::RowSource;
use kb_types::error::{Error, Result};
use kb_types::tenancy::SHARED;
use pgrx::JsonB;
use std::cell::RefCell;

thread_local! {
    /// Whether any source exists.
    static ANY: RefCell<TableCache<(), bool>> = RefCell::default();
}

/// The error that kb.sources shows for a source until all rows are compared or the table is attached again.
/// It contains no value of any row, because other tenants may read it.
pub const TAKEN: &str = "documents that were put have the keys of rows as their external_id, and remain unchanged; delete them, then call kb.reconcile";
pub const OTHERS: &str = "documents of another attached table have the keys of rows as their external_id, and remain unchanged; detach that table (kb.sources lists both), then call kb.reconcile";
pub const NOT_FOLLOWED: &str =
    "triggers could not be created on its new partitions or dropped from its former ones; attach it again";
/// How the error of a refused row begins.
pub const REFUSED: &str = "a row cannot become a document: ";

from_row! {
    /// A table whose rows are documents of a knowledge base.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Source {
        pub source_no: i64,
        pub kb_no: i64,
        pub kb_id: String,
        /// The tenant of the knowledge base.
        pub tenant_id: String,
        /// The oid of the table when it was attached or last found.
        pub relation: u32,
        /// Qualified with its schema, and quoted.
        pub relation_name: String,
        pub role_name: String,
        /// The columns of its primary key.
        pub key: Vec<String>,
        pub config: RowSource,
        /// The key up to which existing rows are enqueued, which is empty at first. None: all of them are.
        pub backfill: Option<Vec<String>>,
        pub is_partitioned: bool,
        /// The oids of its partitions when the worker last looked.
        pub partitions: Vec<i64>,
        /// The time when it was last attached, in microseconds since 1970.
        pub attached_at: i64,
        /// The roles that attached it, by the names and oids that they had: the role that logged in, the role
        /// of SET ROLE, and the role whose rights applied.
        pub attached_by: Vec<String>,
        pub attached_by_oids: Vec<i64>,
    }
}

impl Source {
    /// The tenant and the origin of a row's document.
    pub fn place<'a>(&'a self, tenant_id: &'a str) -> DocumentPlace<'a> {
        DocumentPlace {
            kb_no: self.kb_no,
            kb_id: &self.kb_id,
            tenant_id,
            source_no: Some(self.source_no),
            part_of: None,
        }
    }
}

const COLUMNS: &str =
    "s.source_no, s.kb_no, k.id AS kb_id, s.tenant_id, s.relation::bigint AS relation, s.relation_name,
    s.role_name::text AS role_name, s.key, s.config, s.backfill, s.is_partitioned, s.partitions::bigint[] AS partitions,
    (pg_catalog.date_part('epoch', s.updated_at) * 1000000)::bigint AS attached_at,
    s.attached_by::text[] AS attached_by, s.attached_by_oids::bigint[] AS attached_by_oids";

/// Whether the table $1 may belong to a source, because it has the same oid or name.
const MAY_BE: &str = "s.relation = $1::oid OR s.relation_name = (
    SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid)";

impl FromColumn for RowSource {
    type Stored = JsonB;

    fn from_stored(stored: JsonB) -> Result<RowSource, String> {
        serde_json::from_value(stored.0).map_err(|error| error.to_string())
    }
}

/// The source with this number, if the caller may see it.
pub fn find(source_no: i64) -> Result<Option<Source>> {
    spi::write_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.source_no = $1 AND s.type = 'table'"
        ),
        &[Arg::Long(source_no)],
        Source::from_row,
    )
}

/// Does what [`find`] does, and keeps the source from being detached before the transaction ends. Returns an
/// error (55P03) if it is being detached now.
pub fn hold(source_no: i64) -> Result<Option<Source>> {
    spi::write_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no) WHERE s.source_no = $1
             AND s.type = 'table' FOR KEY SHARE OF s NOWAIT"
        ),
        &[Arg::Long(source_no)],
        Source::from_row,
    )
}

/// The role with whose rights a source is read, and the tenant of its knowledge base. For the worker.
pub fn account(source_no: i64) -> Result<Option<(String, String)>> {
    spi::write_one(
        "SELECT role_name::text AS role_name, tenant_id FROM kb.sources WHERE source_no = $1",
        &[Arg::Long(source_no)],
        |row| Ok((row.get("role_name")?, row.get("tenant_id")?)),
    )
}

/// Does what [`find`] does, under the caller's snapshot.
pub fn read(source_no: i64) -> Result<Option<Source>> {
    spi::read_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.source_no = $1 AND s.type = 'table'"
        ),
        &[Arg::Long(source_no)],
        Source::from_row,
    )
}

/// The sources of a knowledge base, in the order in which they were attached.
pub fn of_knowledge_base(kb_no: i64) -> Result<Vec<Source>> {
    spi::write(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.kb_no = $1 AND s.type = 'table' ORDER BY s.source_no"
        ),
        &[Arg::Long(kb_no)],
        Source::from_row,
    )
}

/// The sources of a knowledge base to which a table may belong, by its oid or its name.
/// [`super::table::locate`] finds no other table for a source.
pub fn of_knowledge_base_and_table(kb_no: i64, relation: u32) -> Result<Vec<Source>> {
    let candidates = format!(
        "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
         WHERE s.kb_no = $2 AND ({MAY_BE}) ORDER BY s.source_no"
    );
    spi::write(&candidates, &[Arg::Long(i64::from(relation)), Arg::Long(kb_no)], Source::from_row)
}

/// The sources to which a table may belong, by its oid or its name, in knowledge bases that the caller can
/// see. After a restore the oid may be that of another table (see [`super::table::is_of`]).
pub fn of_table(relation: u32) -> Result<Vec<Source>> {
    spi::read(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE {MAY_BE} ORDER BY s.source_no"
        ),
        &[Arg::Long(i64::from(relation))],
        Source::from_row,
    )
}

/// Whether any source exists. Every statement that creates, alters or drops a table asks this.
pub fn any() -> bool {
    table_cache::get(&ANY, &(), || table_cache::has_rows(c"sources"))
}

/// The sources that are partitioned tables. For the worker.
pub fn partitioned() -> Result<Vec<Source>> {
    spi::write(
        &format!(
            "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
             WHERE s.is_partitioned ORDER BY s.source_no"
        ),
        &[],
        Source::from_row,
    )
}

/// The sources whose table the statement seems to have dropped; for event triggers on sql_drop. Two of oid,
/// name and triggers must match, because after a restore another table may have the oid.
pub fn dropped() -> Result<Vec<Source>> {
    let sql = format!(
        "WITH gone AS MATERIALIZED (SELECT * FROM pg_catalog.pg_event_trigger_dropped_objects()),
         t AS MATERIALIZED (SELECT objid, object_identity, ARRAY[schema_name, object_name] AS names FROM gone
             WHERE classid = 'pg_catalog.pg_class'::regclass AND objsubid = 0 AND object_type = 'table'),
         g AS MATERIALIZED (SELECT address_names[1:2] AS names,
                 substring(address_names[3] from '^kb_([0-9]{{1,18}})_insert$')::bigint AS source_no FROM gone
             WHERE classid = 'pg_catalog.pg_trigger'::regclass AND address_names[3] ~ '^kb_[0-9]{{1,18}}_insert$'),
         signs AS (
             SELECT s.source_no, t.objid FROM t JOIN kb.sources s ON t.objid = s.relation
             UNION ALL
             SELECT s.source_no, t.objid FROM t JOIN kb.sources s ON t.object_identity = s.relation_name
             UNION ALL
             SELECT s.source_no, t.objid FROM g JOIN t ON t.names = g.names JOIN kb.sources s ON s.source_no = g.source_no),
         found AS MATERIALIZED (SELECT source_no FROM signs GROUP BY source_no, objid HAVING count(*) >= 2)
         SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no) JOIN found USING (source_no)
         ORDER BY s.source_no"
    );
    setting::with(BY_LOOKUPS, || spi::write(&sql, &[], Source::from_row))
}

/// The sources that have one of these tables as a partition.
pub fn of_partitions(relations: &[i64]) -> Result<Vec<Source>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM kb.sources s JOIN kb.knowledge_bases k USING (kb_no)
         WHERE s.is_partitioned AND s.partitions && $1::oid[] ORDER BY s.source_no"
    );
    setting::with(BY_LOOKUPS, || spi::write(&sql, &[Arg::Longs(relations)], Source::from_row))
}

/// Records which partitions a source's table has. Must run as the owner.
pub fn set_partitions(source_no: i64, relations: &[i64]) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET partitions = $2::oid[] WHERE source_no = $1",
        &[Arg::Long(source_no), Arg::Longs(relations)],
    )?;
    Ok(())
}

/// The sources that have rows from before they were attached that are not enqueued yet.
pub fn backfilling() -> Result<Vec<i64>> {
    spi::write(
        "SELECT source_no FROM kb.sources WHERE backfill IS NOT NULL ORDER BY source_no",
        &[],
        Row::only,
    )
}

/// Adds a source or, if it has a number, alters it; all of its rows are compared again. Returns its number.
/// Must run as the owner, with the knowledge base locked.
pub fn put(source: &Source) -> Result<i64> {
    let config = serde_json::to_value(&source.config).map_err(|error| Error::Internal(error.to_string()))?;
    let arguments = [
        Arg::Long(source.kb_no),
        Arg::Text(&source.tenant_id),
        Arg::Long(i64::from(source.relation)),
        Arg::Text(&source.relation_name),
        Arg::Text(&source.role_name),
        Arg::Texts(&source.key),
        Arg::Json(&config),
        Arg::Long(source.source_no),
        Arg::Bool(source.is_partitioned),
        Arg::Texts(&source.attached_by),
        Arg::Longs(&source.attached_by_oids),
    ];
    let sql = match source.source_no {
        0 => {
            "INSERT INTO kb.sources (kb_no, tenant_id, type, relation, relation_name, role_name, key, config, backfill, is_partitioned,
                 attached_by, attached_by_oids)
             SELECT $1, $2, 'table', $3::oid, $4, $5::name, $6, $7, '{}', $9, $10::name[], $11::oid[]
             WHERE $8 = 0 RETURNING source_no"
        }
        _ => {
            "UPDATE kb.sources SET relation = $3::oid, relation_name = $4, role_name = $5::name, key = $6, config = $7,
                 backfill = '{}', error = NULL, updated_at = now(), is_partitioned = $9,
                 attached_by = $10::name[], attached_by_oids = $11::oid[]
             WHERE source_no = $8 AND kb_no = $1 AND tenant_id = $2 RETURNING source_no"
        }
    };
    spi::write_one(sql, &arguments, Row::only)?.ok_or_else(|| Error::Internal("no source number".into()))
}

/// Must run as the owner.
pub fn delete(source_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.sources WHERE source_no = $1", &[Arg::Long(source_no)])?;
    Ok(())
}

/// Requests that all existing rows be enqueued.
pub fn begin_backfill(source_no: i64) -> Result<()> {
    spi::execute("UPDATE kb.sources SET backfill = '{}' WHERE source_no = $1", &[Arg::Long(source_no)])?;
    Ok(())
}

/// Records up to which key existing rows are enqueued; None: all of them are. Does nothing if the state is
/// not that of `source`, or if the table was attached again meanwhile, because then the work begins anew.
pub fn set_backfill(source: &Source, key: Option<&[String]>) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET backfill = CASE WHEN $4 THEN $5 END
         WHERE source_no = $1 AND backfill = $2 AND (pg_catalog.date_part('epoch', updated_at) * 1000000)::bigint = $3",
        &[
            Arg::Long(source.source_no),
            Arg::Texts(source.backfill.as_deref().unwrap_or_default()),
            Arg::Long(source.attached_at),
            Arg::Bool(key.is_some()),
            Arg::Texts(key.unwrap_or_default()),
        ],
    )?;
    Ok(())
}

/// Records what is wrong with the source as a whole, or None if nothing is.
pub fn set_error(source_no: i64, error: Option<&str>) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET error = $2 WHERE source_no = $1 AND error IS DISTINCT FROM $2",
        &[Arg::Long(source_no), Arg::TextOrNull(error)],
    )?;
    Ok(())
}

/// Removes this error of the source.
pub fn end_error(source_no: i64, error: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET error = NULL WHERE source_no = $1 AND error = $2",
        &[Arg::Long(source_no), Arg::Text(error)],
    )?;
    Ok(())
}

/// Removes the error of the source, if it is about reading it.
pub fn end_reading_error(source_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET error = NULL WHERE source_no = $1 AND error <> ALL ($2)
             AND NOT pg_catalog.starts_with(error, $3)",
        &[
            Arg::Long(source_no),
            Arg::Texts(&[TAKEN, OTHERS, NOT_FOLLOWED].map(str::to_string)),
            Arg::Text(REFUSED),
        ],
    )?;
    Ok(())
}

/// Records where the table is now, after a restore or under another name.
pub fn set_relation(source_no: i64, relation: u32, name: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.sources SET relation = $2::oid, relation_name = $3 WHERE source_no = $1",
        &[Arg::Long(source_no), Arg::Long(i64::from(relation)), Arg::Text(name)],
    )?;
    Ok(())
}

/// The sources that the caller can see and that have an error: table or name, and error. Works on a standby.
pub fn with_errors() -> Result<Vec<(String, String)>> {
    spi::read(
        "SELECT coalesce(relation_name, name) AS source, error FROM kb.sources WHERE error IS NOT NULL ORDER BY source_no",
        &[],
        |row| Ok((row.get("source")?, row.get("error")?)),
    )
}

/// Attached tables with a column that holds the tenant, if some tenant in it cannot read the knowledge base,
/// which belongs to the session's tenant; with the id of the knowledge base. The statement steps from one
/// tenant to the next, however many documents they have. Must run as the owner.
pub fn unreadable(tenant_id: &str) -> Result<Vec<(String, String)>> {
    let sql = "SELECT s.relation_name, k.id FROM kb.knowledge_bases k JOIN kb.sources s USING (kb_no)
         WHERE k.tenant_id = $1 AND k.tenant_id <> $2 AND s.config ->> 'tenant' IS NOT NULL AND EXISTS (
             WITH RECURSIVE t AS (
                 (SELECT d.tenant_id FROM kb.documents d WHERE d.kb_no = k.kb_no ORDER BY d.tenant_id LIMIT 1)
                 UNION ALL
                 SELECT (SELECT d.tenant_id FROM kb.documents d WHERE d.kb_no = k.kb_no AND d.tenant_id > t.tenant_id
                         ORDER BY d.tenant_id LIMIT 1)
                 FROM t WHERE t.tenant_id IS NOT NULL)
             SELECT FROM t WHERE t.tenant_id <> k.tenant_id
               AND NOT EXISTS (SELECT FROM kb.shares h WHERE h.kb_no = k.kb_no AND h.tenant_id = t.tenant_id)
               AND EXISTS (SELECT FROM kb.documents d
                           WHERE d.kb_no = k.kb_no AND d.tenant_id = t.tenant_id AND d.source_no = s.source_no))
         ORDER BY s.source_no LIMIT 5";
    let row = |row: &Row| Ok((row.get("relation_name")?, row.get("id")?));
    setting::with(BY_INDEX, || spi::read(sql, &[Arg::Text(tenant_id), Arg::Text(SHARED)], row))
}
