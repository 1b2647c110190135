//! Checks the settings of a service and completes them with defaults.

use super::sql::services::{self, ServiceRow};
use crate::settings;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::provider::{self, Address, EmbedApi, Provider};
use kb_inference::CrossEncoder;
use kb_text::model_files::{Architecture, ModelFiles};
use kb_types::error::{Allowing, Error, Result};
use kb_types::vector_db::HALFVEC_MAX_DIMENSION;
use kb_types::{
    Compute, Embedder, EmbedderConfig, Extractor, ExtractorConfig, LlmConfig, RerankerConfig, ServiceKind,
    id, url_path,
};
use serde_json::{Map, Value, json};

/// The settings that a call gives. None is the default for a new service, and no change for another.
pub struct WantedService {
    pub provider: Option<String>,
    pub model: Option<String>,
    /// The dimension of an embedder's vectors.
    pub dimension: Option<i32>,
    pub base_url: Option<String>,
    pub secret: Option<String>,
    pub config: Option<Value>,
}

/// The default dimension of provider `hash`.
const HASH_DIMENSION: usize = 384;

/// The keys of `config` for every embedder.
const EMBEDDER: &[&str] =
    &["normalize", "query_prefix", "document_prefix", "truncate", "batch_size", "max_input_tokens"];
const LOCAL_EMBEDDER: &[&str] = &["pooling", "compute"];
const REMOTE_EMBEDDER: &[&str] = &["max_batch_tokens", "strip_newlines"];
/// The keys of `config` for every service with an HTTP API.
const ENDPOINT: &[&str] = &[
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
const RERANKER: &[&str] = &["max_chars", "batch_size"];
const LOCAL_RERANKER: &[&str] = &["max_chars", "max_input_tokens"];
const RERANKER_BY_LLM: &[&str] = &["max_chars", "batch_size", "llm", "scoring"];
/// The keys of `config` for services with an HTTP API that extractors do not have.
const NOT_OF_EXTRACTORS: &[&str] = &["tpm", "path"];
const LLM: &[&str] = &["temperature", "max_output_tokens"];

/// The rules for services of one kind at one provider.
struct Rules {
    /// The keys of `config`.
    keys: Vec<&'static str>,
    /// The default model. None if a model must be given.
    model: Option<&'static str>,
    /// None if the service needs no connection.
    remote: Option<&'static Provider>,
}

fn rules(kind: ServiceKind, name: &str) -> Option<Rules> {
    let remote = provider::find(kind, name);
    let (keys, model) = match (kind, name) {
        (ServiceKind::Embedder, "hash") => (EMBEDDER.to_vec(), Some("hash")),
        (ServiceKind::Embedder, "local") => ([EMBEDDER, LOCAL_EMBEDDER].concat(), None),
        (ServiceKind::Reranker, "local") => (LOCAL_RERANKER.to_vec(), None),
        (ServiceKind::Reranker, "llm") => (RERANKER_BY_LLM.to_vec(), Some("")),
        _ => {
            let keys = match kind {
                ServiceKind::Embedder => {
                    [EMBEDDER, REMOTE_EMBEDDER, ENDPOINT, remote?.embed?.facts().keys].concat()
                }
                ServiceKind::Reranker => [ENDPOINT, RERANKER].concat(),
                ServiceKind::Llm => [ENDPOINT, LLM].concat(),
                ServiceKind::Extractor => {
                    let is_own = |key: &&&str| !NOT_OF_EXTRACTORS.contains(key);
                    let shared = ENDPOINT.iter().filter(is_own);
                    shared.chain(remote?.extract?.facts().keys).copied().collect()
                }
            };
            (keys, remote?.model(kind))
        }
    };
    Some(Rules { keys, model, remote })
}

fn unknown(kind: ServiceKind, id: &str, provider: &str) -> Error {
    if kind == ServiceKind::Embedder {
        return provider::unavailable(kind, provider);
    }
    let known = provider::all_names(kind).join(", ");
    let problem = format!("provider: \"{provider}\" is not one of {known}");
    Error::configuration(format!("{kind} \"{id}\""), vec![problem])
}

/// Reports all problems at once. Binds the secret to the host of the service.
pub fn check(kind: ServiceKind, id: &str, wanted: WantedService) -> Result<ServiceRow> {
    let provider = wanted.provider.unwrap_or_default();
    let rules = rules(kind, &provider).ok_or_else(|| unknown(kind, id, &provider))?;
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let model = wanted.model.or(rules.model.map(str::to_string));
    problems.extend(model_problem(&provider, rules.remote, model.as_deref()));
    let config = wanted.config.unwrap_or_else(|| json!({}));
    // The keys of other providers are reported as unknown and not read.
    let (read, unread) = with_keys(&config, &rules.keys);
    let mut row = ServiceRow {
        kind,
        id: id.to_string(),
        provider,
        model: model.clone().unwrap_or_default(),
        dimension: None,
        base_url: wanted.base_url,
        secret: wanted.secret,
        secret_host: None,
        config,
        is_seeded: false,
    };
    let of_config = match kind {
        ServiceKind::Embedder => {
            let given = (model.as_deref(), wanted.dimension);
            let (dimension, of_config) = embedder(&row, rules.remote, given, &read, &mut problems);
            row.dimension = Some(dimension as i32);
            of_config
        }
        ServiceKind::Reranker => reranker(&row.provider, model.as_deref(), &read)?,
        ServiceKind::Llm => match LlmConfig::parse(&read) {
            Ok(config) => {
                rules.remote.and_then(|of| of.chat).map_or_else(Vec::new, |api| api.problems(&config))
            }
            Err(problems) => problems,
        },
        ServiceKind::Extractor => extractor(&row, rules.remote, &read),
    };
    let setting = address(&row, rules.remote, &mut problems);
    problems.extend(of_config);
    for key in unread {
        let (provider, known) = (&row.provider, rules.keys.join(", "));
        problems.push(format!("config.{key}: unknown key; provider {provider} knows {known}"));
    }
    if !problems.is_empty() {
        return Err(Error::Configuration { object: format!("{kind} \"{id}\""), problems, setting });
    }
    row.secret_host = row.secret.as_ref().and(row.host());
    Ok(row)
}

fn model_problem(provider: &str, remote: Option<&Provider>, model: Option<&str>) -> Option<String> {
    let problem = match (provider, model) {
        ("local", None) => "must be named: a directory under kb.model_dir".to_string(),
        (_, None) => format!("must be named for provider {provider}"),
        ("hash", Some(model)) if model != "hash" => "provider hash takes none".to_string(),
        ("llm", Some(model)) if !model.is_empty() => {
            "provider llm takes none; config.llm names one of kb.llms".to_string()
        }
        (_, Some(model)) => remote.and_then(|_| url_path::model_problem(model))?,
    };
    Some(format!("model: {problem}"))
}

/// Returns the dimension of an embedder and the problems of its config. A call gives model and dimension.
fn embedder(
    row: &ServiceRow,
    remote: Option<&Provider>,
    (model, given): (Option<&str>, Option<i32>),
    config: &Value,
    problems: &mut Vec<String>,
) -> (usize, Vec<String>) {
    let read = EmbedderConfig::parse(config);
    let default = EmbedderConfig::default();
    let config = read.as_ref().unwrap_or(&default);
    let most = HALFVEC_MAX_DIMENSION;
    let given = given.and_then(|given| {
        let valid = usize::try_from(given).ok().filter(|given| (1..=most).contains(given));
        if valid.is_none() {
            problems.push(format!("dimension: {given} is not between 1 and {most}"));
        }
        valid
    });
    let api = remote.and_then(|provider| provider.embed);
    let dimension = match (row.provider.as_str(), api) {
        (_, Some(api)) => remote_dimension(api, model, given, config, problems),
        ("local", _) => local_dimension(model, given, config, problems),
        _ => given.unwrap_or(HASH_DIMENSION),
    };
    let of_config = match (read, api) {
        (Ok(config), Some(api)) => {
            let ServiceRow { id, provider, model, base_url, .. } = row.clone();
            api.problems(&Embedder { id, provider, model, dimension, base_url, config })
        }
        (read, _) => read.err().unwrap_or_default(),
    };
    (dimension, of_config)
}

/// Returns the dimension of a model whose files are in kb.model_dir.
fn local_dimension(
    model: Option<&str>,
    given: Option<usize>,
    config: &EmbedderConfig,
    problems: &mut Vec<String>,
) -> usize {
    let Some(model) = model else { return given.unwrap_or(1) };
    let files = match ModelFiles::open(&settings::model_dir(), model) {
        Ok(files) => files,
        Err(error) => {
            problems.push(error.to_string());
            return given.unwrap_or(1);
        }
    };
    if let Some(given) = given.filter(|given| *given != files.dimension) {
        problems.push(format!("dimension: {given} was given, model {model} has {}", files.dimension));
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
    files.dimension
}

/// Returns the dimension of a model at a provider.
fn remote_dimension(
    api: &dyn EmbedApi,
    model: Option<&str>,
    given: Option<usize>,
    config: &EmbedderConfig,
    problems: &mut Vec<String>,
) -> usize {
    let asked = config.remote.dimensions;
    let own = api.facts().dimension.filter(|_| api.facts().model == model);
    let dimension = given.or(asked).or(own).unwrap_or_else(|| {
        problems.push("dimension: must be given: the number of dimensions of the model's vectors".into());
        1
    });
    if let Some(asked) = asked.filter(|asked| *asked != dimension) {
        problems.push(format!("config.dimensions: {asked} is not the embedder's dimension, {dimension}"));
    }
    if dimension > HALFVEC_MAX_DIMENSION {
        problems.push(format!(
            "dimension: {dimension} is more than the maximum of {HALFVEC_MAX_DIMENSION} that can be stored"
        ));
    }
    dimension
}

/// Returns the problems of a reranker's config and model.
fn reranker(provider: &str, model: Option<&str>, config: &Value) -> Result<Vec<String>> {
    let config = match RerankerConfig::parse(config) {
        Ok(config) => config,
        Err(problems) => return Ok(problems),
    };
    Ok(match (provider, model, config.llm) {
        ("local", Some(model), _) => {
            let files = CrossEncoder::check(&settings::model_dir(), model);
            files.err().map(|error| error.to_string()).into_iter().collect()
        }
        ("llm", _, None) => vec!["config.llm: must be given: an id of kb.llms".into()],
        ("llm", _, Some(llm)) if services::find(ServiceKind::Llm, &llm)?.is_none() => {
            vec![format!("config.llm: \"{llm}\" does not exist")]
        }
        _ => Vec::new(),
    })
}

/// Returns the problems of the config of an extraction service.
fn extractor(row: &ServiceRow, remote: Option<&Provider>, config: &Value) -> Vec<String> {
    let config = match ExtractorConfig::parse(config) {
        Ok(config) => config,
        Err(problems) => return problems,
    };
    let ServiceRow { id, provider, model, base_url, .. } = row.clone();
    let extractor = Extractor { id, provider, model, base_url, config };
    let Some((remote, api)) = remote.and_then(|remote| Some((remote, remote.extract?))) else {
        return Vec::new();
    };
    let mut problems = api.problems(&extractor);
    if !remote.is_free_form && !extractor.model.is_empty() {
        problems.push(format!("model: provider {} takes none", extractor.provider));
    }
    problems
}

/// Checks base_url and secret. Returns the setting that could allow what was refused.
fn address(row: &ServiceRow, remote: Option<&Provider>, problems: &mut Vec<String>) -> Option<Allowing> {
    let ServiceRow { provider: name, base_url, secret, .. } = row;
    let Some(provider) = remote else {
        for (argument, value) in [("base_url", base_url), ("secret", secret)] {
            problems.extend(value.as_ref().map(|_| format!("{argument}: provider {name} takes none")));
        }
        return None;
    };
    let mut setting = None;
    let base = match (&provider.address, base_url) {
        (_, Some(given)) => Some(given.as_str()),
        (Address::Default(url), None) => Some(*url),
        (Address::Given(what), None) => {
            problems.push(format!("base_url: must be given: {what}"));
            None
        }
    };
    match base.map(|base| settings::allowed_hosts().check(base, provider.is_free_form)) {
        Some(Err(problem)) => {
            setting = problem.can_be_allowed().then_some(Allowing::AllowedHosts);
            problems.push(format!("base_url: {problem}"));
        }
        Some(Ok(url)) if url.query().is_some() || url.fragment().is_some() => problems.push(
            "base_url: it must not contain ? or #; a query string without credentials belongs in config.path"
                .into(),
        ),
        _ => {}
    }
    match secret.as_deref().map(Reference::parse) {
        Some(Err(problem)) => problems.push(format!("secret: {problem}")),
        Some(Ok(reference)) => {
            let sources = settings::secret_sources();
            if let Reference::Env(variable) = &reference
                && let Err(problem) = sources.variables.check(variable)
            {
                setting = Some(Allowing::SecretEnv);
                problems.push(format!("secret: {problem}"));
            } else if let Err(problem) = reference.check_use(&sources) {
                problems.push(format!("secret: {problem}"));
            }
        }
        None if provider.needs_secret && base_url.is_none() => problems
            .push(format!("secret: provider {name} requires a key; specify env:NAME, file:NAME or kb:NAME")),
        None => {}
    }
    setting
}

/// Returns the configuration with its known keys only, and the names of the other keys. A value that is not
/// an object is returned unchanged.
fn with_keys(config: &Value, known: &[&str]) -> (Value, Vec<String>) {
    let Value::Object(map) = config else { return (config.clone(), Vec::new()) };
    let (read, unknown): (Map<_, _>, Map<_, _>) =
        map.clone().into_iter().partition(|(key, _)| known.contains(&key.as_str()));
    (Value::Object(read), unknown.into_iter().map(|(key, _)| key).collect())
}
