//! kb.current_tenant, kb.visible_tenants, kb.readable_tenants and kb.bound_tenants.

use crate::tenants::sql::{bindings, shares};
use kb_types::error::Result;

/// The tenant for which the session acts.
pub fn current_tenant() -> Result<String> {
    bindings::current()
}

/// The tenants whose rows the session may read without exception.
pub fn visible_tenants() -> Result<Vec<String>> {
    bindings::visible()
}

/// The tenants of which the session may read at least some rows.
pub fn readable_tenants() -> Result<Vec<String>> {
    let mut tenants = bindings::visible()?;
    tenants.extend(shares::owners(&tenants[0]));
    Ok(tenants)
}

/// The tenants for which the session may act, or None if it may act for any.
pub fn bound_tenants() -> Option<Vec<String>> {
    bindings::allowed()
}
