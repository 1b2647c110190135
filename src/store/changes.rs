//! kb.changes: what statements did to rows of attached tables, until the worker has taken it up. As the owner.

use crate::error::{Error, Result};
use crate::pg::setting;
use crate::pg::spi::{self, Arg};
use std::ffi::CStr;
use uuid::Uuid;

/// What became of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// They are to be read again.
    Changed,
    /// They are not there any more, or not published any more: no answer has them.
    Gone,
    /// No row is there any more.
    Truncated,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Changed => "changed",
            What::Gone => "gone",
            What::Truncated => "truncated",
        }
    }

    fn stored(name: &str) -> Result<What> {
        let all = [What::Changed, What::Gone, What::Truncated];
        let found = all.into_iter().find(|what| what.name() == name);
        found.ok_or_else(|| Error::Internal(format!("change \"{name}\"")))
    }
}

/// Rows of one source, by their tenants (none: all are the source's) and external_ids.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    pub change_id: Uuid,
    pub what: What,
    pub tenants: Vec<String>,
    pub keys: Vec<String>,
}

/// Rows come in the order of the primary key, whatever statistics say.
const IN_ORDER: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_bitmapscan", c"off"), (c"enable_sort", c"off")];

/// Writes down what became of rows; see [`Changes`] for `tenants` and `keys`.
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

/// The first source after this one that has changes.
pub fn next_source(after: i64) -> Result<Option<i64>> {
    setting::with(IN_ORDER, || {
        spi::write_one(
            "SELECT source_no FROM kb.changes WHERE source_no > $1 ORDER BY source_no LIMIT 1",
            &[Arg::Long(after)],
            |row| row.get(0),
        )
    })
}

/// One truncation of a source's table, if there was one.
pub fn truncation(source_no: i64) -> Result<Option<Uuid>> {
    spi::write_one(
        "SELECT change_id FROM kb.changes WHERE source_no = $1 AND change = 'truncated' LIMIT 1",
        &[Arg::Long(source_no)],
        |row| row.uuid(0),
    )
}

/// The oldest changes of a source.
pub fn oldest(source_no: i64, limit: usize) -> Result<Vec<Changes>> {
    setting::with(IN_ORDER, || {
        spi::write(
            "SELECT change_id, change, tenants, keys FROM kb.changes WHERE source_no = $1 ORDER BY change_id LIMIT $2",
            &[Arg::Long(source_no), Arg::Long(limit as i64)],
            |row| {
                Ok(Changes {
                    change_id: row.uuid(0)?,
                    what: What::stored(&row.get::<String>(1)?)?,
                    tenants: row.get(2)?,
                    keys: row.get(3)?,
                })
            },
        )
    })
}

/// Deletes changes that are taken up.
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

/// Whether rows of a knowledge base wait to be taken up: changed ones, or those that were there before their table was
/// attached. Works on a standby.
pub fn waiting(kb_no: i64) -> Result<bool> {
    let found = spi::read_one(
        "SELECT EXISTS (SELECT FROM kb.sources s WHERE s.kb_no = $1 AND (s.backfill IS NOT NULL
             OR (SELECT c.change_id FROM kb.changes c WHERE c.source_no = s.source_no LIMIT 1) IS NOT NULL))",
        &[Arg::Long(kb_no)],
        |row| row.get(0),
    )?;
    Ok(found.unwrap_or(false))
}

/// Whether any row waits to be taken up.
pub fn any_waiting() -> Result<bool> {
    let found = spi::read_one(
        "SELECT EXISTS (SELECT FROM kb.changes) OR EXISTS (SELECT FROM kb.sources WHERE backfill IS NOT NULL)",
        &[],
        |row| row.get(0),
    )?;
    Ok(found.unwrap_or(false))
}

/// Whether this transaction has written changes for a knowledge base that are not rolled back.
pub fn any_uncommitted(kb_no: i64) -> Result<bool> {
    let found = spi::write_one(
        "SELECT EXISTS (SELECT FROM kb.sources s JOIN kb.changes c USING (source_no)
             WHERE s.kb_no = $1 AND CASE WHEN pg_catalog.age(c.xmin) <= 0 THEN
                 pg_catalog.pg_xact_status((((pg_catalog.pg_current_xact_id()::text::bigint >> 32) << 32)
                     + c.xmin::text::bigint)::text::xid8) = 'in progress' END)",
        &[Arg::Long(kb_no)],
        |row| row.get(0),
    )?;
    Ok(found.unwrap_or(false))
}

/// What waits of documents that are rows of attached tables, written down or enqueued, each as a place in the given lists.
/// Works on a standby.
pub fn of_documents(
    source_nos: &[i64],
    tenants: &[String],
    external_ids: &[String],
) -> Result<Vec<(usize, What)>> {
    spi::read(
        "SELECT u.place, w.change
         FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS u (source_no, tenant_id, external_id, place)
         JOIN kb.sources s ON s.source_no = u.source_no
         CROSS JOIN LATERAL (
             SELECT c.change FROM kb.changes c
             WHERE c.source_no = u.source_no AND (c.change = 'truncated' OR u.external_id = ANY (c.keys) AND EXISTS (
                 SELECT FROM unnest(c.keys) WITH ORDINALITY AS k (key, n)
                 WHERE k.key = u.external_id AND coalesce(c.tenants[k.n::int], s.tenant_id) = u.tenant_id))
             UNION ALL
             SELECT 'changed' FROM kb.jobs j
             WHERE j.kb_no = s.kb_no AND j.tenant_id = u.tenant_id AND j.kind = 'document'
               AND j.subject = u.external_id AND j.priority = 0) w",
        &[Arg::Longs(source_nos), Arg::Texts(tenants), Arg::Texts(external_ids)],
        |row| Ok((row.get::<i64>(0)? as usize - 1, What::stored(&row.get::<String>(1)?)?)),
    )
}
