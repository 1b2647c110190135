//! kb.changes: what statements did to rows of attached tables, until the worker has processed it. Must run as
//! the owner.

use crate::pg::index_lookup::{self, Key};
use crate::pg::row::{FromColumn, from_row};
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::{BY_HASH, BY_INDEX, BY_LOOKUPS, IN_ORDER, IS_UNCOMMITTED};
use kb_types::error::Result;
use kb_types::named::Named;
use std::collections::BTreeSet;
use uuid::Uuid;

/// What happened to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// They must be read again.
    Changed,
    /// They no longer exist, or are no longer published, so no answer contains them.
    Gone,
    /// The table has no rows any more.
    Truncated,
    /// Partitions joined or left. The keys are the oids of those whose rows may be gone.
    Partitions,
    /// The rows of a new partition must be enqueued. The keys are its oid and the key up to which they are.
    Filled,
}

kb_types::named!(What {
    Changed => "changed",
    Gone => "gone",
    Truncated => "truncated",
    Partitions => "partitions",
    Filled => "filled",
});

impl FromColumn for What {
    type Stored = String;

    fn from_stored(name: String) -> Result<What, String> {
        What::one_of(&name)
    }
}

from_row! {
    /// Rows of one source, by tenants and external_ids. Without tenants, all rows belong to the source's
    /// tenant.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Changes {
        pub change_id: Uuid,
        pub what: What,
        pub tenants: Vec<String>,
        pub keys: Vec<String>,
    }
}

/// The most rows of kb.changes that are read at once, and the bytes of keys after which no more are read.
const ROWS: i64 = 256;
const BYTES: i64 = 128 * 1024;

/// Whether the row of a document d was in a partition that has left its source, or may have.
pub const IS_LOST: &str =
    "EXISTS (SELECT FROM kb.changes l WHERE l.source_no = d.source_no AND l.change = 'partitions'
    AND l.keys <> '{}' AND (d.partition IS NULL OR d.partition::text = ANY (l.keys)))";

/// Records what happened to rows; see [`Changes`] for `tenants` and `keys`.
pub fn append(source_no: i64, what: What, tenants: &[String], keys: &[String]) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.changes (source_no, change_id, change, tenants, keys) VALUES ($1, $2::uuid, $3, $4, $5)",
        &[
            Arg::Long(source_no),
            Arg::Text(&Uuid::now_v7().to_string()),
            Arg::Text(what.name()),
            Arg::Texts(tenants),
            Arg::Texts(keys),
        ],
    )?;
    Ok(())
}

/// The first source after this one that has changes. During a restore, some rows may refer to sources that do
/// not exist yet.
pub fn next_source(after: i64) -> Result<Option<i64>> {
    setting::with(IN_ORDER, || {
        spi::write_one(
            "SELECT c.source_no FROM kb.changes c WHERE c.source_no > $1 AND c.change <> 'filled'
               AND (SELECT true FROM kb.sources s WHERE s.source_no = c.source_no)
             ORDER BY c.source_no LIMIT 1",
            &[Arg::Long(after)],
            Row::only,
        )
    })
}

/// A truncation of a source's table that is recorded, if there is one.
pub fn truncation(source_no: i64) -> Result<Option<Uuid>> {
    spi::write_one(
        "SELECT change_id FROM kb.changes WHERE source_no = $1 AND change = 'truncated' LIMIT 1",
        &[Arg::Long(source_no)],
        Row::only,
    )
}

/// The oldest changes of a source: at least one, if there are any, and about [`BYTES`] of keys.
pub fn oldest(source_no: i64) -> Result<Vec<Changes>> {
    setting::with(IN_ORDER, || {
        spi::write(
            "SELECT change_id, change AS what, tenants, keys
             FROM (SELECT *, pg_catalog.sum(bytes) OVER (ORDER BY change_id) - bytes AS before
                   FROM (SELECT *, pg_catalog.pg_column_size(keys)::bigint + pg_catalog.pg_column_size(tenants) AS bytes
                         FROM kb.changes WHERE source_no = $1 AND change IN ('changed', 'gone')
                         ORDER BY change_id LIMIT $2) o) w
             WHERE before < $3 ORDER BY change_id",
            &[Arg::Long(source_no), Arg::Long(ROWS), Arg::Long(BYTES)],
            Changes::from_row,
        )
    })
}

/// What is recorded about partitions of a source: the ids of the records, and the oids of partitions whose
/// rows may be gone.
pub fn of_partitions(source_no: i64) -> Result<(Vec<Uuid>, Vec<i64>)> {
    let rows = setting::with(BY_INDEX, || {
        spi::write(
            "SELECT change_id, keys::bigint[] AS relations FROM kb.changes WHERE source_no = $1 AND change = 'partitions'",
            &[Arg::Long(source_no)],
            |row| Ok((row.get::<Uuid>("change_id")?, row.get::<Vec<i64>>("relations")?)),
        )
    })?;
    let (changes, relations): (Vec<Uuid>, Vec<Vec<i64>>) = rows.into_iter().unzip();
    Ok((changes, relations.concat()))
}

