//! The dialects: the path of each, how it receives the key, and the form of its errors.

use serde_json::{Value, json};
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    AzureOpenAi,
    Ollama,
    HuggingFace,
    Gemini,
    Vertex,
    Cohere,
    Voyage,
    Jina,
    Mistral,
    Http,
    CohereRerank,
    JinaRerank,
    VoyageRerank,
    TeiRerank,
    OpenAiChat,
    OllamaChat,
    AnthropicChat,
    GeminiChat,
}

/// Each under the name of its provider, which is the first part of every path at the stub.
const NAMES: [(&str, Dialect); 19] = [
    ("openai", Dialect::OpenAi),
    ("azure_openai", Dialect::AzureOpenAi),
    ("ollama", Dialect::Ollama),
    ("huggingface", Dialect::HuggingFace),
    ("gemini", Dialect::Gemini),
    ("vertex", Dialect::Vertex),
    ("cohere", Dialect::Cohere),
    ("voyage", Dialect::Voyage),
    ("jina", Dialect::Jina),
    ("mistral", Dialect::Mistral),
    ("http", Dialect::Http),
    ("rerank_cohere", Dialect::CohereRerank),
    ("rerank_jina", Dialect::JinaRerank),
    ("rerank_voyage", Dialect::VoyageRerank),
    ("rerank_tei", Dialect::TeiRerank),
    ("chat_openai", Dialect::OpenAiChat),
    ("chat_ollama", Dialect::OllamaChat),
    ("chat_anthropic", Dialect::AnthropicChat),
    ("chat_gemini", Dialect::GeminiChat),
];

/// Headers that can carry a key; in lower case, as HTTP/2 has them.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];

/// The one path of a dialect.
struct Route {
    path: &'static str,
    /// What follows the model, which follows `path`. None: `path` is the whole path.
    behind_model: Option<&'static str>,
    query: Option<&'static str>,
}

