//! kb.embedders.

use crate::pg::spi::{self, Arg, Row};
use kb_types::error::{Error, Object, Result};
use kb_types::{Embedder, EmbedderConfig};
use serde_json::Value;

const COLUMNS: &str = "id, provider, model, dimension, config, base_url";

fn embedder(row: &Row) -> Result<Embedder> {
    let id: String = row.get(0)?;
    let config = EmbedderConfig::parse(&row.json(4)?)
        .map_err(|problems| Error::configuration(format!("embedder \"{id}\""), problems))?;
    Ok(Embedder {
        id,
        provider: row.get(1)?,
        model: row.get(2)?,
        dimension: row.get::<i32>(3)? as usize,
        base_url: row.opt(5)?,
        config,
    })
}

pub fn find(id: &str) -> Result<Option<Embedder>> {
    spi::write_one(&format!("SELECT {COLUMNS} FROM kb.embedders WHERE id = $1"), &[Arg::Text(id)], embedder)
}

pub fn get(id: &str) -> Result<Embedder> {
    find(id)?.ok_or_else(|| Error::NotFound { what: Object::Embedder, id: id.into() })
}

/// What else a row says: secret, the host it is bound to, config as written, seeded.
pub struct OtherColumns {
    pub secret: Option<String>,
    pub secret_host: Option<String>,
    pub config: Value,
    pub seeded: bool,
}

pub fn other_columns(id: &str) -> Result<OtherColumns> {
    spi::read_one(
        "SELECT secret, secret_host, config, seeded FROM kb.embedders WHERE id = $1",
        &[Arg::Text(id)],
        |row| {
            Ok(OtherColumns {
                secret: row.opt(0)?,
                secret_host: row.opt(1)?,
                config: row.json(2)?,
                seeded: row.get(3)?,
            })
        },
    )?
    .ok_or_else(|| Error::NotFound { what: Object::Embedder, id: id.into() })
}

/// False when the id is taken.
pub fn insert(embedder: &Embedder, others: &OtherColumns) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.embedders (id, provider, model, dimension, base_url, secret, secret_host, config, fingerprint)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING",
        &arguments(embedder, others),
    )?;
    Ok(inserted == 1)
}

pub fn update(embedder: &Embedder, others: &OtherColumns) -> Result<()> {
    spi::execute(
        "UPDATE kb.embedders SET provider = $2, model = $3, dimension = $4, base_url = $5, secret = $6,
                secret_host = $7, config = $8, fingerprint = $9, updated_at = now() WHERE id = $1",
        &arguments(embedder, others),
    )?;
    Ok(())
}

fn arguments<'a>(embedder: &'a Embedder, others: &'a OtherColumns) -> [Arg<'a>; 9] {
    [
        Arg::Text(&embedder.id),
        Arg::Text(&embedder.provider),
        Arg::Text(&embedder.model),
        Arg::Int(embedder.dimension as i32),
        Arg::TextOrNull(embedder.base_url.as_deref()),
        Arg::TextOrNull(others.secret.as_deref()),
        Arg::TextOrNull(others.secret_host.as_deref()),
        Arg::Json(&others.config),
        Arg::Long(embedder.fingerprint()),
    ]
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
