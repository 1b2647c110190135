//! The embedding APIs of hosted and self-hosted providers: how a batch of texts is written as an HTTP
//! request, and how vectors are read from the reply. Nothing here opens a connection.

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

/// The vector of a text, or its error. A text may fail while others succeed.
pub type Item = Result<Vec<f32>, Unusable>;
/// The vectors of texts, in order.
pub type Answer = classify::Answer<Vec<Item>>;

/// The embedding API of a provider.
pub trait Provider: Send + Sync {
    /// The default base_url. None if it must be given.
    fn base_url(&self) -> Option<&'static str>;
    /// The default model and its dimension. None if a model must be given.
    fn model(&self) -> Option<(&'static str, usize)>;
    fn auth(&self) -> Auth {
        Auth::Bearer
    }
    /// Whether requests need a key.
    fn needs_secret(&self) -> bool {
        true
    }
    /// Whether the embedder's row decides what is sent, so that a request could address any other service.
    fn is_free_form(&self) -> bool {
        false
    }
    /// The most texts of a request.
    fn max_batch(&self, embedder: &Embedder) -> usize;
    /// The keys of `config` that this provider uses besides those of every remote provider (limits, prefixes,
    /// path, headers).
    fn keys(&self) -> &'static [&'static str];
    /// The problems of an embedder that are specific to this provider.
    fn problems(&self, _embedder: &Embedder) -> Vec<String> {
        Vec::new()
    }
    /// The request for from one to `max_batch` texts, which already have their prefixes.
    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest;
    /// Reads the reply for `count` texts. The error describes a fault of the whole reply without repeating
    /// it.
    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable>;
}

/// The names of all remote providers.
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

/// The provider with this name.
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
