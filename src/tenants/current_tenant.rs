//! kb.current_tenant, kb.visible_tenants, kb.readable_tenants and kb.bound_tenants.

use crate::tenants::sql::{bindings, shares};
use kb_types::error::Result;

/// The tenant that the session acts for.
pub fn current_tenant() -> Result<String> {
    bindings::current()
}

/// The tenants all of whose rows the session may read.
pub fn visible_tenants() -> Result<Vec<String>> {
    bindings::visible()
}

/// The tenants of whom the session may read something.
pub fn readable_tenants() -> Result<Vec<String>> {
    let mut tenants = bindings::visible()?;
    tenants.extend(shares::owners(&tenants[0]));
    Ok(tenants)
}

/// The tenants that the session may act for; None: any.
pub fn bound_tenants() -> Option<Vec<String>> {
    bindings::allowed()
}
