//! The settings of rerankers and chat models: checked, and completed with defaults.

use super::endpoint_settings::{Address, ENDPOINT_KEYS, refuse_address, with_keys};
use crate::models::sql::services;
use crate::models::sql::services::ServiceRow;
use crate::settings;
use kb_gateway::endpoint::egress::origin;
use kb_gateway::{chat, rerank};
use kb_inference::CrossEncoder;
use kb_types::error::{Allowing, Error, Object, Result};
use kb_types::{LlmConfig, RerankerConfig, id, url_path};
use serde_json::{Value, json};

/// A reranker or chat model as it is asked for; None is the provider's default (on creation) or no change.
#[derive(Debug, Default)]
pub struct WantedService {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub secret: Option<String>,
    pub config: Option<Value>,
}

const LOCAL_KEYS: [&str; 2] = ["max_chars", "max_input_tokens"];
const BY_CHAT_KEYS: [&str; 4] = ["max_chars", "batch_size", "llm", "scoring"];
const RERANKER_KEYS: [&str; 2] = ["max_chars", "batch_size"];
const LLM_KEYS: [&str; 2] = ["temperature", "max_output_tokens"];

/// What a provider's row needs.
struct Rules {
    keys: Vec<&'static str>,
    /// The model when none is given; None: it must be given.
    model: Option<&'static str>,
    /// None: nothing is connected to.
    remote: Option<Remote>,
}

struct Remote {
    own: Option<&'static str>,
    needs_secret: bool,
}

fn rules(what: Object, provider: &str) -> Option<Rules> {
    let remote = |own: &[&'static str]| [&ENDPOINT_KEYS, own].concat();
    if what == Object::Llm {
        let dialect = chat::find(provider)?;
        let address = Remote { own: Some(dialect.base_url()), needs_secret: dialect.needs_secret() };
        return Some(Rules { keys: remote(&LLM_KEYS), model: dialect.model(), remote: Some(address) });
    }
    Some(match provider {
        "local" => Rules { keys: LOCAL_KEYS.to_vec(), model: None, remote: None },
        "llm" => Rules { keys: BY_CHAT_KEYS.to_vec(), model: Some(""), remote: None },
        _ => {
            let dialect = rerank::find(provider)?;
            let address = Remote { own: dialect.base_url(), needs_secret: dialect.needs_secret() };
            Rules { keys: remote(&RERANKER_KEYS), model: Some(dialect.model()), remote: Some(address) }
        }
    })
}

/// Checks everything and reports all problems at once. The secret is bound to the host that the row names.
pub fn check(what: Object, id: &str, wanted: WantedService) -> Result<ServiceRow> {
    let provider = wanted.provider.unwrap_or_default();
    let Some(rules) = rules(what, &provider) else { return Err(unknown(what, id, &provider)) };
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let config = wanted.config.unwrap_or_else(|| json!({}));
    let (read, unread) = with_keys(&config, &rules.keys);
    let (base_url, secret) = (wanted.base_url.as_deref(), wanted.secret.as_deref());
    let (mut setting, mut host): (Option<Allowing>, _) = (None, None);
    match &rules.remote {
        None => refuse_address(&provider, base_url, secret, &mut problems),
        Some(Remote { own, needs_secret }) => {
            let (own, needs_secret) = (*own, *needs_secret);
            if own.is_none() && base_url.is_none() {
                problems.push("base_url: must be given: where the server is".into());
            }
            let address =
                Address { provider: &provider, base_url, secret, own, is_free_form: false, needs_secret };
            setting = address.check(&mut problems);
            host = base_url.or(own).and_then(origin);
            let problem = wanted.model.as_deref().and_then(url_path::model_problem);
            problems.extend(problem.map(|problem| format!("model: {problem}")));
        }
    }
    let model = wanted.model.or(rules.model.map(str::to_string));
    if model.is_none() {
        problems.push(format!("model: must be named for provider {provider}"));
    }
    match what {
        Object::Llm => problems.extend(LlmConfig::parse(&read).err().unwrap_or_default()),
        _ => problems.extend(reranker_problems(&provider, model.as_deref(), &read)?),
    }
    for key in unread {
        problems
            .push(format!("config.{key}: unknown key; provider {provider} knows {}", rules.keys.join(", ")));
    }
    if !problems.is_empty() {
        return Err(Error::Configuration { object: format!("{what} \"{id}\""), problems, setting });
    }
    let secret_host = wanted.secret.as_ref().and(host);
    Ok(ServiceRow {
        id: id.to_string(),
        provider,
        model: model.unwrap_or_default(),
        base_url: wanted.base_url,
        secret: wanted.secret,
        secret_host,
        config,
    })
}

fn reranker_problems(provider: &str, model: Option<&str>, config: &Value) -> Result<Vec<String>> {
    let config = match RerankerConfig::parse(config) {
        Ok(config) => config,
        Err(problems) => return Ok(problems),
    };
    Ok(match (provider, model, config.llm) {
        ("local", Some(model), _) => {
            let files = CrossEncoder::check(&settings::model_dir(), model);
            files.err().map(|error| error.to_string()).into_iter().collect()
        }
        ("llm", Some(model), _) if !model.is_empty() => {
            vec!["model: provider llm takes none; config.llm names one of kb.llms".into()]
        }
        ("llm", _, None) => vec!["config.llm: must be given: the id of one of kb.llms".into()],
        ("llm", _, Some(llm)) if services::find(Object::Llm, &llm)?.is_none() => {
            vec![format!("config.llm: \"{llm}\" does not exist")]
        }
        _ => Vec::new(),
    })
}

fn unknown(what: Object, id: &str, provider: &str) -> Error {
    let known = match what {
        Object::Llm => chat::NAMES.join(", "),
        _ => format!("{}, llm, local", rerank::NAMES.join(", ")),
    };
    let problem = format!("provider: \"{provider}\" is not one of {known}");
    Error::configuration(format!("{what} \"{id}\""), vec![problem])
}

/// Whether it is reached over HTTP by itself, so that a database which has it may spend.
pub fn is_remote(what: Object, provider: &str) -> bool {
    rules(what, provider).is_some_and(|rules| rules.remote.is_some())
}
