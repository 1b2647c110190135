//! kb._tables_altered, which event triggers call when attached tables are dropped and when partitioned ones
//! gain or lose partitions. It looks only at what its statement has altered or dropped, and only in the
//! catalogs. It reads no rows and never waits, and no fault of kb makes the statement fail. The worker does
//! the rest (`tables/intake/apply_changes.rs`).
//!
//! Each partition of an attached table has the triggers, because a statement fires only those of the table
//! that it names. This function creates them on the partitions that its statement has locked, since it has
//! created or attached them; it cannot wait for others. A document has the partition in which its row was
//! read, so answers can leave out the rows of a partition that is gone without looking at rows. The row of
//! kb.sources of a dropped table stays, for a table of the same name that is attached again.
//!
//! **Invariant:** it takes no lock that can wait, reads no row of a user's table, runs nothing that a user
//! wrote, and updates no row of kb, because another session could have it locked.

use crate::pg::ddl_event::{DdlEvent, When};
use crate::pg::role::as_owner;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::pg::{report, wake};
use crate::tables::partitions;
use crate::tables::source_tables::relocated;
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::sources::catalog;
use crate::tables::sql::sources::table;
use kb_types::error::Result;
use std::cell::Cell;
use std::collections::HashSet;

thread_local! {
    static IS_FOLLOWING: Cell<bool> = const { Cell::new(false) };
}

/// Follows what the statement did to attached tables and their partitions.
pub fn tables_altered(event: &DdlEvent) -> Result<()> {
    // DDL of kb itself in this function fires the trigger again.
    if IS_FOLLOWING.get() || !catalog::any() {
        return Ok(());
    }
    IS_FOLLOWING.set(true);
    let followed = in_subtransaction(|| {
        as_owner(|| match event.when() {
            When::After => after_alter(),
            When::Dropped => after_drop(),
        })
    });
    IS_FOLLOWING.set(false);
    match followed {
        Err(error) if is_cancel(&error) => Err(error),
        Err(error) => {
            report::log(&format!("a change of attached tables could not be recorded: {error}"));
            report::warning(
                "a change of attached tables could not be recorded; kb.reconcile repairs what is missed",
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn after_alter() -> Result<()> {
    for (relation, source_no) in table::altered()? {
        let Some(source) = catalog::find(source_no)?.filter(|source| source.is_partitioned) else { continue };
        // A trigger of this name may belong to any table.
        let Some(source) = relocated(source)?.filter(|source| source.relation == relation) else { continue };
        if partitions::note(&source)? {
            wake::at_commit(source.kb_no);
        }
    }
    Ok(())
}

/// Hides the documents of a table, or of a partition, that was dropped. The worker deletes them.
fn after_drop() -> Result<()> {
    let dropped = table::dropped()?;
    if dropped.is_empty() {
        return Ok(());
    }
    let mut whole = HashSet::new();
    for source in catalog::dropped()? {
        // The table exists under another name now; the dropped one was a copy of it.
        if table::locate(&source)?.is_some() {
            continue;
        }
        changes::append(source.source_no, What::Truncated, &[], &[])?;
        wake::at_commit(source.kb_no);
        whole.insert(source.source_no);
    }
    for source in catalog::of_partitions(&dropped)? {
        if whole.contains(&source.source_no) {
            continue;
        }
        let gone: Vec<i64> = source.partitions.iter().copied().filter(|oid| dropped.contains(oid)).collect();
        partitions::note_gone(source.source_no, &gone)?;
        wake::at_commit(source.kb_no);
    }
    Ok(())
}
