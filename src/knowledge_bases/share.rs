//! kb.share, kb.unshare and kb.refuse_share.

use crate::builds::knowledge_bases;
use crate::pg::role::as_owner;
use crate::tenants::quota;
use crate::tenants::{bindings, shares};
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::tenancy::SHARED;

/// Lets another tenant read a knowledge base of the caller's tenant. Returns false if it already could.
pub fn share(kb_id: &str, tenant: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let refused = |problem: String| Err(Error::Argument { argument: "tenant", problem });
    if let Some(problem) = id::tenant_problem(tenant) {
        return refused(problem);
    }
    if tenant == "*" {
        return Err(Error::State {
            problem: "a knowledge base is shared with one tenant at a time, and \"*\" is not a tenant".into(),
            hint: format!(
                "Every tenant can read the knowledge bases of tenant \"{SHARED}\". Create it there (SET kb.tenant = \
                 '{SHARED}'), or ask a member of kb_admin to move it (kb.move_knowledge_base)."
            ),
        });
    }
    if tenant == kb.tenant_id {
        return refused(format!("knowledge base \"{kb_id}\" belongs to it already"));
    }
    if kb.tenant_id == SHARED {
        return refused(format!("every tenant can read the knowledge bases of tenant \"{SHARED}\""));
    }
    if tenant == SHARED {
        return refused(format!("tenant \"{SHARED}\" cannot be a reader, because no session reads as it"));
    }
    as_owner(|| quota::within(&kb.tenant_id, || shares::put(kb.kb_no, &kb.tenant_id, tenant)))
}

/// Ends a share. Returns false if the knowledge base was not shared with this tenant.
pub fn unshare(kb_id: &str, tenant: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| shares::delete(kb.kb_no, tenant))
}

/// Ends a share of another tenant with the caller's. Returns false if there is none with this id and owner.
pub fn refuse_share(kb_id: &str, owner: &str) -> Result<bool> {
    let tenant = bindings::current()?;
    if owner == SHARED {
        return Err(Error::Argument {
            argument: "owner",
            problem: format!(
                "every tenant can read the knowledge bases of tenant \"{SHARED}\", so none is shared with a single tenant"
            ),
        });
    }
    as_owner(|| shares::refuse(kb_id, owner, &tenant))
}
