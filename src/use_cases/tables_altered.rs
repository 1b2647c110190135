//! kb._tables_altered, of event triggers: partitioned tables that are attached get partitions, and lose some. No fault of kb's
//! fails the statement.

use crate::catalog::partitions;
use crate::catalog::source_tables::relocated;
use crate::error::Result;
use crate::pg::ddl_event::{self, DdlEvent, When};
use crate::pg::role::as_owner;
use crate::pg::subtransaction::{in_subtransaction, is_cancel};
use crate::pg::{report, wake};
use crate::store::changes::What;
use crate::store::sources::{Source, catalog, table};
use std::cell::Cell;

thread_local! {
    static IS_FOLLOWING: Cell<bool> = const { Cell::new(false) };
}

/// Follows what the statement did, or is about to do, to partitions.
pub fn tables_altered(event: &DdlEvent) -> Result<()> {
    // What kb itself alters here fires the trigger again.
    if IS_FOLLOWING.get() || !catalog::any_partitioned() {
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
            report::warning(&format!(
                "partitions of attached tables are not followed: {error}; kb.reconcile mends what is missed"
            ));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn after_alter() -> Result<()> {
    for source in catalog::partitioned()? {
        let Some(source) = relocated(source)? else { continue };
        partitions::follow(&source)?;
        wake::at_commit(source.kb_no);
    }
    Ok(())
}

/// The rows of a partition can be read until it is dropped, by whom it belongs to.
fn before_drop(event: &DdlEvent) -> Result<()> {
    for relation in event.tables() {
        let Some(table) = table::find(relation)?.filter(|table| table.is_own) else { continue };
        let sources = as_owner(|| sources_of_partition(relation))?;
        if sources.is_empty() {
            continue;
        }
        ddl_event::lock_to_drop(relation);
        let partition = table::Member { relation, name: table.name };
        for source in sources {
            as_owner(|| partitions::note(&source, &partition, What::Gone))?;
            wake::at_commit(source.kb_no);
        }
    }
    Ok(())
}

fn sources_of_partition(relation: u32) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    for source_no in table::sources_on(relation)? {
        let Some(source) = source(source_no)? else { continue };
        if table::is_partition_of(relation, source.relation)? {
            found.push(source);
        }
    }
    Ok(found)
}

/// Partitions were dropped with their schema or owner: nobody knows which rows they had.
fn after_drop() -> Result<()> {
    for source_no in table::dropped()? {
        if let Some(source) = source(source_no)? {
            partitions::hide_all(&source)?;
            wake::at_commit(source.kb_no);
        }
    }
    Ok(())
}

fn source(source_no: i64) -> Result<Option<Source>> {
    catalog::find(source_no)?.map_or(Ok(None), relocated)
}
