//! Partitions of attached tables that come and go: what the statement itself does, and what it leaves to the worker. As the owner.

use super::source_tables::relocated;
use crate::pg::ddl_event::is_locked_here;
use crate::pg::setting;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::row_documents;
use crate::tables::sql::sources::table;
use crate::tables::sql::sources::table::Member;
use crate::tables::sql::sources::{Source, catalog};
use kb_types::error::Result;
use std::ffi::CStr;

/// While the worker waits for a lock on a partition nobody else begins to use it.
const HARDLY_WAITING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"20ms")];

/// The partitions that a source's table has by now, and the oids of those that it has no more.
fn compare(source: &Source) -> Result<(Vec<Member>, Vec<i64>)> {
    let members: Vec<Member> = table::members(source.relation)?.into_iter().skip(1).collect();
    let is_gone = |oid: &i64| !members.iter().any(|member| member.oid() == *oid);
    let gone = source.partitions.iter().copied().filter(is_gone).collect();
    Ok((members, gone))
}

/// In a statement that has altered a source's table: gives triggers to the partitions that the statement has added, takes them off those
/// that it has detached, and writes down that there are such, from which moment on no answer has rows of the latter. It reads no rows,
/// and waits for no lock: what the statement itself has not locked is left to the worker, and so is what fails. Whether there are any.
pub fn note(source: &Source) -> Result<bool> {
    let (members, gone) = compare(source)?;
    let new: Vec<Member> =
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

/// Writes down that partitions came or went. Rows of those that went are in no answer until the worker has looked.
pub fn note_gone(source_no: i64, gone: &[i64]) -> Result<()> {
    let keys: Vec<String> = gone.iter().map(i64::to_string).collect();
    changes::append(source_no, What::Partitions, &[], &keys)
}

/// Makes the triggers of a partition that has none.
fn create_triggers(source: &Source, member: &Member) -> Result<()> {
    if table::followed(source.source_no, &[member.oid()])?.is_empty() {
        table::create_triggers(source, member)?;
        table::set_firing(source, member)?;
    }
    Ok(())
}

/// Takes up what was written down of partitions: their documents are gone until the worker has looked for their rows, and the rows of new
/// ones are to be enqueued. `source` is None where its table is gone, or must not be read. By the worker.
pub fn take_up(source_no: i64, source: Option<&Source>) -> Result<()> {
    let (taken, mut gone) = changes::of_partitions(source_no)?;
    if let Some(source) = source {
        let (members, left) = compare(source)?;
        gone.extend(left);
        let oids: Vec<i64> = members.iter().map(Member::oid).collect();
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

/// Makes the triggers of a partition that has none, where the statement that added it could not. Whatever was changed there before they
/// were made is looked at: its rows are enqueued after this, and its documents are gone until it is known whether they have rows.
/// Where they cannot be made, kb.sources says so. An error (55P03) where somebody has locked it. By the worker.
pub fn follow(source: &Source, member: &Member) -> Result<()> {
    if !table::followed(source.source_no, &[member.oid()])?.is_empty() {
        return Ok(());
    }
    match in_subtransaction(|| setting::with(HARDLY_WAITING, || create_triggers(source, member))) {
        Ok(()) => note_gone(source.source_no, &[member.oid()]),
        Err(error) if error.is_lock() || is_cancel(&error) => Err(error),
        Err(_) => catalog::set_error(source.source_no, Some(catalog::NOT_FOLLOWED)),
    }
}

/// After a restore partitions have other oids: of which one each document is is not known until its row is read again. By the worker.
pub fn forget() -> Result<()> {
    row_documents::forget_partitions()?;
    for source in catalog::partitioned()? {
        if let Some(source) = relocated(source)? {
            let oids: Vec<i64> = compare(&source)?.0.iter().map(Member::oid).collect();
            catalog::set_partitions(source.source_no, &oids)?;
        }
    }
    Ok(())
}
