//! kb.acknowledge_restore: allows a copy of a database to ask remote embedders.

use crate::jobs::queue;
use crate::models::sql::origins;
use crate::pg::role::as_owner;
use crate::pg::wake;
use kb_types::error::Result;

/// Lets this copy ask its remote embedders from now on, and makes the jobs due that waited for this.
pub fn acknowledge_restore() -> Result<()> {
    as_owner(|| {
        origins::adopt()?;
        queue::make_due()
    })?;
    wake::at_commit(0);
    Ok(())
}
