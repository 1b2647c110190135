//! kb.acknowledge_restore: a copy of a database may ask remote embedders, too.

use crate::error::Result;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::store::{jobs, origins};

/// The embedders of this copy are its own from now on, and what waited for this is due.
pub fn acknowledge_restore() -> Result<()> {
    as_owner(|| {
        origins::adopt()?;
        jobs::make_due()
    })?;
    wake::at_commit(0);
    Ok(())
}
