//! Creating, altering, dropping and checking embedders.

use crate::error::{Error, Result};
use crate::gateway::client;
use crate::model::vector_db::HALFVEC_MAX_DIMENSION;
use crate::model::{Embedder, EmbedderConfig, Kind};
use crate::model_files::ModelFiles;
use crate::pg::role::as_owner;
use crate::settings;
use crate::store::embedders;
use serde_json::Value;
use std::time::Instant;

/// An embedder as it is asked for; None is the provider's default (on creation) or no change.
#[derive(Debug, Default)]
pub struct Wanted {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub dimension: Option<i32>,
    pub base_url: Option<String>,
    pub secret: Option<String>,
    pub config: Option<Value>,
}

/// Dimension of provider `hash` when none is given.
const HASH_DIMENSION: usize = 384;

/// Checks everything and reports all problems at once.
fn validate(id: &str, wanted: &Wanted) -> Result<(Embedder, Value)> {
    let mut problems = Vec::new();
    if id.trim().is_empty() {
        problems.push("id: must not be empty".into());
    }
    if id.len() > super::MAX_ID_BYTES {
        problems.push(format!("id: it has {} bytes, at most {} are taken", id.len(), super::MAX_ID_BYTES));
    }
    let config_json = wanted.config.clone().unwrap_or_else(|| Value::Object(Default::default()));
    let config = EmbedderConfig::parse(&config_json).unwrap_or_else(|more| {
        problems.extend(more);
        EmbedderConfig::default()
    });
    let provider = wanted.provider.clone().unwrap_or_default();
    if !matches!(provider.as_str(), "local" | "hash") {
        return Err(Error::ProviderUnavailable { provider });
    }
    for (name, value) in [("base_url", &wanted.base_url), ("secret", &wanted.secret)] {
        if value.is_some() {
            problems.push(format!("{name}: provider {provider} takes none"));
        }
    }
    let given = match wanted.dimension {
        Some(d) if !(1..=HALFVEC_MAX_DIMENSION as i32).contains(&d) => {
            problems.push(format!("dimension: {d} is not in 1 to {HALFVEC_MAX_DIMENSION}"));
            None
        }
        other => other.map(|d| d as usize),
    };
    if provider == "hash" && wanted.model.as_ref().is_some_and(|model| model != "hash") {
        problems.push("model: provider hash takes none".into());
    }
    let (model, dimension) = if provider == "hash" {
        ("hash".to_string(), given.unwrap_or(HASH_DIMENSION))
    } else {
        match &wanted.model {
            None => {
                problems.push("model: must be named: a directory under kb.model_dir".into());
                (String::new(), given.unwrap_or(1))
            }
            Some(model) => match ModelFiles::open(&settings::model_dir(), model) {
                Err(error) => {
                    problems.push(error.to_string());
                    (model.clone(), given.unwrap_or(1))
                }
                Ok(files) => {
                    if let Some(d) = given
                        && d != files.dimension
                    {
                        problems
                            .push(format!("dimension: {d} was given, model {model} has {}", files.dimension));
                    }
                    if let (Some(lower), Some(most)) = (config.max_input_tokens, files.max_tokens)
                        && lower > most
                    {
                        problems.push(format!("config.max_input_tokens: {lower} is more than the {most} that model {model} reads"));
                    }
                    (model.clone(), files.dimension)
                }
            },
        }
    };
    if !problems.is_empty() {
        return Err(Error::Configuration { object: format!("embedder \"{id}\""), problems });
    }
    Ok((Embedder { id: id.to_string(), provider, model, dimension, config }, config_json))
}

pub fn create(id: &str, wanted: &Wanted) -> Result<()> {
    let (embedder, config) = validate(id, wanted)?;
    let inserted = as_owner(|| {
        embedders::insert(&embedder, wanted.base_url.as_deref(), wanted.secret.as_deref(), &config)
    })?;
    if inserted { Ok(()) } else { Err(Error::AlreadyExists { what: "embedder", id: id.into() }) }
}

/// What would change the meaning of stored vectors is refused while anything uses the embedder.
pub fn alter(id: &str, wanted: Wanted) -> Result<()> {
    let before = embedders::get(id)?;
    let rest = embedders::rest(id)?;
    refuse_seeded(id, rest.seeded, "altered")?;
    let same_model = wanted.model.as_ref().is_none_or(|m| *m == before.model);
    let merged = Wanted {
        provider: Some(wanted.provider.unwrap_or_else(|| before.provider.clone())),
        model: Some(wanted.model.unwrap_or_else(|| before.model.clone())),
        dimension: wanted.dimension.or(same_model.then_some(before.dimension as i32)),
        base_url: wanted.base_url.or(rest.base_url),
        secret: wanted.secret.or(rest.secret),
        config: Some(wanted.config.unwrap_or(rest.config)),
    };
    let (after, config) = validate(id, &merged)?;
    as_owner(|| {
        if after.fingerprint() != before.fingerprint() && embedders::uses(id)? > 0 {
            return Err(Error::InUse {
                what: "embedder",
                id: id.into(),
                by:
                    "knowledge bases whose vectors this change would invalidate; create another embedder and \
                     give it to them with kb.alter_knowledge_base"
                        .into(),
            });
        }
        embedders::update(&after, merged.base_url.as_deref(), merged.secret.as_deref(), &config)
    })
}

pub fn drop(id: &str) -> Result<()> {
    embedders::get(id)?;
    refuse_seeded(id, embedders::rest(id)?.seeded, "dropped")?;
    as_owner(|| match embedders::uses(id)? {
        0 => embedders::delete(id),
        _ => Err(Error::InUse { what: "embedder", id: id.into(), by: "knowledge bases".into() }),
    })
}

fn refuse_seeded(id: &str, seeded: bool, verb: &str) -> Result<()> {
    if !seeded {
        return Ok(());
    }
    Err(Error::State {
        problem: format!("embedder \"{id}\" comes with kb and cannot be {verb}"),
        hint: "Create one of your own with kb.create_embedder.".into(),
    })
}

/// What embedding a probe showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    pub dimension: Option<usize>,
    pub latency_ms: f64,
    pub problem: Option<String>,
}

/// Embeds a probe text; a failure is an answer, not an error.
pub fn check(id: &str) -> Result<Check> {
    let embedder = embedders::get(id)?;
    let begun = Instant::now();
    // A text no cache has seen, so that the model really works.
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let answer =
        client::embed(&embedder, Kind::Query, vec![format!("probe {nanos}")], settings::gateway_timeout());
    let latency_ms = begun.elapsed().as_secs_f64() * 1000.0;
    Ok(match answer {
        Ok(vectors) => Check { dimension: Some(vectors.dimension), latency_ms, problem: None },
        Err(error) => {
            let hint = error.hint().map(|h| format!(" {h}")).unwrap_or_default();
            Check { dimension: None, latency_ms, problem: Some(format!("{error}.{hint}")) }
        }
    })
}
