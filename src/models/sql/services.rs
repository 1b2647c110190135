//! kb.embedders, kb.rerankers, kb.llms and kb.extractors, a table for each kind of service. Their columns are
//! the same, except that kb.embedders also has the dimension and the fingerprint of vectors, and whether a
//! row comes with kb, and that kb.extractors has a version.

use crate::pg::spi::{self, Arg, Row};
use crate::resources::table_of;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::provider::{self, Provider};
use kb_types::error::{Error, Result};
use kb_types::json_reader::Fields;
use kb_types::remote_settings::Remote;
use kb_types::{
    Embedder, EmbedderConfig, Extractor, ExtractorConfig, Llm, LlmConfig, Reranker, RerankerConfig,
    ServiceKind,
};
use serde_json::Value;

/// A row of one of the tables.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRow {
    pub kind: ServiceKind,
    pub id: String,
    pub provider: String,
    pub model: String,
    /// None except for an embedder.
    pub dimension: Option<i32>,
    pub base_url: Option<String>,
    /// A reference to a key, and the host to which it is bound.
    pub secret: Option<String>,
    pub secret_host: Option<String>,
    pub config: Value,
    /// Whether it comes with the extension.
    pub is_seeded: bool,
}

/// Also sees what the same statement has written. Works on a standby.
pub fn find(kind: ServiceKind, id: &str) -> Result<Option<ServiceRow>> {
    Ok(read(kind, "WHERE id = $1", &[Arg::Text(id)])?.pop())
}

pub fn get(kind: ServiceKind, id: &str) -> Result<ServiceRow> {
    find(kind, id)?.ok_or_else(|| Error::NotFound { what: kind.into(), id: id.into() })
}

pub fn find_embedder(id: &str) -> Result<Option<Embedder>> {
    find(ServiceKind::Embedder, id)?.map(|row| row.embedder()).transpose()
}

pub fn embedder(id: &str) -> Result<Embedder> {
    get(ServiceKind::Embedder, id)?.embedder()
}

/// The embedders that have a secret, in the order in which they were created.
pub fn embedders_with_secret() -> Result<Vec<ServiceRow>> {
    read(ServiceKind::Embedder, "WHERE secret IS NOT NULL ORDER BY created_at, id", &[])
}

/// The services of provider `local`, by id.
pub fn local(kind: ServiceKind) -> Result<Vec<ServiceRow>> {
    read(kind, "WHERE provider = 'local' ORDER BY id", &[])
}

fn read(kind: ServiceKind, which: &str, args: &[Arg]) -> Result<Vec<ServiceRow>> {
    let own = match kind {
        ServiceKind::Embedder => "dimension, seeded",
        _ => "NULL::integer AS dimension, false AS seeded",
    };
    let sql = format!(
        "SELECT id, provider, model, base_url, secret, secret_host, config, {own} FROM {} {which}",
        table_of(kind)
    );
    spi::write(&sql, args, |row| {
        Ok(ServiceRow {
            kind,
            id: row.get("id")?,
            provider: row.get("provider")?,
            model: row.get("model")?,
            base_url: row.get("base_url")?,
            secret: row.get("secret")?,
            secret_host: row.get("secret_host")?,
            config: row.get("config")?,
            dimension: row.get("dimension")?,
            is_seeded: row.get("seeded")?,
        })
    })
}

/// Returns false if the id exists.
pub fn insert(row: &ServiceRow) -> Result<bool> {
    let (columns, values) = match row.kind {
        ServiceKind::Embedder => (", dimension, fingerprint", ", $8, $9"),
        ServiceKind::Extractor => (", version", ", $8"),
        _ => ("", ""),
    };
    let sql = format!(
        "INSERT INTO {} (id, provider, model, base_url, secret, secret_host, config{columns})
         VALUES ($1, $2, $3, $4, $5, $6, $7{values}) ON CONFLICT (id) DO NOTHING",
        table_of(row.kind)
    );
    Ok(spi::execute(&sql, &arguments(row, &version(row)?)?)? == 1)
}

pub fn update(row: &ServiceRow) -> Result<()> {
    let own = match row.kind {
        ServiceKind::Embedder => ", dimension = $8, fingerprint = $9",
        ServiceKind::Extractor => ", version = $8",
        _ => "",
    };
    let sql = format!(
        "UPDATE {} SET provider = $2, model = $3, base_url = $4, secret = $5, secret_host = $6, config = $7{own},
                updated_at = now() WHERE id = $1",
        table_of(row.kind)
    );
    spi::execute(&sql, &arguments(row, &version(row)?)?)?;
    Ok(())
}

fn version(row: &ServiceRow) -> Result<String> {
    if row.kind == ServiceKind::Extractor { Ok(row.extractor()?.version()) } else { Ok(String::new()) }
}

