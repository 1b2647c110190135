//! Attached tables: finds them where they are now, and detaches them.

use crate::pg::role::as_owner;
use crate::pg::{tenant_roles, txn};
use crate::tables::sql::sources::table;
use crate::tables::sql::sources::table::{Located, MemberTable};
use crate::tables::sql::sources::{Source, catalog};
use crate::tables::sql::{changes, row_documents};
use crate::tenants::bindings;
use kb_types::error::{Error, Result};

/// The source with its table as it is now, which may have another name, or another oid after a restore.
/// Returns an error if the table no longer exists or belongs to another role.
pub fn located(source: Source) -> Result<Source> {
    let Source { source_no, kb_id, relation_name, .. } = &source;
    let found = table::locate(&source)?;
    let problem = match &found {
        None => "was dropped, or its triggers were",
        Some(found) if found.has_relatives => {
            "has become a partition or takes part in inheritance, and statements on the other tables do not fire its \
             triggers"
        }
        Some(found) if !found.is_same_owner => "has another owner now, who must attach it again",
        Some(Located { relation, name, .. }) => {
            if *relation != source.relation || name != relation_name {
                as_owner(|| catalog::set_relation(*source_no, *relation, name))?;
            }
            return Ok(Source { relation: *relation, relation_name: name.clone(), ..source });
        }
    };
    Err(Error::State {
        problem: format!("table {relation_name} of knowledge base \"{kb_id}\" {problem}"),
        hint: format!(
            "Attach it again (kb.attach_table), or detach it: kb.detach_table('{kb_id}', {}).",
            found.map_or(source.relation, |found| found.relation)
        ),
    })
}

/// The source with its table as it is now. Returns None if the table no longer exists, or belongs to another
/// role, whose code must not be run.
pub fn relocated(source: Source) -> Result<Option<Source>> {
    let found = table::locate(&source)?.filter(|found| found.is_same_owner);
    Ok(found.map(|found| Source { relation: found.relation, relation_name: found.name, ..source }))
}

/// The source of a knowledge base to which a table belongs, or else the source that had a table of the same
/// name that no longer exists. Must run as the owner.
pub fn of_knowledge_base(kb_no: i64, relation: u32) -> Result<Option<Source>> {
    let sources = catalog::of_knowledge_base_and_table(kb_no, relation)?;
    for source in &sources {
        if table::is_of(source, relation)? {
            return Ok(Some(source.clone()));
        }
    }
    let name = table::find(relation)?.map(|table| table.name);
    for source in sources.into_iter().filter(|source| name.as_ref() == Some(&source.relation_name)) {
        if table::locate(&source)?.is_none() {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

/// Returns an error if the transaction does not see all documents of a table, because some were made after
/// its snapshot was taken.
pub fn must_see_all(function: &str) -> Result<()> {
    match txn::is_read_committed() {
        true => Ok(()),
        false => Err(Error::State {
            problem: format!("{function} of an attached table needs isolation level READ COMMITTED"),
            hint: "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED: it must see every document of the table.".into(),
        }),
    }
}

/// Drops a source's triggers, and discards changes that are waiting; documents of rows that are gone are
/// deleted. Must run as the owner.
pub fn detach(source: &Source) -> Result<()> {
    drop_triggers(source)?;
    row_documents::delete_hidden(source)?;
    changes::delete_all(source.source_no)?;
    catalog::delete(source.source_no)
}

/// Drops a source's triggers on its table and on all partitions that it has or had. Must run as the owner.
pub fn drop_triggers(source: &Source) -> Result<()> {
    let relation = table::locate(source)?.map_or(source.relation, |found| found.relation);
    let mut relations: Vec<i64> = table::members(relation)?.iter().map(MemberTable::oid).collect();
    relations.extend(&source.partitions);
    table::drop_triggers(source.source_no, &relations)
}

/// The reason why a row may not become a document of a tenant, or None if it may. The roles that attached the
/// table must be allowed to act for that tenant. If a column holds the tenant, the owner of the table must be
/// allowed to, too. The reason contains no value of the row.
pub fn refusal(source: &Source, tenant_id: &str) -> Option<String> {
    if source.config.tenant.is_some() && !bindings::may_act_for(&source.role_name, tenant_id) {
        return Some(format!("role \"{}\" may not act for its tenant", source.role_name));
    }
    source.attached_by.iter().zip(&source.attached_by_oids).find_map(|(name, oid)| {
        match tenant_roles::may_act_for(name, *oid, tenant_id) {
            Some(true) => None,
            Some(false) => Some(format!("role \"{name}\", which attached the table, may not act for its tenant")),
            // The role acted for the knowledge base's tenant at that time; of other tenants nothing is known.
            None if tenant_id == source.tenant_id => None,
            None => Some(format!(
                "role \"{name}\", which attached the table, no longer exists, so it is not known whether it may act for \
                 the row's tenant; attach the table again"
            )),
        }
    })
}
