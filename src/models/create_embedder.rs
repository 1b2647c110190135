//! kb.create_embedder.

use crate::models::embedder_settings;
use crate::models::embedder_settings::WantedEmbedder;
use crate::models::sql::embedders;
use crate::models::sql::embedders::OtherColumns;
use crate::pg::role::as_owner;
use kb_types::error::{Error, Object, Result};

/// Checks everything, and reports all problems at once.
pub fn create_embedder(id: &str, wanted: &WantedEmbedder) -> Result<()> {
    let (embedder, config) = embedder_settings::check(id, wanted)?;
    let secret = wanted.secret.clone();
    let secret_host = secret.is_some().then(|| embedder_settings::host(&embedder)).flatten();
    let others = OtherColumns { secret, secret_host, config, seeded: false };
    let inserted = as_owner(|| {
        embedder_settings::own(&embedder)?;
        embedders::insert(&embedder, &others)
    })?;
    if inserted { Ok(()) } else { Err(Error::AlreadyExists { what: Object::Embedder, id: id.into() }) }
}
