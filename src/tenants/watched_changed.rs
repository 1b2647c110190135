//! kb._watched_changed, which the triggers on kb.tenant_roles, kb.shares and kb.quotas call.

use crate::pg::trigger::Firing;
use crate::pg::watched;

/// Makes every session read the table again.
pub fn watched_changed(firing: &Firing) {
    watched::changed(firing.relation());
}
