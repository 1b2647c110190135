//! kb.move_knowledge_base.

use crate::builds::knowledge_bases;
use crate::knowledge_bases::sql::moves;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::tables::changes;
use crate::tables::changes::What;
use crate::tables::source_tables;
use crate::tables::sources::{Source, catalog};
use crate::tenants::bindings;
use crate::tenants::quota;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::id;

/// Moves a knowledge base of the session's tenant to another tenant, with all that is in it.
pub fn move_knowledge_base(kb_id: &str, tenant: &str) -> Result<()> {
    if bindings::allowed().is_some() {
        return Err(Error::Permission {
            problem: "a role that is bound to tenants cannot move knowledge bases".into(),
        });
    }
    let refused = |problem: String| Err(Error::Argument { argument: "tenant", problem });
    if let Some(problem) = id::tenant_problem(tenant) {
        return refused(problem);
    }
    let kb = knowledge_bases::get_own(kb_id)?;
    if tenant == kb.tenant_id {
        return refused(format!("knowledge base \"{kb_id}\" belongs to it already"));
    }
    source_tables::must_see_all("kb.move_knowledge_base")?;
    as_owner(|| {
        quota::moving(&kb.tenant_id, tenant, kb.kb_no, || {
            // This waits for transactions that put documents, or write chunks and words of them, and makes
            // others wait for this transaction.
            let kb = knowledge_bases::lock_with_documents(&kb)?;
            moves::lock_builds(kb.kb_no)?;
            if moves::has(tenant, &kb.id)? {
                return Err(Error::AlreadyExists { what: ObjectKind::KnowledgeBase, id: kb.id.clone() });
            }
            if let Some(external_id) = moves::name_of_both(kb.kb_no, &kb.tenant_id, tenant)? {
                return Err(Error::State {
                    problem: format!(
                        "both tenants have a document \"{external_id}\" in knowledge base \"{kb_id}\""
                    ),
                    hint: "Delete one of them first.".into(),
                });
            }
            let sources = catalog::of_knowledge_base(kb.kb_no)?;
            sources.iter().try_for_each(|source| check_roles(source, tenant))?;
            moves::move_rows(kb.kb_no, &kb.tenant_id, tenant)?;
            for source in sources.iter().filter(|source| source.config.tenant.is_some()) {
                // Rows whose tenant column names the previous owner stay that tenant's; the worker finds out
                // which these are.
                changes::append(source.source_no, What::Truncated, &[], &[])?;
            }
            wake::at_commit(kb.kb_no);
            Ok(())
        })
    })
}

/// Returns an error if the owner of an attached table, or a role that attached it, may not act for the tenant
/// that gets its rows.
fn check_roles(source: &Source, tenant: &str) -> Result<()> {
    let table = &source.relation_name;
    let refusal = match bindings::may_act_for(&source.role_name, tenant) {
        true => source_tables::refusal(source, tenant).map(|why| format!("table {table} is attached: {why}")),
        false => Some(format!(
            "role \"{}\", whose table {table} is attached, may not act for tenant \"{tenant}\"",
            source.role_name
        )),
    };
    let hint =
        "Detach the table first (kb.detach_table), or bind the role to that tenant as well (kb.bind_role).";
    refusal.map_or(Ok(()), |problem| Err(Error::State { problem, hint: hint.into() }))
}
