//! The providers with an HTTP API: how texts, questions, prompts and files are written as requests, and how
//! vectors, scores and text are read from the replies. Nothing here opens a connection or sees a key.
//!
//! A provider is a file of this folder and a line of [`PROVIDERS`].

mod anthropic;
mod azure_openai;
mod cohere;
mod docling;
mod form;
mod gemini;
mod http;
mod http_extract;
mod huggingface;
mod jina;
mod mistral;
mod ollama;
mod openai;
mod read;
mod tei;
mod tika;
mod unstructured;
mod vertex;
mod voyage;

pub use super::endpoint::classify::{Answer, Unusable};
pub use super::endpoint::transport::{Auth, Body, HttpRequest};

use kb_types::error::{Error, Result as KbResult};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, ServiceText};
use kb_types::{ChatReply, Dialogue, Embedder, Kind, Llm, LlmConfig, Reranker, ServiceKind, Speaker};
use serde_json::{Value, json};

/// All providers, in the order in which errors and the reference list them.
const PROVIDERS: &[&Provider] = &[
    &openai::PROVIDER,
    &azure_openai::PROVIDER,
    &ollama::PROVIDER,
    &anthropic::PROVIDER,
    &huggingface::PROVIDER,
    &gemini::PROVIDER,
    &vertex::PROVIDER,
    &cohere::PROVIDER,
    &voyage::PROVIDER,
    &jina::PROVIDER,
    &mistral::PROVIDER,
    &tei::PROVIDER,
    &tika::PROVIDER,
    &docling::PROVIDER,
    &unstructured::PROVIDER,
    &http::PROVIDER,
];

/// A provider with the APIs that it offers.
pub struct Provider {
    pub name: &'static str,
    pub address: Address,
    pub auth: Auth,
    /// Whether the default base_url answers only requests with a key.
    pub needs_secret: bool,
    /// Whether the row of the service decides what is sent, so that a request could address any other server.
    pub is_free_form: bool,
    /// A remark that follows the name in the hint of an error.
    pub remark: Option<&'static str>,
    pub embed: Option<&'static dyn EmbedApi>,
    pub rerank: Option<&'static dyn RerankApi>,
    pub chat: Option<&'static dyn ChatApi>,
    pub extract: Option<&'static dyn ExtractApi>,
}

/// The default base_url of a provider.
pub enum Address {
    Default(&'static str),
    /// There is none, and base_url must be given. Describes what it must be.
    Given(&'static str),
}

impl Provider {
    const DEFAULT: Provider = Provider {
        name: "",
        address: Address::Given(""),
        auth: Auth::Bearer,
        needs_secret: true,
        is_free_form: false,
        remark: None,
        embed: None,
        rerank: None,
        chat: None,
        extract: None,
    };

    /// The default base_url. None if it must be given.
    pub fn base_url(&self) -> Option<&'static str> {
        match self.address {
            Address::Default(url) => Some(url),
            Address::Given(_) => None,
        }
    }

    fn offers(&self, kind: ServiceKind) -> bool {
        match kind {
            ServiceKind::Embedder => self.embed.is_some(),
            ServiceKind::Reranker => self.rerank.is_some(),
            ServiceKind::Llm => self.chat.is_some(),
            ServiceKind::Extractor => self.extract.is_some(),
        }
    }

    /// The default model. It is '' if the address determines the model, and None if a model must be given.
    pub fn model(&self, kind: ServiceKind) -> Option<&'static str> {
        match kind {
            ServiceKind::Embedder => self.embed?.facts().model,
            ServiceKind::Reranker => self.rerank?.facts().model,
            ServiceKind::Llm => self.chat?.model(),
            ServiceKind::Extractor => self.extract.map(|api| api.facts().model),
        }
    }
}

/// What does not depend on the embedder, or only in a few cases.
pub struct EmbedFacts {
    /// See [`Provider::model`].
    pub model: Option<&'static str>,
    /// The dimension of the default model. None if a dimension must be given.
    pub dimension: Option<usize>,
    /// The most texts of a request.
    pub max_batch: usize,
    /// The keys of `config` that this provider uses besides those of every remote provider (limits, prefixes,
    /// path, headers).
    pub keys: &'static [&'static str],
}

/// The embedding API of a provider.
pub trait EmbedApi: Send + Sync {
    fn facts(&self) -> EmbedFacts;
    /// The most texts of a request for this embedder.
    fn max_batch(&self, _embedder: &Embedder) -> usize {
        self.facts().max_batch
    }
    /// The problems of an embedder that are specific to this provider.
    fn problems(&self, _embedder: &Embedder) -> Vec<String> {
        Vec::new()
    }
    /// The request for from one to `max_batch` texts, which already have their prefixes.
    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest;
    /// Reads the reply for `count` texts. The error describes a fault of the whole reply without repeating
    /// it.
    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable>;
}

/// The vector of a text, or its error. A text may fail while others succeed.
pub type VectorResult = Result<Vec<f32>, Unusable>;
/// The vectors of texts, in order.
pub type EmbedAnswer = Answer<Vec<VectorResult>>;

pub struct RerankFacts {
    /// See [`Provider::model`].
    pub model: Option<&'static str>,
    /// The path after base_url.
    pub path: &'static str,
    /// The most texts of a request.
    pub max_batch: usize,
}

/// The reranking API of a provider.
pub trait RerankApi: Send + Sync {
    fn facts(&self) -> RerankFacts;
    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value;
    /// Reads the reply for `count` texts. The error describes what is wrong without repeating the reply.
    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable>;
}

