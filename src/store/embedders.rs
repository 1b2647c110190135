//! kb.embedders.

use crate::error::{Error, Result};
use crate::model::{Embedder, EmbedderConfig};
use crate::pg::spi::{self, Arg, Row};
use serde_json::Value;

const COLUMNS: &str = "id, provider, model, dimension, config";

fn embedder(row: &Row) -> Result<Embedder> {
    let id: String = row.get(0)?;
    let config = EmbedderConfig::parse(&row.json(4)?)
        .map_err(|problems| Error::Configuration { object: format!("embedder \"{id}\""), problems })?;
    Ok(Embedder {
        id,
        provider: row.get(1)?,
        model: row.get(2)?,
        dimension: row.get::<i32>(3)? as usize,
        config,
    })
}

pub fn find(id: &str) -> Result<Option<Embedder>> {
    spi::write_one(&format!("SELECT {COLUMNS} FROM kb.embedders WHERE id = $1"), &[Arg::Text(id)], embedder)
}

pub fn get(id: &str) -> Result<Embedder> {
    find(id)?.ok_or_else(|| Error::NotFound { what: "embedder", id: id.into() })
}

/// What else a row says: base_url, secret, config as written, seeded.
pub struct Rest {
    pub base_url: Option<String>,
    pub secret: Option<String>,
    pub config: Value,
    pub seeded: bool,
}

pub fn rest(id: &str) -> Result<Rest> {
    spi::read_one(
        "SELECT base_url, secret, config, seeded FROM kb.embedders WHERE id = $1",
        &[Arg::Text(id)],
        |row| {
            Ok(Rest { base_url: row.opt(0)?, secret: row.opt(1)?, config: row.json(2)?, seeded: row.get(3)? })
        },
    )?
    .ok_or_else(|| Error::NotFound { what: "embedder", id: id.into() })
}

/// False when the id is taken.
pub fn insert(
    embedder: &Embedder,
    base_url: Option<&str>,
    secret: Option<&str>,
    config: &Value,
) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.embedders (id, provider, model, dimension, base_url, secret, config, fingerprint)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        &[
            Arg::Text(&embedder.id),
            Arg::Text(&embedder.provider),
            Arg::Text(&embedder.model),
            Arg::Int(embedder.dimension as i32),
            Arg::TextOrNull(base_url),
            Arg::TextOrNull(secret),
            Arg::Json(config),
            Arg::Long(embedder.fingerprint()),
        ],
    )?;
    Ok(inserted == 1)
}

pub fn update(
    embedder: &Embedder,
    base_url: Option<&str>,
    secret: Option<&str>,
    config: &Value,
) -> Result<()> {
    spi::execute(
        "UPDATE kb.embedders SET provider = $2, model = $3, dimension = $4, base_url = $5, secret = $6,
                config = $7, fingerprint = $8, updated_at = now() WHERE id = $1",
        &[
            Arg::Text(&embedder.id),
            Arg::Text(&embedder.provider),
            Arg::Text(&embedder.model),
            Arg::Int(embedder.dimension as i32),
            Arg::TextOrNull(base_url),
            Arg::TextOrNull(secret),
            Arg::Json(config),
            Arg::Long(embedder.fingerprint()),
        ],
    )?;
    Ok(())
}

pub fn delete(id: &str) -> Result<()> {
    spi::execute("DELETE FROM kb.embedders WHERE id = $1", &[Arg::Text(id)])?;
    Ok(())
}

/// How many knowledge bases or builds of any tenant use it. As the owner.
pub fn uses(id: &str) -> Result<i64> {
    let count = spi::write_one(
        "SELECT (SELECT count(*) FROM kb.knowledge_bases WHERE embedder = $1)
              + (SELECT count(*) FROM kb.builds WHERE embedder = $1)",
        &[Arg::Text(id)],
        |row| row.get::<i64>(0),
    )?;
    Ok(count.unwrap_or(0))
}

/// Those whose models are files.
pub fn local() -> Result<Vec<Embedder>> {
    spi::read(
        &format!("SELECT {COLUMNS} FROM kb.embedders WHERE provider = 'local' ORDER BY id"),
        &[],
        embedder,
    )
}
