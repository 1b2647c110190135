//! kb.share and kb.unshare.

use crate::error::{Error, Result};
use crate::model::id;
use crate::model::tenancy::SHARED;
use crate::pg::role::as_owner;
use crate::store::{knowledge_bases, shares};

/// Lets another tenant read a knowledge base of the caller's tenant. False: it could.
pub fn share(kb_id: &str, tenant: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let refused = |problem: String| Err(Error::Argument { argument: "tenant", problem });
    if let Some(problem) = id::tenant_problem(tenant) {
        return refused(problem);
    }
    if tenant == kb.tenant_id {
        return refused(format!("knowledge base \"{kb_id}\" is its own"));
    }
    if kb.tenant_id == SHARED {
        return refused(format!("every tenant reads what tenant \"{SHARED}\" has"));
    }
    if tenant == SHARED {
        return refused(format!(
            "no tenant's rows are read as \"{SHARED}\"; what is for all, it puts itself"
        ));
    }
    as_owner(|| shares::put(kb.kb_no, &kb.tenant_id, tenant))
}

/// Ends that; false: it was not shared with this tenant.
pub fn unshare(kb_id: &str, tenant: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| shares::delete(kb.kb_no, tenant))
}
