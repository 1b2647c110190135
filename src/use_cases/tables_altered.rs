//! kb._tables_altered, of event triggers: attached tables are dropped, and partitioned ones get partitions and lose some. No fault
//! of kb's fails the statement.

use crate::catalog::partitions;
use crate::catalog::source_tables::relocated;
use crate::error::Result;
use crate::pg::ddl_event::{self, DdlEvent, When};
use crate::pg::role::as_owner;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::pg::{report, wake};
use crate::store::changes::{self, What};
use crate::store::sources::catalog;
use crate::store::sources::table::{self, Member};
use std::cell::Cell;

thread_local! {
    static IS_FOLLOWING: Cell<bool> = const { Cell::new(false) };
}

/// Follows what the statement did, or is about to do, to attached tables and their partitions.
pub fn tables_altered(event: &DdlEvent) -> Result<()> {
    // What kb itself alters here fires the trigger again.
    if IS_FOLLOWING.get() {
        return Ok(());
    }
    let (any, any_partitioned) = catalog::any();
    if !(any_partitioned || any && event.when() == When::Dropped) {
        return Ok(());
    }
    IS_FOLLOWING.set(true);
    let followed = in_subtransaction(|| match event.when() {
        When::Before => before_drop(event),
        When::After => as_owner(after_alter),
        When::Dropped => as_owner(after_drop),
    });
    IS_FOLLOWING.set(false);
    match followed {
        Err(error) if is_cancel(&error) => Err(error),
        Err(error) => {
            report::log(&format!("what was done to attached tables is not followed: {error}"));
            report::warning(
                "what was done to attached tables is not followed; kb.reconcile mends what is missed",
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The fault of one source stops no other; it is shown by kb.sources.
fn after_alter() -> Result<()> {
    for source in catalog::partitioned()? {
        let source_no = source.source_no;
        let kb_no = source.kb_no;
        match in_subtransaction(|| relocated(source)?.map_or(Ok(false), |source| partitions::follow(&source)))
        {
            Ok(true) => wake::at_commit(kb_no),
            Ok(false) => {}
            Err(error) if is_cancel(&error) => return Err(error),
            Err(_) => catalog::set_error(source_no, Some(catalog::NOT_FOLLOWED))?,
        }
    }
    Ok(())
}

/// The rows of a partition can be read until it is dropped, by whoever may drop it.
fn before_drop(event: &DdlEvent) -> Result<()> {
    for relation in event.tables() {
        let sources = as_owner(|| catalog::of_partitions(&[i64::from(relation)]))?;
        if sources.is_empty() || !table::may_drop(relation)? {
            continue;
        }
        // In the order in which DROP locks them.
        table::parent(relation)?.into_iter().for_each(ddl_event::lock_to_drop);
        ddl_event::lock_to_drop(relation);
        as_owner(|| {
            // Its own partitions go with it.
            let members = table::members(relation)?;
            let oids: Vec<i64> = members.iter().map(Member::oid).collect();
            let Some(partition) = members.into_iter().next() else { return Ok(()) };
            for source in sources {
                let left: Vec<i64> =
                    source.partitions.iter().copied().filter(|oid| !oids.contains(oid)).collect();
                catalog::set_partitions(source.source_no, &left)?;
                if let Some(source) = relocated(source)? {
                    partitions::note(&source, &partition, What::Gone)?;
                    wake::at_commit(source.kb_no);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Documents of a table that was dropped are in no answer any more, and deleted by the worker. Of partitions that went with their
/// schema, their owner or their parent nobody knows which rows they had.
fn after_drop() -> Result<()> {
    for source in catalog::dropped()? {
        // It has another name by now, under which it is there: what was dropped was made like it.
        if table::locate(&source)?.is_some() {
            continue;
        }
        catalog::set_partitions(source.source_no, &[])?;
        changes::append(source.source_no, What::Truncated, &[], &[])?;
        wake::at_commit(source.kb_no);
    }
    let dropped = table::dropped()?;
    for source in catalog::of_partitions(&dropped)? {
        let left: Vec<i64> = source.partitions.iter().copied().filter(|oid| !dropped.contains(oid)).collect();
        catalog::set_partitions(source.source_no, &left)?;
        if let Some(source) = relocated(source)? {
            partitions::hide_all(&source)?;
            wake::at_commit(source.kb_no);
        }
    }
    Ok(())
}
