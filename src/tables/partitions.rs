//! Partitions that join or leave attached tables: what the statement itself does, and what it leaves to the
//! worker. Must run as the owner.

use super::source_tables::relocated;
use crate::pg::ddl_event::is_locked_here;
use crate::pg::setting;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::row_documents;
use crate::tables::sql::sources::table;
use crate::tables::sql::sources::table::MemberTable;
use crate::tables::sql::sources::{Source, catalog};
use kb_types::error::Result;
use std::ffi::CStr;

/// While the worker waits for a lock on a partition, no other session can begin to use it.
const HARDLY_WAITING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"20ms")];

/// The partitions that a source's table has now, and the oids of those that it no longer has.
fn compare(source: &Source) -> Result<(Vec<MemberTable>, Vec<i64>)> {
    let members: Vec<MemberTable> = table::members(source.relation)?.into_iter().skip(1).collect();
    let is_gone = |oid: &i64| !members.iter().any(|member| member.oid() == *oid);
    let gone = source.partitions.iter().copied().filter(is_gone).collect();
    Ok((members, gone))
}

/// Called in a statement that has altered a source's table. Creates triggers on the partitions that the
/// statement has added, drops those on the partitions that it has detached, and records both, after which no
/// answer contains rows of detached partitions. It reads no rows and waits for no lock: it leaves to the
/// worker what the statement itself has not locked, and whatever fails. Returns whether there are any such
/// partitions.
pub fn note(source: &Source) -> Result<bool> {
    let (members, gone) = compare(source)?;
    let new: Vec<MemberTable> =
        members.into_iter().filter(|member| !source.partitions.contains(&member.oid())).collect();
    if new.is_empty() && gone.is_empty() {
        return Ok(false);
    }
    for member in new.iter().filter(|member| is_locked_here(member.relation)) {
        left_to_the_worker(in_subtransaction(|| create_triggers(source, member)))?;
    }
    for oid in gone.iter().filter(|oid| is_locked_here(u32::try_from(**oid).unwrap_or(0))) {
        left_to_the_worker(in_subtransaction(|| table::drop_triggers(source.source_no, &[*oid])))?;
    }
    note_gone(source.source_no, &gone)?;
    Ok(true)
}

fn left_to_the_worker(result: Result<()>) -> Result<()> {
    result.or_else(|error| if is_cancel(&error) { Err(error) } else { Ok(()) })
}

/// Records that partitions joined or left. No answer contains rows of those that left until the worker has
/// looked.
pub fn note_gone(source_no: i64, gone: &[i64]) -> Result<()> {
    let keys: Vec<String> = gone.iter().map(i64::to_string).collect();
    changes::append(source_no, What::Partitions, &[], &keys)
}

/// Creates the triggers on a partition that has none.
fn create_triggers(source: &Source, member: &MemberTable) -> Result<()> {
    if table::followed(source.source_no, &[member.oid()])?.is_empty() {
        table::create_triggers(source, member)?;
        table::set_firing(source, member)?;
    }
    Ok(())
}

/// Processes what was recorded about partitions: their documents are hidden until the worker has looked for
/// their rows, and the rows of new partitions are to be enqueued. `source` is None if its table no longer
/// exists, or must not be read. For the worker.
pub fn take_up(source_no: i64, source: Option<&Source>) -> Result<()> {
    let (taken, mut gone) = changes::of_partitions(source_no)?;
    if let Some(source) = source {
        let (members, left) = compare(source)?;
        gone.extend(left);
        let oids: Vec<i64> = members.iter().map(MemberTable::oid).collect();
        catalog::set_partitions(source_no, &oids)?;
        for oid in oids.into_iter().filter(|oid| !source.partitions.contains(oid)) {
            changes::append(source_no, What::Filled, &[], &[oid.to_string()])?;
        }
    }
    if !gone.is_empty() {
        changes::append_documents_of(source_no, &gone)?;
    }
    changes::delete(source_no, &taken)
}

/// Creates the triggers on a partition that has none, because the statement that added it could not. Changes
/// before that moment are found afterwards: the rows of the partition are enqueued, and its documents are
/// hidden until it is known whether they have rows. If the triggers cannot be created, kb.sources says so.
/// Returns an error (55P03) if a session has the partition locked. For the worker.
pub fn follow(source: &Source, member: &MemberTable) -> Result<()> {
    if !table::followed(source.source_no, &[member.oid()])?.is_empty() {
        return Ok(());
    }
    match in_subtransaction(|| setting::with(HARDLY_WAITING, || create_triggers(source, member))) {
        Ok(()) => note_gone(source.source_no, &[member.oid()]),
        Err(error) if error.is_lock() || is_cancel(&error) => Err(error),
        Err(_) => catalog::set_error(source.source_no, Some(catalog::NOT_FOLLOWED)),
    }
}

/// Forgets in which partition the row of each document was read. After a restore the partitions have other
/// oids, and this is known again only when the row is read again. For the worker.
pub fn forget() -> Result<()> {
    row_documents::forget_partitions()?;
    for source in catalog::partitioned()? {
        if let Some(source) = relocated(source)? {
            let oids: Vec<i64> = compare(&source)?.0.iter().map(MemberTable::oid).collect();
            catalog::set_partitions(source.source_no, &oids)?;
        }
    }
    Ok(())
}
