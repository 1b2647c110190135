//! kb.rerankers and kb.llms, which have the same columns.

use crate::pg::spi::{self, Arg};
use kb_types::error::{Error, Object, Result};
use kb_types::{Llm, LlmConfig, Reranker, RerankerConfig};
use serde_json::Value;

/// A row, as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRow {
    pub id: String,
    pub provider: String,
    pub model: String,
    pub base_url: Option<String>,
    /// A reference, and the host that it is bound to.
    pub secret: Option<String>,
    pub secret_host: Option<String>,
    pub config: Value,
}

const COLUMNS: &str = "id, provider, model, base_url, secret, secret_host, config";

fn table(what: Object) -> Result<&'static str> {
    match what {
        Object::Reranker => Ok("kb.rerankers"),
        Object::Llm => Ok("kb.llms"),
        other => Err(Error::Internal(format!("{other} is no service"))),
    }
}

/// Works on a standby. Does not see what the same statement has written.
pub fn find(what: Object, id: &str) -> Result<Option<ServiceRow>> {
    Ok(read(what, "WHERE id = $1", &[Arg::Text(id)])?.pop())
}

pub fn get(what: Object, id: &str) -> Result<ServiceRow> {
    find(what, id)?.ok_or_else(|| Error::NotFound { what, id: id.into() })
}

/// All, by id.
pub fn all(what: Object) -> Result<Vec<ServiceRow>> {
    read(what, "ORDER BY id", &[])
}

fn read(what: Object, which: &str, args: &[Arg]) -> Result<Vec<ServiceRow>> {
    spi::read(&format!("SELECT {COLUMNS} FROM {} {which}", table(what)?), args, |row| {
        Ok(ServiceRow {
            id: row.get(0)?,
            provider: row.get(1)?,
            model: row.get(2)?,
            base_url: row.opt(3)?,
            secret: row.opt(4)?,
            secret_host: row.opt(5)?,
            config: row.json(6)?,
        })
    })
}

/// False when the id is taken.
pub fn insert(what: Object, row: &ServiceRow) -> Result<bool> {
    let sql = format!(
        "INSERT INTO {} ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        table(what)?
    );
    Ok(spi::execute(&sql, &arguments(row))? == 1)
}

pub fn update(what: Object, row: &ServiceRow) -> Result<()> {
    let sql = format!(
        "UPDATE {} SET provider = $2, model = $3, base_url = $4, secret = $5, secret_host = $6, config = $7,
                updated_at = now() WHERE id = $1",
        table(what)?
    );
    spi::execute(&sql, &arguments(row))?;
    Ok(())
}

fn arguments(row: &ServiceRow) -> [Arg<'_>; 7] {
    [
        Arg::Text(&row.id),
        Arg::Text(&row.provider),
        Arg::Text(&row.model),
        Arg::TextOrNull(row.base_url.as_deref()),
        Arg::TextOrNull(row.secret.as_deref()),
        Arg::TextOrNull(row.secret_host.as_deref()),
        Arg::Json(&row.config),
    ]
}

pub fn delete(what: Object, id: &str) -> Result<()> {
    spi::execute(&format!("DELETE FROM {} WHERE id = $1", table(what)?), &[Arg::Text(id)])?;
    Ok(())
}

/// Whether a knowledge base of any tenant, or a reranker, uses it. As the owner.
pub fn is_used(what: Object, id: &str) -> Result<bool> {
    let found = spi::write_one(
        "SELECT EXISTS (SELECT FROM kb.knowledge_bases k
                        WHERE $2 AND k.retrieval #>> '{rerank,reranker}' = $1
                           OR NOT $2 AND (k.retrieval #>> '{transform,llm}' = $1 OR k.chunking ->> 'context_llm' = $1))
             OR NOT $2 AND EXISTS (SELECT FROM kb.builds b WHERE b.chunking ->> 'context_llm' = $1)
             OR NOT $2 AND EXISTS (SELECT FROM kb.rerankers r WHERE r.llm = $1)",
        &[Arg::Text(id), Arg::Bool(what == Object::Reranker)],
        |row| row.get::<bool>(0),
    )?;
    Ok(found.unwrap_or(false))
}

impl ServiceRow {
    pub fn reranker(&self) -> Result<Reranker> {
        let config = RerankerConfig::parse(&self.config).map_err(|p| self.wrong(Object::Reranker, p))?;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Reranker { id, provider, model, base_url, config })
    }

    pub fn llm(&self) -> Result<Llm> {
        let config = LlmConfig::parse(&self.config).map_err(|p| self.wrong(Object::Llm, p))?;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Llm { id, provider, model, base_url, config })
    }

    fn wrong(&self, what: Object, problems: Vec<String>) -> Error {
        Error::configuration(format!("{what} \"{}\"", self.id), problems)
    }
}
