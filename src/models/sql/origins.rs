//! kb.origins: whether this database is the one in which its remote embedders were made.
//!
//! The row holds the system identifier and the database's oid under which the first remote embedder was
//! created. Before that the table is empty, so that databases made from a template with nothing but the
//! extension are no copies. The row is dumped and copied, so a restored database and a clone have the row of
//! another database. While they have it, `models/endpoint_access.rs` gives no right to ask a remote
//! embedder, reranker, chat model or extractor.

use crate::pg::background;
use crate::pg::spi::{self, Arg, Row};
use kb_types::error::Result;

/// False in a restored or cloned database until the restore is acknowledged. Works on a standby.
pub fn is_own() -> Result<bool> {
    let foreign = spi::read_one(
        "SELECT EXISTS (SELECT FROM kb.origins WHERE (system_identifier, database_oid) <> ($1, $2::oid))",
        &[Arg::Long(background::system_identifier()), Arg::Long(database())],
        Row::only,
    )?;
    Ok(foreign != Some(true))
}

/// From now on the embedders are this database's. As the owner.
pub fn adopt() -> Result<()> {
    spi::execute("DELETE FROM kb.origins", &[])?;
    adopt_if_none()
}

/// The same where they are nobody's yet: before there was a remote embedder. As the owner.
pub fn adopt_if_none() -> Result<()> {
    spi::execute(
        "INSERT INTO kb.origins (system_identifier, database_oid) SELECT $1, $2::oid
         WHERE NOT EXISTS (SELECT FROM kb.origins)",
        &[Arg::Long(background::system_identifier()), Arg::Long(database())],
    )?;
    Ok(())
}

fn database() -> i64 {
    i64::from(background::my_database().to_u32())
}
