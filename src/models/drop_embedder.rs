//! kb.drop_embedder.

use crate::models::embedder_settings;
use crate::models::sql::embedders;
use crate::pg::role::as_owner;
use kb_types::error::{Error, Object, Result};

/// Refused while a knowledge base uses the embedder.
pub fn drop_embedder(id: &str) -> Result<()> {
    embedders::get(id)?;
    embedder_settings::refuse_seeded(id, embedders::other_columns(id)?.seeded, "dropped")?;
    as_owner(|| match embedders::uses(id)? {
        0 => embedders::delete(id),
        _ => Err(Error::InUse { what: Object::Embedder, id: id.into(), by: "knowledge bases".into() }),
    })
}