/// Replaces what is recorded about partitions by a record that all documents of these partitions, and those
/// whose partition is unknown, are gone.
pub fn append_documents_of(source_no: i64, partitions: &[i64]) -> Result<()> {
    let time = Uuid::now_v7().to_string();
    spi::execute(
        "INSERT INTO kb.changes (source_no, change_id, change, tenants, keys)
         SELECT $1, pg_catalog.overlay(pg_catalog.gen_random_uuid()::text, $3, 1)::uuid, 'gone',
             pg_catalog.array_agg(d.tenant_id), pg_catalog.array_agg(d.external_id)
         FROM (SELECT tenant_id, external_id, (pg_catalog.row_number() OVER ()) / 1000 AS part FROM kb.documents
               WHERE source_no = $1 AND (partition IS NULL OR partition = ANY ($2::oid[]))) d
         GROUP BY d.part",
        // As in UUIDs of version 7, the time comes first.
        &[Arg::Long(source_no), Arg::Longs(partitions), Arg::Text(time.get(..13).unwrap_or_default())],
    )?;
    Ok(())
}

from_row! {
    /// A partition whose rows must be enqueued.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Filled {
        pub change_id: Uuid,
        pub relation: u32,
        /// The key up to which they are enqueued, which is empty at first.
        pub after: Vec<String>,
    }
}

/// The first such partition of a source.
pub fn filled(source_no: i64) -> Result<Option<Filled>> {
    setting::with(BY_INDEX, || {
        spi::write_one(
            "SELECT change_id, keys[1]::bigint AS relation, keys[2:] AS after FROM kb.changes
             WHERE source_no = $1 AND change = 'filled' ORDER BY change_id LIMIT 1",
            &[Arg::Long(source_no)],
            Filled::from_row,
        )
    })
}

/// The sources that have such partitions. During a restore, some rows may refer to sources that do not exist
/// yet.
pub fn filling() -> Result<Vec<i64>> {
    setting::with(BY_INDEX, || {
        spi::write(
            "SELECT DISTINCT c.source_no FROM kb.changes c WHERE c.change = 'filled'
               AND (SELECT true FROM kb.sources s WHERE s.source_no = c.source_no) ORDER BY 1",
            &[],
            Row::only,
        )
    })
}

/// Records the key up to which the rows of such a partition are enqueued.
pub fn set_filled(source_no: i64, filled: &Filled, after: &[String]) -> Result<()> {
    let keys: Vec<String> =
        std::iter::once(filled.relation.to_string()).chain(after.iter().cloned()).collect();
    spi::execute(
        "UPDATE kb.changes SET keys = $3 WHERE source_no = $1 AND change_id = ANY ($2)",
        &[Arg::Long(source_no), Arg::Uuids(&[filled.change_id]), Arg::Texts(&keys)],
    )?;
    Ok(())
}

/// Deletes changes that have been processed.
pub fn delete(source_no: i64, changes: &[Uuid]) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.changes WHERE source_no = $1 AND change_id = ANY ($2)",
        &[Arg::Long(source_no), Arg::Uuids(changes)],
    )?;
    Ok(())
}

/// Deletes all changes of a source.
pub fn delete_all(source_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.changes WHERE source_no = $1", &[Arg::Long(source_no)])?;
    Ok(())
}

/// Whether rows of a knowledge base are waiting to be processed: changed ones of these tenants (None: of
/// all), or those that existed before their table was attached, whose tenants are not known yet. Works on a
/// standby.
pub fn waiting(kb_no: i64, tenants: Option<&[String]>) -> Result<bool> {
    let of_tenants = if tenants.is_some() { "AND (c.tenants = '{}' OR c.tenants && $2)" } else { "" };
    let mut arguments = vec![Arg::Long(kb_no)];
    arguments.extend(tenants.map(Arg::Texts));
    spi::read_value(&format!(
            "SELECT EXISTS (SELECT FROM kb.sources s WHERE s.kb_no = $1 AND (s.backfill IS NOT NULL
                 OR (SELECT c.change_id FROM kb.changes c WHERE c.source_no = s.source_no {of_tenants} LIMIT 1)
                     IS NOT NULL))"
        ), &arguments)
}

