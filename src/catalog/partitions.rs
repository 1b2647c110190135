//! What becomes of the rows of a partition as a whole: it is truncated, attached, detached or dropped. As the owner.

use crate::error::Result;
use crate::model::row_key;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::pg::{report, txn};
use crate::store::changes::{self, What};
use crate::store::row_documents::{self, RowDocument};
use crate::store::sources::table::{self, Member};
use crate::store::sources::{Source, catalog, rows};

/// Keys that are written down together.
const BATCH: usize = 1000;

/// Has the rows of a partition read again (changed), or hidden (gone). Where it is another role's than the table, whose code
/// must not be run, or its rows cannot be read, all rows are read again, or all documents hidden until the worker has looked.
pub fn note(source: &Source, partition: &Member, what: What) -> Result<()> {
    // Under an older snapshot rows would be missing.
    let is_readable =
        partition.owner == source.role_name && !partition.has_policies && txn::is_read_committed();
    if is_readable {
        match in_subtransaction(|| note_rows(source, partition, what)) {
            Err(error) if is_cancel(&error) => return Err(error),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
    match what {
        What::Changed => catalog::begin_backfill(source.source_no),
        _ if txn::is_read_committed() => hide_all(source),
        _ => changes::append(source.source_no, What::Truncated, &[], &[]),
    }
}

fn note_rows(source: &Source, partition: &Member, what: What) -> Result<()> {
    let part =
        Source { relation: partition.relation, relation_name: partition.name.clone(), ..source.clone() };
    let mut after = Vec::new();
    loop {
        report::check_interrupts();
        let page = rows::after(&part, &after, BATCH, false)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.key.clone();
        let tenants: Vec<String> = page.iter().filter_map(|row| row.tenant.clone()).collect();
        let keys: Vec<String> = page.iter().map(|row| row_key::encode(&row.key)).collect();
        changes::append(source.source_no, what, &tenants, &keys)?;
    }
}

/// Hides all documents of a source until the worker has looked whether their rows are there.
pub fn hide_all(source: &Source) -> Result<()> {
    let mut after = 0;
    loop {
        report::check_interrupts();
        let documents = row_documents::after(source.source_no, after, BATCH)?;
        let Some(last) = documents.last() else { return Ok(()) };
        after = last.document_id;
        let (tenants, keys): (Vec<String>, Vec<String>) = documents
            .iter()
            .map(RowDocument::name)
            .map(|(tenant, id)| (tenant.to_string(), id.to_string()))
            .unzip();
        changes::append(source.source_no, What::Gone, &tenants, &keys)?;
    }
}

/// Follows the partitions that a source's table has got, and lets go of those that it has no more. Whether there were any.
pub fn follow(source: &Source) -> Result<bool> {
    let members: Vec<Member> = table::members(source.relation)?.into_iter().skip(1).collect();
    let oids: Vec<i64> = members.iter().map(Member::oid).collect();
    let gone: Vec<i64> = source.partitions.iter().copied().filter(|oid| !oids.contains(oid)).collect();
    let new: Vec<&Member> =
        members.iter().filter(|member| !source.partitions.contains(&member.oid())).collect();
    if new.is_empty() && gone.is_empty() {
        return Ok(false);
    }
    // After a restore all have other oids, and their triggers.
    let followed = table::followed(source.source_no, &oids)?;
    for member in new.into_iter().filter(|member| !followed.contains(member)) {
        table::create_triggers(source, member)?;
        table::set_firing(source, member)?;
        note(source, member, What::Changed)?;
    }
    for former in table::followed(source.source_no, &gone)? {
        note(source, &former, What::Gone)?;
        table::drop_triggers(source.source_no, &[former.oid()])?;
    }
    catalog::set_partitions(source.source_no, &oids)?;
    Ok(true)
}