impl Dialect {
    pub fn find(name: &str) -> Option<Dialect> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, dialect)| *dialect)
    }

    /// The part of a base_url after the stub's URL and the provider's name.
    pub fn base(self) -> &'static str {
        match self {
            Dialect::OpenAi | Dialect::Voyage | Dialect::Jina | Dialect::Mistral => "/v1",
            Dialect::JinaRerank | Dialect::VoyageRerank => "/v1",
            Dialect::OpenAiChat | Dialect::AnthropicChat => "/v1",
            Dialect::CohereRerank | Dialect::TeiRerank | Dialect::OllamaChat => "",
            Dialect::AzureOpenAi => "/openai/deployments/dep",
            Dialect::Gemini | Dialect::GeminiChat => "/v1beta",
            Dialect::Vertex => "/v1/projects/p/locations/l/publishers/google/models",
            Dialect::Ollama | Dialect::HuggingFace | Dialect::Cohere | Dialect::Http => "",
        }
    }

    fn route(self) -> Route {
        let plain = |path| Route { path, behind_model: None, query: None };
        match self {
            Dialect::OpenAi | Dialect::Voyage | Dialect::Jina | Dialect::Mistral => plain("/v1/embeddings"),
            Dialect::AzureOpenAi => Route {
                path: "/openai/deployments/dep/embeddings",
                behind_model: None,
                query: Some("api-version=2024-10-21"),
            },
            Dialect::Ollama => plain("/api/embed"),
            Dialect::HuggingFace => plain("/embed"),
            Dialect::Gemini => {
                Route { path: "/v1beta/models/", behind_model: Some(":batchEmbedContents"), query: None }
            }
            Dialect::Vertex => Route {
                path: "/v1/projects/p/locations/l/publishers/google/models/",
                behind_model: Some(":predict"),
                query: None,
            },
            Dialect::Cohere => plain("/v2/embed"),
            Dialect::Http => plain("/vectorise"),
            Dialect::CohereRerank => plain("/v2/rerank"),
            Dialect::JinaRerank | Dialect::VoyageRerank => plain("/v1/rerank"),
            Dialect::TeiRerank => plain("/rerank"),
            Dialect::OpenAiChat => plain("/v1/chat/completions"),
            Dialect::OllamaChat => plain("/api/chat"),
            Dialect::AnthropicChat => plain("/v1/messages"),
            Dialect::GeminiChat => {
                Route { path: "/v1beta/models/", behind_model: Some(":generateContent"), query: None }
            }
        }
    }

    /// Whether it scores texts.
    pub fn is_rerank(self) -> bool {
        matches!(
            self,
            Dialect::CohereRerank | Dialect::JinaRerank | Dialect::VoyageRerank | Dialect::TeiRerank
        )
    }

    /// Whether it answers in words.
    pub fn is_chat(self) -> bool {
        matches!(
            self,
            Dialect::OpenAiChat | Dialect::OllamaChat | Dialect::AnthropicChat | Dialect::GeminiChat
        )
    }

    /// The model that the path names, or "" if this dialect's path names none. The error describes what is
    /// wrong with the path (without the provider's name) or the query.
    pub fn model_in_path<'a>(self, path: &'a str, query: Option<&str>) -> Result<&'a str, String> {
        let route = self.route();
        if query != route.query {
            return Err(format!("the query is {query:?}, not {:?}", route.query));
        }
        let model = match route.behind_model {
            None => (path == route.path).then_some(""),
            Some(end) => path
                .strip_prefix(route.path)
                .and_then(|rest| rest.strip_suffix(end))
                .filter(|model| !model.is_empty() && !model.contains('/')),
        };
        model.ok_or_else(|| {
            let end = route.behind_model.map(|end| format!("MODEL{end}")).unwrap_or_default();
            format!("the path is {path}, not {}{end}", route.path)
        })
    }

    /// What is wrong with the credential: it must be this key in this dialect's header, or none.
    pub fn credential_problem(self, headers: &HashMap<String, String>, key: Option<&str>) -> Option<String> {
        let (place, expected) = match self {
            Dialect::AzureOpenAi => ("api-key", key.map(str::to_string)),
            Dialect::Gemini | Dialect::GeminiChat => ("x-goog-api-key", key.map(str::to_string)),
            Dialect::AnthropicChat => ("x-api-key", key.map(str::to_string)),
            _ => ("authorization", key.map(|key| format!("Bearer {key}"))),
        };
        CREDENTIAL_HEADERS.iter().find_map(|name| {
            let found = headers.get(*name);
            let wanted = if *name == place { expected.as_ref() } else { None };
            (found != wanted).then(|| format!("the header {name} is {found:?}, not {wanted:?}"))
        })
    }

    /// What is wrong with other headers.
    pub fn header_problem(self, headers: &HashMap<String, String>) -> Option<String> {
        let version = headers.get("anthropic-version").map(String::as_str);
        let wanted = (self == Dialect::AnthropicChat).then_some("2023-06-01");
        (version != wanted).then(|| format!("the header anthropic-version is {version:?}, not {wanted:?}"))
    }

    /// The body of an error.
    pub fn error(self, status: u16, message: &str) -> Value {
        match self {
            Dialect::OpenAi | Dialect::OpenAiChat => json!({
                "error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}
            }),
            Dialect::AzureOpenAi => json!({"error": {"code": status.to_string(), "message": message}}),
            Dialect::Ollama | Dialect::OllamaChat => json!({"error": message}),
            Dialect::HuggingFace | Dialect::TeiRerank => {
                json!({"error": message, "error_type": "Validation"})
            }
            Dialect::AnthropicChat => {
                let kind = anthropic_kind(status);
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "stub"})
            }
            Dialect::Gemini | Dialect::GeminiChat | Dialect::Vertex => {
                json!({"error": {"code": status, "message": message, "status": google_status(status)}})
            }
            Dialect::Cohere | Dialect::CohereRerank => json!({"id": "stub", "message": message}),
            Dialect::Voyage | Dialect::Jina | Dialect::VoyageRerank | Dialect::JinaRerank => {
                json!({"detail": message})
            }
            Dialect::Mistral => json!({
                "object": "error", "message": message, "type": "invalid_request_error", "param": null,
                "code": status.to_string()
            }),
            Dialect::Http => json!({"problem": message}),
        }
    }
}

/// The credential that was sent, in whatever place, or "none".
pub fn credential(headers: &HashMap<String, String>) -> &str {
    let found = CREDENTIAL_HEADERS.iter().find_map(|name| headers.get(*name));
    found.map_or("none", |value| value.strip_prefix("Bearer ").unwrap_or(value))
}

fn anthropic_kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn google_status(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}