/// `version` is that of an extractor.
fn arguments<'a>(row: &'a ServiceRow, version: &'a str) -> Result<Vec<Arg<'a>>> {
    let mut arguments = vec![
        Arg::Text(&row.id),
        Arg::Text(&row.provider),
        Arg::Text(&row.model),
        Arg::TextOrNull(row.base_url.as_deref()),
        Arg::TextOrNull(row.secret.as_deref()),
        Arg::TextOrNull(row.secret_host.as_deref()),
        Arg::Json(&row.config),
    ];
    if row.kind == ServiceKind::Embedder {
        let embedder = row.embedder()?;
        arguments.extend([Arg::Int(embedder.dimension as i32), Arg::Long(embedder.fingerprint())]);
    }
    if row.kind == ServiceKind::Extractor {
        arguments.push(Arg::Text(version));
    }
    Ok(arguments)
}

pub fn delete(kind: ServiceKind, id: &str) -> Result<()> {
    spi::execute(&format!("DELETE FROM {} WHERE id = $1", table_of(kind)), &[Arg::Text(id)])?;
    Ok(())
}

/// Whether a knowledge base, build, memory or conversation of any tenant, or a reranker, uses the service.
/// Runs as the owner.
pub fn is_used(kind: ServiceKind, id: &str) -> Result<bool> {
    let sql = match kind {
        ServiceKind::Embedder => {
            "SELECT EXISTS (SELECT FROM kb.knowledge_bases WHERE embedder = $1)
                 OR EXISTS (SELECT FROM kb.builds WHERE embedder = $1)"
        }
        ServiceKind::Reranker => {
            "SELECT EXISTS (SELECT FROM kb.knowledge_bases WHERE retrieval #>> '{rerank,reranker}' = $1)"
        }
        ServiceKind::Llm => {
            "SELECT EXISTS (SELECT FROM kb.knowledge_bases
                            WHERE retrieval #>> '{transform,llm}' = $1 OR chunking ->> 'context_llm' = $1)
                 OR EXISTS (SELECT FROM kb.builds WHERE chunking ->> 'context_llm' = $1)
                 OR EXISTS (SELECT FROM kb.documents WHERE chunking ->> 'context_llm' = $1)
                 OR EXISTS (SELECT FROM kb.rerankers WHERE llm = $1)
                 OR EXISTS (SELECT FROM kb.conversations WHERE settings #>> '{summary,llm}' = $1)
                 OR EXISTS (SELECT FROM kb.memory_stores WHERE settings ->> 'llm' = $1)"
        }
        ServiceKind::Extractor => {
            "SELECT EXISTS (
                 SELECT FROM (SELECT preprocess FROM kb.knowledge_bases UNION ALL SELECT preprocess FROM kb.builds) s
                 CROSS JOIN pg_catalog.jsonb_each(s.preprocess -> 'extractors') e
                 WHERE e.value ->> 'extractor' = $1)"
        }
    };
    Ok(spi::write_one(sql, &[Arg::Text(id)], Row::only)?.unwrap_or(false))
}

impl ServiceRow {
    /// The provider. None if the service needs no connection.
    pub fn provider(&self) -> Option<&'static Provider> {
        provider::find(self.kind, &self.provider)
    }

    /// The scheme, host and port of requests.
    pub fn host(&self) -> Option<String> {
        let provider = self.provider()?;
        origin(self.base_url.as_deref().or(provider.base_url())?)
    }

    /// The limits and prices, which services of all kinds can have.
    pub fn remote(&self) -> Remote {
        Remote::parse(&mut Fields::new("config", &self.config))
    }

    pub fn embedder(&self) -> Result<Embedder> {
        let config = self.parsed(EmbedderConfig::parse)?;
        let dimension = self.dimension.unwrap_or_default() as usize;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Embedder { id, provider, model, dimension, base_url, config })
    }

    pub fn reranker(&self) -> Result<Reranker> {
        let config = self.parsed(RerankerConfig::parse)?;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Reranker { id, provider, model, base_url, config })
    }

    pub fn llm(&self) -> Result<Llm> {
        let config = self.parsed(LlmConfig::parse)?;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Llm { id, provider, model, base_url, config })
    }

    pub fn extractor(&self) -> Result<Extractor> {
        let config = self.parsed(ExtractorConfig::parse)?;
        let ServiceRow { id, provider, model, base_url, .. } = self.clone();
        Ok(Extractor { id, provider, model, base_url, config })
    }

    fn parsed<C>(&self, parse: fn(&Value) -> Result<C, Vec<String>>) -> Result<C> {
        parse(&self.config)
            .map_err(|problems| Error::configuration(format!("{} \"{}\"", self.kind, self.id), problems))
    }
}