/// The chat API of a provider.
pub trait ChatApi: Send + Sync {
    /// See [`Provider::model`].
    fn model(&self) -> Option<&'static str>;
    /// The path after `base_url`.
    fn path(&self, base_url: &str, model: &str) -> String;
    /// Headers that the API wants.
    fn headers(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// The problems of a configuration that are specific to this provider.
    fn problems(&self, _config: &LlmConfig) -> Vec<String> {
        Vec::new()
    }
    fn body(&self, llm: &Llm, dialogue: &Dialogue) -> Value;
    /// Reads a reply, and the tokens of the whole request.
    fn read(&self, body: &[u8]) -> Result<Answer<ChatReply>, Unusable>;
}

/// The messages of a dialogue, each with a role and its text as `content`.
fn messages(dialogue: &Dialogue) -> Vec<Value> {
    let role = |speaker| match speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
    };
    let messages = dialogue.messages().iter();
    messages.map(|message| json!({"role": role(message.speaker), "content": message.text})).collect()
}

/// The same after the instructions.
fn messages_with_system(dialogue: &Dialogue) -> Vec<Value> {
    let system = json!({"role": "system", "content": dialogue.system});
    [system].into_iter().chain(messages(dialogue)).collect()
}

/// The most tokens of a reply.
fn max_output_tokens(llm: &Llm, dialogue: &Dialogue) -> Option<u32> {
    [llm.config.max_output_tokens, dialogue.max_output_tokens].into_iter().flatten().min()
}

/// The configured temperature.
fn temperature(llm: &Llm) -> Option<f64> {
    llm.config.temperature_millis.map(|millis| f64::from(millis) / 1000.0)
}

pub struct ExtractFacts {
    /// See [`Provider::model`].
    pub model: &'static str,
    /// The path after base_url.
    pub path: &'static str,
    /// The keys of `config` that this provider uses besides limits and headers.
    pub keys: &'static [&'static str],
}

/// The API of a provider that finds the text of files.
pub trait ExtractApi: Send + Sync {
    fn facts(&self) -> ExtractFacts;
    /// The problems of an extractor that are specific to this provider.
    fn problems(&self, extractor: &Extractor) -> Vec<String>;
    fn request(&self, extractor: &Extractor, url: String, file: &File) -> HttpRequest;
    /// Reads the text of a reply. The error describes what is wrong without repeating the reply.
    fn read(&self, extractor: &Extractor, body: &[u8]) -> Result<ServiceText, Unusable>;
}

/// Adds the fields that the config has.
fn add_fields(form: &mut form::Form, extractor: &Extractor) {
    for (name, values) in &extractor.config.form {
        values.iter().for_each(|value| form.text(name, value));
    }
}

/// The problems of fields in the config that kb itself sets.
fn reserved(extractor: &Extractor, names: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    let is_given = |name: &&str| extractor.config.form.contains_key(*name);
    names.into_iter().filter(is_given).map(|name| format!("config.form: kb itself sets \"{name}\"")).collect()
}

/// The provider with this name, if it has an API for this kind of service.
pub fn find(kind: ServiceKind, name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().copied().find(|provider| provider.name == name && provider.offers(kind))
}

/// The same with one of its APIs. Returns an error if there is no such provider.
pub fn with_api<A>(
    kind: ServiceKind,
    name: &str,
    api: impl FnOnce(&'static Provider) -> Option<A>,
) -> KbResult<(&'static Provider, A)> {
    let found = find(kind, name).and_then(|provider| Some((provider, api(provider)?)));
    found.ok_or_else(|| unavailable(kind, name))
}

/// The names of the providers with an API for this kind of service.
pub fn names(kind: ServiceKind) -> Vec<&'static str> {
    PROVIDERS.iter().copied().filter(|provider| provider.offers(kind)).map(|provider| provider.name).collect()
}

/// The same after the names of providers inside the server, which need no connection.
pub fn all_names(kind: ServiceKind) -> Vec<&'static str> {
    let in_server: &[&str] = match kind {
        ServiceKind::Embedder => &["local", "hash"],
        ServiceKind::Reranker => &["local", "llm"],
        ServiceKind::Llm | ServiceKind::Extractor => &[],
    };
    [in_server, &names(kind)].concat()
}

/// The error for an unknown provider.
pub fn unavailable(kind: ServiceKind, name: &str) -> Error {
    let said = |name: &str| match find(kind, name).and_then(|provider| provider.remark) {
        Some(remark) => format!("{name} ({remark})"),
        None => name.to_string(),
    };
    let mut all: Vec<String> = all_names(kind).into_iter().map(said).collect();
    let last = all.pop().unwrap_or_default();
    let available = format!("{} and {last}", all.join(", "));
    Error::ProviderUnavailable { provider: name.to_string(), available }
}

/// The URL, from the embedder's own base_url and path or the defaults.
fn url(embedder: &Embedder, default_base: &str, default_path: &str) -> String {
    let base = embedder.base_url.as_deref().unwrap_or(default_base).trim_end_matches('/');
    let path = embedder.config.remote.path.as_deref().unwrap_or(default_path);
    format!("{base}{path}")
}

/// The provider's name for this kind of text, from the config or by default.
fn task<'a>(embedder: &'a Embedder, kind: Kind, document: &'a str, query: &'a str) -> &'a str {
    let remote = &embedder.config.remote;
    match kind {
        Kind::Document => remote.document_task.as_deref().unwrap_or(document),
        Kind::Query => remote.query_task.as_deref().unwrap_or(query),
    }
}

#[cfg(test)]
mod tests;
