//! kb._watched_changed, of the triggers on kb.tenant_roles, kb.shares and kb.quotas.

use crate::pg::trigger::Firing;
use crate::pg::watched;

/// Has every session read the table again.
pub fn watched_changed(firing: &Firing) {
    watched::changed(firing.relation());
}
