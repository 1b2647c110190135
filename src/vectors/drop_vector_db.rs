//! kb.drop_vector_db.

use crate::pg::role::as_owner;
use crate::vectors::sql::vector_dbs;
use kb_types::error::{Error, Object, Result};

/// Drops a vector database. Refused while a knowledge base uses it.
pub fn drop_vector_db(id: &str) -> Result<()> {
    let vector_db =
        vector_dbs::find(id)?.ok_or_else(|| Error::NotFound { what: Object::VectorDb, id: id.into() })?;
    as_owner(|| {
        if vector_dbs::uses(id, &vector_db)? > 0 {
            return Err(Error::InUse { what: Object::VectorDb, id: id.into(), by: "knowledge bases".into() });
        }
        vector_dbs::delete(id)?;
        vector_db.store().remove()
    })
}
