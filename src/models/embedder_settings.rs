//! The settings of an embedder: checked, and completed with defaults.

use super::endpoint_settings::{Address, ENDPOINT_KEYS, refuse_address, with_keys};
use crate::models::sql::origins;
use crate::settings;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::provider;
use kb_gateway::provider::Provider;
use kb_text::model_files::{Architecture, ModelFiles};
use kb_types::error::{Allowing, Error, Result};
use kb_types::vector_db::HALFVEC_MAX_DIMENSION;
use kb_types::{Compute, Embedder, EmbedderConfig, id, url_path};
use serde_json::Value;

/// An embedder as it is asked for; None is the provider's default (on creation) or no change.
#[derive(Debug, Default)]
pub struct WantedEmbedder {
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
const LOCAL_KEYS: [&str; 2] = ["pooling", "compute"];
const REMOTE_KEYS: [&str; 2] = ["max_batch_tokens", "strip_newlines"];

/// Checks everything and reports all problems at once.
pub fn check(id: &str, wanted: &WantedEmbedder) -> Result<(Embedder, Value)> {
    let name = wanted.provider.clone().unwrap_or_default();
    let own_keys: &[&str] = match (name.as_str(), provider::find(&name)) {
        ("hash", _) => &[],
        ("local", _) => &LOCAL_KEYS,
        (_, Some(provider)) => &[&REMOTE_KEYS[..], &ENDPOINT_KEYS, provider.keys()].concat(),
        _ => return Err(Error::ProviderUnavailable { provider: name }),
    };
    let known = [&COMMON_KEYS, own_keys].concat();
    let mut problems = Vec::new();
    let mut setting = None;
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let config_json = wanted.config.clone().unwrap_or_else(|| Value::Object(Default::default()));
    // Keys of other providers are unknown to this one and are not read.
    let (read, unknown) = with_keys(&config_json, &known);
    let config = EmbedderConfig::parse(&read).unwrap_or_else(|more| {
        problems.extend(more);
        EmbedderConfig::default()
    });
    let dimension = match wanted.dimension {
        Some(d) if !(1..=HALFVEC_MAX_DIMENSION as i32).contains(&d) => {
            problems.push(format!("dimension: {d} is not in 1 to {HALFVEC_MAX_DIMENSION}"));
            None
        }
        other => other.map(|d| d as usize),
    };
    let (model, dimension) = match (name.as_str(), provider::find(&name)) {
        ("local", _) => local(wanted, dimension, &config, &mut problems),
        (_, Some(provider)) => {
            let found = remote(provider, wanted, dimension, &config, &mut problems);
            setting = address_and_secret(provider, wanted, &mut problems);
            found
        }
        _ => hash(wanted, dimension, &mut problems),
    };
    for key in unknown {
        problems.push(format!("config.{key}: unknown key; provider {name} knows {}", known.join(", ")));
    }
    let base_url = wanted.base_url.clone();
    let embedder = Embedder { id: id.to_string(), provider: name, model, dimension, base_url, config };
    if let Some(provider) = provider::find(&embedder.provider) {
        problems.extend(provider.problems(&embedder));
    }
    if problems.is_empty() {
        return Ok((embedder, config_json));
    }
    Err(Error::Configuration { object: format!("embedder \"{id}\""), problems, setting })
}

/// Model and dimension of provider hash.
fn hash(wanted: &WantedEmbedder, dimension: Option<usize>, problems: &mut Vec<String>) -> (String, usize) {
    refuse_address("hash", wanted.base_url.as_deref(), wanted.secret.as_deref(), problems);
    if wanted.model.as_ref().is_some_and(|model| model != "hash") {
        problems.push("model: provider hash takes none".into());
    }
    ("hash".to_string(), dimension.unwrap_or(HASH_DIMENSION))
}

/// Model and dimension of a model whose files are here.
fn local(
    wanted: &WantedEmbedder,
    dimension: Option<usize>,
    config: &EmbedderConfig,
    problems: &mut Vec<String>,
) -> (String, usize) {
    refuse_address("local", wanted.base_url.as_deref(), wanted.secret.as_deref(), problems);
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
    if config.compute == Compute::Int8 && files.architecture == Architecture::Static {
        problems.push(format!(
            "config.compute: model {model} is a table of vectors, which is not computed in int8"
        ));
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

/// Model and dimension of a model at a provider.
fn remote(
    provider: &dyn Provider,
    wanted: &WantedEmbedder,
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
    problems.extend(
        model.as_deref().and_then(url_path::model_problem).map(|problem| format!("model: {problem}")),
    );
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
    (model.unwrap_or_default(), dimension)
}

/// Checks address and secret of a remote embedder. Returns the setting that would allow what was refused.
fn address_and_secret(
    provider: &dyn Provider,
    wanted: &WantedEmbedder,
    problems: &mut Vec<String>,
) -> Option<Allowing> {
    let name = wanted.provider.as_deref().unwrap_or_default();
    let address = Address {
        provider: name,
        base_url: wanted.base_url.as_deref(),
        secret: wanted.secret.as_deref(),
        // The provider itself checks that an address is given where it has none.
        own: provider.base_url(),
        is_free_form: provider.is_free_form(),
        needs_secret: provider.needs_secret() || name == "openai",
    };
    address.check(problems)
}

/// Scheme, host and port of an embedder, to which its secret is bound.
pub fn host(embedder: &Embedder) -> Option<String> {
    let default = provider::find(&embedder.provider).and_then(Provider::base_url);
    origin(embedder.base_url.as_deref().or(default)?)
}

/// Notes with the first remote embedder that this database may spend money, so that its copies may not.
pub fn own(embedder: &Embedder) -> Result<()> {
    match provider::find(&embedder.provider) {
        Some(_) => origins::adopt_if_none(),
        None => Ok(()),
    }
}

/// Refuses to change an embedder that comes with the extension.
pub fn refuse_seeded(id: &str, seeded: bool, verb: &str) -> Result<()> {
    if !seeded {
        return Ok(());
    }
    Err(Error::State {
        problem: format!("embedder \"{id}\" comes with kb and cannot be {verb}"),
        hint: "Create one of your own with kb.create_embedder.".into(),
    })
}
