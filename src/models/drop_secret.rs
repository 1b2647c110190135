//! kb.drop_secret.

use super::set_secret::check_name;
use crate::models::sql::secrets;
use crate::pg::role::as_owner;
use kb_types::error::{Error, Object, Result};

pub fn drop_secret(name: &str) -> Result<()> {
    check_name(name)?;
    if as_owner(|| secrets::delete(name))? {
        return Ok(());
    }
    Err(Error::NotFound { what: Object::Secret, id: name.into() })
}
