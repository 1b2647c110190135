//! kb.vector_dbs.

use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use crate::vectors::sql::VectorDb;
use kb_types::error::Result;

pub fn find(id: &str) -> Result<Option<VectorDb>> {
    spi::write_one(
        &format!("SELECT {} FROM kb.vector_dbs v WHERE v.id = $1", VectorDb::columns("v")),
        &[Arg::Text(id)],
        VectorDb::from_row,
    )
}

/// Returns false if the id is taken.
pub fn insert(id: &str, vector_db: &VectorDb) -> Result<bool> {
    let mut arguments = Arguments::default();
    let inserted = spi::execute(
        &format!(
            "INSERT INTO kb.vector_dbs (id, {}) VALUES ({}, {}) ON CONFLICT (id) DO NOTHING",
            VectorDb::inserted(),
            arguments.add(Arg::Text(id)),
            vector_db.values(&mut arguments),
        ),
        &arguments.all(),
    )?;
    Ok(inserted == 1)
}

pub fn delete(id: &str) -> Result<()> {
    spi::execute("DELETE FROM kb.vector_dbs WHERE id = $1", &[Arg::Text(id)])?;
    Ok(())
}

/// The number of knowledge bases or builds of any tenant that use it. Must run as the owner.
pub fn uses(id: &str, vector_db: &VectorDb) -> Result<i64> {
    let named = spi::write_one(
        "SELECT count(*) FROM kb.knowledge_bases WHERE vector_db = $1",
        &[Arg::Text(id)],
        Row::only::<i64>,
    )?;
    Ok(named.unwrap_or(0) + vector_db.builds()?)
}
