//! Creating, altering, dropping and checking embedders.

use super::access::access;
use crate::error::{Error, Result};
use crate::gateway::client;
use crate::gateway::endpoint::egress::origin;
use crate::gateway::endpoint::reference::Reference;
use crate::gateway::provider::{self, Provider};
use crate::model::vector_db::HALFVEC_MAX_DIMENSION;
use crate::model::{Embedder, EmbedderConfig, Kind, id};
use crate::model_files::ModelFiles;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::settings;
use crate::store::embedders::{self, Rest};
use crate::store::knowledge_bases::current_tenant;
use crate::store::{jobs, origins};
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

/// Keys of `config` that every provider takes.
const COMMON_KEYS: [&str; 6] =
    ["normalize", "query_prefix", "document_prefix", "truncate", "batch_size", "max_input_tokens"];
const LOCAL_KEYS: [&str; 1] = ["pooling"];
const REMOTE_KEYS: [&str; 12] = [
    "max_batch_tokens",
    "strip_newlines",
    "timeout_ms",
    "retry",
    "rpm",
    "tpm",
    "daily_token_budget",
    "tenant_share",
    "price_per_million_tokens",
    "max_concurrency",
    "path",
    "headers",
];

/// Checks everything and reports all problems at once.
fn validate(id: &str, wanted: &Wanted) -> Result<(Embedder, Value)> {
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let config_json = wanted.config.clone().unwrap_or_else(|| Value::Object(Default::default()));
    let config = EmbedderConfig::parse(&config_json).unwrap_or_else(|more| {
        problems.extend(more);
        EmbedderConfig::default()
    });
    let name = wanted.provider.clone().unwrap_or_default();
    let dimension = match wanted.dimension {
        Some(d) if !(1..=HALFVEC_MAX_DIMENSION as i32).contains(&d) => {
            problems.push(format!("dimension: {d} is not in 1 to {HALFVEC_MAX_DIMENSION}"));
            None
        }
        other => other.map(|d| d as usize),
    };
    let (keys, found): (&[&str], _) = match (name.as_str(), provider::find(&name)) {
        ("hash", _) => (&[], hash(wanted, dimension, &mut problems)),
        ("local", _) => (&LOCAL_KEYS, local(wanted, dimension, &config, &mut problems)),
        (_, Some(provider)) => (provider.keys(), remote(provider, wanted, dimension, &config, &mut problems)),
        _ => return Err(Error::ProviderUnavailable { provider: name }),
    };
    let more: &[&str] = if provider::find(&name).is_some() { &REMOTE_KEYS } else { &[] };
    let known = [&COMMON_KEYS, more, keys].concat();
    for key in config_json.as_object().into_iter().flat_map(|map| map.keys()) {
        if !known.contains(&key.as_str()) {
            // What is a key of another provider's is none of this one's.
            problems.retain(|problem| !problem.starts_with(&format!("config.{key}:")));
            problems.push(format!("config.{key}: unknown key; provider {name} knows {}", known.join(", ")));
        }
    }
    let (model, dimension) = found;
    let base_url = wanted.base_url.clone();
    let embedder = Embedder { id: id.to_string(), provider: name, model, dimension, base_url, config };
    if let Some(provider) = provider::find(&embedder.provider) {
        problems.extend(provider.problems(&embedder));
    }
    if problems.is_empty() {
        return Ok((embedder, config_json));
    }
    Err(Error::Configuration { object: format!("embedder \"{id}\""), problems })
}

/// Model and dimension of provider hash.
fn hash(wanted: &Wanted, dimension: Option<usize>, problems: &mut Vec<String>) -> (String, usize) {
    refuse_address(wanted, "hash", problems);
    if wanted.model.as_ref().is_some_and(|model| model != "hash") {
        problems.push("model: provider hash takes none".into());
    }
    ("hash".to_string(), dimension.unwrap_or(HASH_DIMENSION))
}

fn refuse_address(wanted: &Wanted, provider: &str, problems: &mut Vec<String>) {
    for (name, value) in [("base_url", &wanted.base_url), ("secret", &wanted.secret)] {
        if value.is_some() {
            problems.push(format!("{name}: provider {provider} takes none"));
        }
    }
}

/// Model and dimension of a model whose files are here.
fn local(
    wanted: &Wanted,
    dimension: Option<usize>,
    config: &EmbedderConfig,
    problems: &mut Vec<String>,
) -> (String, usize) {
    refuse_address(wanted, "local", problems);
    let Some(model) = &wanted.model else {
        problems.push("model: must be named: a directory under kb.model_dir".into());
        return (String::new(), dimension.unwrap_or(1));
    };
    let files = match ModelFiles::open(&settings::model_dir(), model) {
        Ok(files) => files,
        Err(error) => {
            problems.push(error.to_string());
            return (model.clone(), dimension.unwrap_or(1));
        }
    };
    if let Some(d) = dimension.filter(|d| *d != files.dimension) {
        problems.push(format!("dimension: {d} was given, model {model} has {}", files.dimension));
    }
    if let (Some(lower), Some(most)) = (config.max_input_tokens, files.max_tokens)
        && lower > most
    {
        problems.push(format!(
            "config.max_input_tokens: {lower} is more than the {most} that model {model} reads"
        ));
    }
    (model.clone(), files.dimension)
}