/// Whether any row is waiting to be processed.
pub fn any_waiting() -> Result<bool> {
    // Every such row belongs to a source, and most databases have none.
    if index_lookup::count(c"sources", c"sources_pkey", &[], 1) == Some(0) {
        return Ok(false);
    }
    spi::read_value("SELECT EXISTS (SELECT FROM kb.changes c WHERE (SELECT true FROM kb.sources s WHERE s.source_no = c.source_no))
             OR EXISTS (SELECT FROM kb.sources WHERE backfill IS NOT NULL)", &[])
}

/// Whether this transaction has recorded changes for a knowledge base, or attached a table to it, and has not
/// rolled that back.
pub fn any_uncommitted(kb_no: i64) -> Result<bool> {
    spi::write_value(&format!(
            "SELECT EXISTS (SELECT FROM kb.changes WHERE {IS_UNCOMMITTED} AND source_no = ANY (ARRAY(
                 SELECT source_no FROM kb.sources WHERE kb_no = $1)))
                 OR EXISTS (SELECT FROM kb.sources WHERE kb_no = $1 AND backfill IS NOT NULL AND {IS_UNCOMMITTED})"
        ), &[Arg::Long(kb_no)])
}

/// Whether changes of rows of these sources may be recorded. Works on a standby.
pub fn may_wait(source_nos: &[i64]) -> bool {
    let sources: BTreeSet<i64> = source_nos.iter().copied().collect();
    let waits = |source| index_lookup::count(c"changes", c"changes_pkey", &[Key::Long(source)], 1) != Some(0);
    sources.into_iter().any(waits)
}

/// What is recorded about documents that are rows of attached tables, each given as a place in the lists. The
/// cost is the sum of what is asked for and what is waiting, not the product. Works on a standby.
pub fn of_documents(
    source_nos: &[i64],
    tenants: &[String],
    external_ids: &[String],
) -> Result<Vec<(usize, What)>> {
    let mut sources = source_nos.to_vec();
    sources.sort_unstable();
    sources.dedup();
    let mut found = setting::with(BY_HASH, || {
        spi::read(
            "WITH asked AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY
                 AS u (source_no, tenant_id, external_id, place)),
             waiting AS MATERIALIZED (SELECT c.source_no, c.change, s.tenant_id, c.tenants, c.keys
                 FROM kb.changes c JOIN kb.sources s USING (source_no) WHERE c.source_no = ANY ($4) AND s.source_no = ANY ($4)
                   AND c.change IN ('changed', 'gone', 'truncated'))
             SELECT a.place, w.change FROM asked a JOIN waiting w USING (source_no) WHERE w.change = 'truncated'
             UNION ALL
             SELECT a.place, w.change
             FROM (SELECT source_no, change, tenant_id, unnest(tenants) AS tenant, unnest(keys) AS key FROM waiting) w
             JOIN asked a ON a.external_id = w.key AND a.source_no = w.source_no
                 AND a.tenant_id = coalesce(w.tenant, w.tenant_id)",
            &[Arg::Longs(source_nos), Arg::Texts(tenants), Arg::Texts(external_ids), Arg::Longs(&sources)],
            |row| Ok((row.get::<i64>("place")? as usize - 1, row.get("change")?)),
        )
    })?;
    let waits = |source: &i64| {
        index_lookup::count(c"changes", c"changes_partitions", &[Key::Long(*source)], 1) != Some(0)
    };
    if sources.iter().any(waits) {
        let gone = of_lost_partitions(source_nos, tenants, external_ids)?;
        found.extend(gone.into_iter().map(|place| (place, What::Gone)));
    }
    Ok(found)
}

/// The places of those of these documents whose partitions have left, or may have.
fn of_lost_partitions(source_nos: &[i64], tenants: &[String], external_ids: &[String]) -> Result<Vec<usize>> {
    setting::with(BY_LOOKUPS, || {
        spi::read(
            &format!(
                "SELECT u.place
                 FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS u (source_no, tenant_id, external_id, place)
                 JOIN kb.sources s ON s.source_no = u.source_no
                 CROSS JOIN LATERAL (
                     SELECT FROM kb.documents d
                     WHERE d.kb_no = s.kb_no AND d.tenant_id = u.tenant_id AND d.external_id = u.external_id
                       AND d.source_no IS NOT DISTINCT FROM s.source_no AND {IS_LOST} LIMIT 1) l"
            ),
            &[Arg::Longs(source_nos), Arg::Texts(tenants), Arg::Texts(external_ids)],
            |row| Ok(row.only::<i64>()? as usize - 1),
        )
    })
}

/// The places of those of these documents that jobs will read again. Works on a standby.
pub fn enqueued(source_nos: &[i64], tenants: &[String], external_ids: &[String]) -> Result<Vec<usize>> {
    spi::read(
        "SELECT u.place
         FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS u (source_no, tenant_id, external_id, place)
         JOIN kb.sources s ON s.source_no = u.source_no
         CROSS JOIN LATERAL (
             SELECT FROM kb.jobs j
             WHERE j.kb_no = s.kb_no AND j.tenant_id = u.tenant_id AND j.kind = 'document'
               AND j.subject = u.external_id AND j.priority = 0 LIMIT 1) w",
        &[Arg::Longs(source_nos), Arg::Texts(tenants), Arg::Texts(external_ids)],
        |row| Ok(row.only::<i64>()? as usize - 1),
    )
}
