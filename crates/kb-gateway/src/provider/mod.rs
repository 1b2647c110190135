//! The dialects of hosted and self-hosted providers: how a batch of texts becomes an HTTP request, and
//! how vectors are read from its answer. Nothing here opens a connection.

mod azure_openai;
mod cohere;
mod gemini;
mod http;
mod huggingface;
mod jina;
mod mistral;
mod ollama;
mod openai;
mod read;
mod vertex;
mod voyage;

pub use super::endpoint::classify::Unusable;
pub use super::endpoint::transport::{Auth, HttpRequest};
pub use read::{in_order, parse, tokens};

use super::endpoint::classify;
use kb_types::{Embedder, Kind};

/// The vector of a text, or what is wrong with it; a text may get none though others do.
pub type Item = Result<Vec<f32>, Unusable>;
/// The vectors of texts, in their order.
pub type Answer = classify::Answer<Vec<Item>>;

/// A dialect.
pub trait Provider: Send + Sync {
    /// Where it is when base_url is not given; None: it must be given.
    fn base_url(&self) -> Option<&'static str>;
    /// The model and its dimension when none is given; None: it must be given.
    fn model(&self) -> Option<(&'static str, usize)>;
    fn auth(&self) -> Auth {
        Auth::Bearer
    }
    /// Whether it answers only requests with a key.
    fn needs_secret(&self) -> bool {
        true
    }
    /// Whether the embedder's row decides what is sent, so that a request may be one to any other service.
    fn is_free_form(&self) -> bool {
        false
    }
    /// Texts that it takes in one request at most.
    fn max_batch(&self, embedder: &Embedder) -> usize;
    /// Keys of `config` that mean something to it, beyond those that every remote provider has (limits,
    /// prefixes, path, headers).
    fn keys(&self) -> &'static [&'static str];
    /// What is wrong with an embedder of this provider, beyond what every provider's is checked for.
    fn problems(&self, _embedder: &Embedder) -> Vec<String> {
        Vec::new()
    }
    /// The request for these texts (prefixes already there, at least one and at most `max_batch`).
    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest;
    /// Reads the answer for `count` texts. The error says what is wrong with the whole of it, without
    /// repeating it.
    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable>;
}

/// Names of all remote providers.
pub const NAMES: [&str; 11] = [
    "openai",
    "azure_openai",
    "ollama",
    "huggingface",
    "gemini",
    "vertex",
    "cohere",
    "voyage",
    "jina",
    "mistral",
    "http",
];

/// The dialect of a provider's name.
pub fn find(name: &str) -> Option<&'static dyn Provider> {
    Some(match name {
        "openai" => &openai::OpenAi,
        "azure_openai" => &azure_openai::AzureOpenAi,
        "ollama" => &ollama::Ollama,
        "huggingface" => &huggingface::HuggingFace,
        "gemini" => &gemini::Gemini,
        "vertex" => &vertex::Vertex,
        "cohere" => &cohere::Cohere,
        "voyage" => &voyage::Voyage,
        "jina" => &jina::Jina,
        "mistral" => &mistral::Mistral,
        "http" => &http::Http,
        _ => return None,
    })
}

/// base_url and path in one: the embedder's own where it has them.
fn url(embedder: &Embedder, default_base: &str, default_path: &str) -> String {
    let base = embedder.base_url.as_deref().unwrap_or(default_base).trim_end_matches('/');
    let path = embedder.config.remote.path.as_deref().unwrap_or(default_path);
    format!("{base}{path}")
}

/// What the provider calls this kind of text: the config's word, else the dialect's.
fn task<'a>(embedder: &'a Embedder, kind: Kind, document: &'a str, query: &'a str) -> &'a str {
    let remote = &embedder.config.remote;
    match kind {
        Kind::Document => remote.document_task.as_deref().unwrap_or(document),
        Kind::Query => remote.query_task.as_deref().unwrap_or(query),
    }
}

#[cfg(test)]
mod tests;