/// Model and dimension of a model at a provider; address and secret are checked, too.
fn remote(
    provider: &dyn Provider,
    wanted: &Wanted,
    dimension: Option<usize>,
    config: &EmbedderConfig,
    problems: &mut Vec<String>,
) -> (String, usize) {
    let name = wanted.provider.as_deref().unwrap_or_default();
    let default = provider.model();
    let model = wanted.model.clone().or(default.map(|(model, _)| model.to_string()));
    if model.is_none() && !matches!(name, "http" | "azure_openai") {
        problems.push(format!("model: must be named for provider {name}"));
    }
    let asked = config.remote.dimensions;
    let own = default.filter(|(of, _)| model.as_deref() == Some(*of)).map(|(_, dimension)| dimension);
    let dimension = dimension.or(asked).or(own).unwrap_or_else(|| {
        problems.push("dimension: must be given: the numbers of one of the model's vectors".into());
        1
    });
    if let Some(asked) = asked.filter(|asked| *asked != dimension) {
        problems.push(format!("config.dimensions: {asked} is not the embedder's dimension, {dimension}"));
    }
    if dimension > HALFVEC_MAX_DIMENSION {
        problems
            .push(format!("dimension: {dimension} is over the {HALFVEC_MAX_DIMENSION} that can be stored"));
    }
    match wanted.base_url.as_deref().or(provider.base_url()) {
        // The dialect says what it looks like.
        None => {}
        Some(base) => match settings::allowed_hosts().check(base, provider.is_free_form()) {
            Err(problem) => problems.push(format!("base_url: {problem}")),
            Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                problems.push(
                    "base_url: it must have no ? and no #; what is no credential can go into config.path"
                        .into(),
                );
            }
            Ok(_) => {}
        },
    }
    match wanted.secret.as_deref().map(Reference::parse) {
        Some(Err(problem)) => problems.push(format!("secret: {problem}")),
        Some(Ok(Reference::Env(variable))) => {
            let listed = settings::secret_sources().variables.check(&variable);
            problems.extend(listed.err().map(|problem| format!("secret: {problem}")));
        }
        None if (provider.needs_secret() || name == "openai") && wanted.base_url.is_none() => {
            problems.push(format!(
                "secret: provider {name} answers nobody without a key; give env:NAME, file:NAME or kb:NAME"
            ))
        }
        _ => {}
    }
    (model.unwrap_or_default(), dimension)
}

/// Scheme, host and port of an embedder, to which its secret is bound.
fn host(embedder: &Embedder) -> Option<String> {
    let default = provider::find(&embedder.provider).and_then(Provider::base_url);
    origin(embedder.base_url.as_deref().or(default)?)
}

pub fn create(id: &str, wanted: &Wanted) -> Result<()> {
    let (embedder, config) = validate(id, wanted)?;
    let secret = wanted.secret.clone();
    let secret_host = secret.is_some().then(|| host(&embedder)).flatten();
    let rest = Rest { secret, secret_host, config, seeded: false };
    let inserted = as_owner(|| {
        own(&embedder)?;
        embedders::insert(&embedder, &rest)
    })?;
    if inserted { Ok(()) } else { Err(Error::AlreadyExists { what: "embedder", id: id.into() }) }
}

/// With the first remote embedder a database becomes one that may spend, and its copies ones that may not.
fn own(embedder: &Embedder) -> Result<()> {
    match provider::find(&embedder.provider) {
        Some(_) => origins::adopt_if_none(),
        None => Ok(()),
    }
}

/// What would change the meaning of stored vectors is refused while anything uses the embedder. A secret stays
/// bound to the host it was given for.
pub fn alter(id: &str, wanted: Wanted) -> Result<()> {
    let before = embedders::get(id)?;
    let rest = embedders::rest(id)?;
    refuse_seeded(id, rest.seeded, "altered")?;
    let same_model = wanted.model.as_ref().is_none_or(|m| *m == before.model);
    let secret_given = wanted.secret.is_some();
    let merged = Wanted {
        provider: Some(wanted.provider.unwrap_or_else(|| before.provider.clone())),
        model: Some(wanted.model.unwrap_or_else(|| before.model.clone())),
        dimension: wanted.dimension.or(same_model.then_some(before.dimension as i32)),
        base_url: wanted.base_url.or_else(|| before.base_url.clone()),
        secret: wanted.secret.or(rest.secret),
        config: Some(wanted.config.unwrap_or(rest.config)),
    };
    let (after, config) = validate(id, &merged)?;
    let secret_host = match secret_given {
        true => host(&after),
        false => rest.secret_host.filter(|bound| host(&after).as_ref() == Some(bound)),
    };
    if merged.secret.is_some() && secret_host.is_none() {
        report::notice(&format!(
            "the secret of embedder \"{id}\" was given for another host and is sent to none until it is given again: \
             kb.alter_embedder(…, secret => …)"
        ));
    }
    let rest = Rest { secret: merged.secret, secret_host, config, seeded: false };
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
        own(&after)?;
        embedders::update(&after, &rest)?;
        // What waited for it as it was is tried with it as it is.
        jobs::make_due_of(id)
    })?;
    wake::at_commit(0);
    Ok(())
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
    let tenant = current_tenant()?;
    let answer = access(&embedder, &tenant).and_then(|access| {
        let (texts, whose) = (vec![format!("probe {nanos}")], client::this_client(&tenant, 0));
        client::embed(&embedder, &access, Kind::Query, texts, whose, settings::gateway_timeout())
    });
    let latency_ms = begun.elapsed().as_secs_f64() * 1000.0;
    Ok(match answer {
        Ok(vectors) => Check { dimension: Some(vectors.dimension), latency_ms, problem: None },
        Err(error) => {
            let hint = error.hint().map(|h| format!(" {h}")).unwrap_or_default();
            Check { dimension: None, latency_ms, problem: Some(format!("{error}.{hint}")) }
        }
    })
}
