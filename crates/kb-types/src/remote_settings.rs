//! The part of an embedder's `config` that only a provider reached over HTTP has.

use super::url_path;
use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How often a request is retried before the document goes back to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    /// The most requests for one batch, the first one included.
    pub max_attempts: u32,
    /// Milliseconds before the second request. The wait doubles with each request and has jitter.
    pub base_ms: u64,
    /// The most milliseconds between two requests.
    pub max_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max_attempts: 3, base_ms: 250, max_ms: 8_000 }
    }
}

/// How vectors are encoded in a response: as JSON numbers, or as little-endian f32 in base64, which takes a
/// quarter of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncodingFormat {
    Float,
    Base64,
}

crate::named!(EncodingFormat { Float => "float", Base64 => "base64" });

/// Limits, addresses and dialect of a remote provider. None means that a setting was not given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Remote {
    /// The most tokens of all texts in one request.
    pub max_batch_tokens: Option<usize>,
    /// Whether line breaks are replaced by spaces in what is sent.
    pub strip_newlines: bool,
    /// Is sent as the provider's parameter of that name, which requests shorter vectors.
    pub dimensions: Option<usize>,
    /// The timeout of one request in milliseconds, connecting included.
    pub timeout_ms: u64,
    pub retry: Retry,
    /// Requests a minute.
    pub rpm: Option<u32>,
    /// Tokens a minute.
    pub tpm: Option<u32>,
    /// Tokens a day (UTC). When they are used up, the embedder pauses until the next day.
    pub daily_token_budget: Option<u64>,
    /// The part of daily_token_budget, in millionths, that one tenant may use. None allows all of it.
    pub tenant_share: Option<u32>,
    /// `price_per_million_tokens` in millionths of the currency unit.
    pub price_micros: Option<u64>,
    /// How many requests may be in flight at the same time.
    pub max_concurrency: usize,
    /// Replaces the provider's own path behind base_url.
    pub path: Option<String>,
    /// Additional headers, from [`HEADERS`]. None of them carries a credential.
    pub headers: BTreeMap<String, String>,
    pub encoding_format: Option<EncodingFormat>,
    /// Azure's api-version.
    pub api_version: Option<String>,
    /// The provider's name for the kind of a text (task type, input_type, task), where the default is not
    /// right.
    pub document_task: Option<String>,
    pub query_task: Option<String>,
    /// Provider `http`: method, and a body in which the string "{{texts}}" stands for the array of
    /// texts, "{{text}}" for the one text (then a request has one), "{{model}}", "{{dimension}}" and
    /// "{{task}}" for those; kept as JSON text.
    pub method: Option<String>,
    pub body: Option<String>,
    /// Provider `http`: JSON pointer (RFC 6901) to the array of items, to the vector in each item
    /// ('' when the item is the vector), and to the number of tokens.
    pub items_pointer: Option<String>,
    pub vector_pointer: Option<String>,
    pub tokens_pointer: Option<String>,
}

impl Default for Remote {
    fn default() -> Self {
        Remote {
            max_batch_tokens: None,
            strip_newlines: false,
            dimensions: None,
            timeout_ms: 60_000,
            retry: Retry::default(),
            rpm: None,
            tpm: None,
            daily_token_budget: None,
            tenant_share: None,
            price_micros: None,
            max_concurrency: 8,
            path: None,
            headers: BTreeMap::new(),
            encoding_format: None,
            api_version: None,
            document_task: None,
            query_task: None,
            method: None,
            body: None,
            items_pointer: None,
            vector_pointer: None,
            tokens_pointer: None,
        }
    }
}

const MILLION: f64 = 1e6;

/// The headers that `headers` accepts: those that providers document for attributing, billing, routing or
/// tracing requests, and for languages and ways of OCR. Any other header might carry a credential, which only
/// `secret` may provide, or break the request.
const HEADERS: [&str; 22] = [
    "Accept",
    "API-Version",
    "HTTP-Referer",
    "OpenAI-Organization",
    "OpenAI-Project",
    "Traceparent",
    "Tracestate",
    "User-Agent",
    "X-Client-Name",
    "X-Client-Request-Id",
    "X-Goog-User-Project",
    "X-HF-Bill-To",
    "X-MS-Client-Request-Id",
    "X-OpenRouter-Categories",
    "X-OpenRouter-Title",
    "X-Request-Id",
    "X-Request-Source",
    "X-Tika-OCRLanguage",
    "X-Tika-PDFOcrStrategy",
    "X-Title",
    "X-Use-Cache",
    "X-Wait-For-Model",
];

impl Remote {
    /// Reads its keys of `config`.
    pub fn parse(fields: &mut Fields) -> Remote {
        let default = Remote::default();
        let unsigned = |n: i64| u64::try_from(n).unwrap_or(0);
        let remote = Remote {
            max_batch_tokens: fields.integer("max_batch_tokens", 1, 100_000_000).map(|n| n as usize),
            strip_newlines: fields.boolean("strip_newlines").unwrap_or(false),
            dimensions: fields.integer("dimensions", 1, 16_000).map(|n| n as usize),
            timeout_ms: fields.integer("timeout_ms", 1, 3_600_000).map_or(default.timeout_ms, unsigned),
            retry: parse_retry(fields),
            rpm: fields.integer("rpm", 1, 10_000_000).map(|n| n as u32),
            tpm: fields.integer("tpm", 1, 4_000_000_000).map(|n| n as u32),
            daily_token_budget: fields.integer("daily_token_budget", 0, i64::MAX).map(unsigned),
            tenant_share: fields
                .number("tenant_share", 1.0 / MILLION, 1.0)
                .map(|share| (share * MILLION).round() as u32),
            price_micros: fields
                .number("price_per_million_tokens", 0.0, 1_000_000.0)
                .map(|price| (price * 1e6).round() as u64),
            max_concurrency: fields
                .integer("max_concurrency", 1, 256)
                .map_or(default.max_concurrency, |n| n as usize),
            path: fields.text("path").filter(|path| check_path(fields, path)),
            headers: parse_headers(fields),
            encoding_format: fields.named("encoding_format"),
            api_version: fields.text("api_version").filter(|version| check_version(fields, version)),
            document_task: fields.text("document_task"),
            query_task: fields.text("query_task"),
            method: fields.text("method"),
            body: fields.object("body").map(|body| body.to_string()),
            items_pointer: fields.pointer("items_pointer"),
            vector_pointer: fields.pointer("vector_pointer"),
            tokens_pointer: fields.pointer("tokens_pointer"),
        };
        if remote.tenant_share.is_some() && remote.daily_token_budget.is_none() {
            fields.problem("tenant_share", format_args!("requires a daily_token_budget"));
        }
        remote
    }

    /// The tokens that one tenant may use in a day, where that is less than the whole budget.
    pub fn tenant_budget(&self) -> Option<u64> {
        let (budget, share) = (self.daily_token_budget?, self.tenant_share?);
        Some((u128::from(budget) * u128::from(share) / MILLION as u128) as u64)
    }

    /// For the fingerprint: the settings that change what a vector means. Empty where all have their
    /// defaults.
    pub(super) fn meaning(&self) -> String {
        let default = Remote::default();
        let mut parts = Vec::new();
        let mut add = |name: &str, is_default: bool, value: String| {
            if !is_default {
                parts.push(format!("{name}={value}"));
            }
        };
        add("strip_newlines", !self.strip_newlines, String::new());
        add("dimensions", self.dimensions.is_none(), format!("{:?}", self.dimensions));
        add("document_task", self.document_task.is_none(), format!("{:?}", self.document_task));
        add("query_task", self.query_task.is_none(), format!("{:?}", self.query_task));
        add("body", self.body == default.body, format!("{:?}", self.body));
        add("items", self.items_pointer.is_none(), format!("{:?}", self.items_pointer));
        add("vector", self.vector_pointer.is_none(), format!("{:?}", self.vector_pointer));
        parts.join("\n")
    }
}

fn check_path(fields: &mut Fields, path: &str) -> bool {
    let problem = url_path::path_problem(path);
    if let Some(problem) = &problem {
        fields.problem("path", format_args!("{problem}"));
    }
    problem.is_none()
}

/// Checks api_version, which becomes part of the URL's query.
fn check_version(fields: &mut Fields, version: &str) -> bool {
    let fine = version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !fine {
        fields.problem("api_version", format_args!("must contain only letters, digits, -, . and _"));
    }
    fine
}

fn parse_retry(fields: &mut Fields) -> Retry {
    let default = Retry::default();
    let Some(value) = fields.object("retry") else { return default };
    let mut inner = Fields::new("config.retry", &value);
    let retry = Retry {
        max_attempts: inner.integer("max_attempts", 1, 100).map_or(default.max_attempts, |n| n as u32),
        base_ms: inner.integer("base_ms", 1, 600_000).map_or(default.base_ms, |n| n as u64),
        max_ms: inner.integer("max_ms", 1, 600_000).map_or(default.max_ms, |n| n as u64),
    };
    fields.problems.extend(inner.finish());
    retry
}

fn parse_headers(fields: &mut Fields) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let Some(Value::Object(given)) = fields.object("headers") else { return headers };
    for (name, value) in given {
        let is_allowed = HEADERS.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name));
        match value {
            // The message does not repeat the value, which may be a secret key.
            _ if !is_allowed => fields.problem(
                "headers",
                format_args!(
                    "\"{name}\" is not allowed: a credential belongs in secret, as a reference such as env:NAME; \
                     allowed are {}",
                    HEADERS.join(", ")
                ),
            ),
            Value::String(text) if text.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) => {
                headers.insert(name, text);
            }
            _ => fields.problem(
                "headers",
                format_args!("the value of \"{name}\" must be a string of printable ASCII"),
            ),
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<Remote, Vec<String>> {
        let mut fields = Fields::new("config", &value);
        let remote = Remote::parse(&mut fields);
        let problems = fields.finish();
        if problems.is_empty() { Ok(remote) } else { Err(problems) }
    }

    #[test]
    fn only_listed_headers_are_accepted_and_no_other_headers_value_is_repeated() {
        for name in [
            "Authorization",
            "X-Vault-Token",
            "Private-Token",
            "X-Api-Key",
            "X-Amz-Security-Token",
            "Cookie",
            "Host",
            "Content-Length",
            "X-Anything",
            "",
        ] {
            let problems = parse(json!({"headers": {name: "sk-123"}})).unwrap_err();
            assert!(problems[0].contains("OpenAI-Organization"), "{problems:?}");
            assert!(problems[0].contains("secret"), "{problems:?}");
            assert!(!problems[0].contains("sk-123"), "{problems:?}");
        }
        for name in HEADERS.iter().flat_map(|name| [name.to_string(), name.to_ascii_lowercase()]) {
            let remote = parse(json!({"headers": {name.clone(): "a"}})).unwrap();
            assert_eq!(remote.headers.get(&name).map(String::as_str), Some("a"));
        }
    }

    #[test]
    fn every_problem_is_reported_and_retry_has_no_unknown_keys() {
        let problems = parse(json!({
            "rpm": 0, "retry": {"times": 3}, "path": "v1", "items_pointer": "data", "speed": 9,
            "headers": {"Host": "x", "X-Title": "a\nb"}
        }))
        .unwrap_err();
        assert_eq!(problems.len(), 7, "{problems:?}");
    }

    #[test]
    fn no_path_or_version_leads_out_of_what_base_url_names() {
        for config in [
            json!({"path": "/../admin"}),
            json!({"path": "/v1/%2e%2e/admin"}),
            json!({"path": "/a?b=c"}),
            json!({"path": "https://evil.example"}),
            json!({"api_version": "1&a=b"}),
            json!({"api_version": "1#"}),
        ] {
            assert_eq!(parse(config.clone()).unwrap_err().len(), 1, "{config}");
        }
        let read = parse(json!({"path": "/embed", "api_version": "2025-01-01-preview"})).unwrap();
        assert_eq!(
            (read.path.as_deref(), read.api_version.as_deref()),
            (Some("/embed"), Some("2025-01-01-preview"))
        );
    }

    #[test]
    fn a_tenants_share_is_a_part_of_a_budget() {
        let shared = parse(json!({"daily_token_budget": 1000, "tenant_share": 0.25})).unwrap();
        assert_eq!((shared.tenant_budget(), shared.meaning().as_str()), (Some(250), ""));
        assert_eq!(parse(json!({"daily_token_budget": 1000})).unwrap().tenant_budget(), None);
        for share in [json!(0), json!(1.5), json!(-1), json!("half")] {
            assert!(parse(json!({"daily_token_budget": 9, "tenant_share": share})).is_err());
        }
        let problems = parse(json!({"tenant_share": 0.5})).unwrap_err();
        assert!(problems[0].contains("daily_token_budget"), "{problems:?}");
    }

    #[test]
    fn only_what_changes_a_vector_is_in_its_meaning() {
        let limits =
            parse(json!({"rpm": 10, "timeout_ms": 5, "headers": {"X-Title": "b"}, "path": "/x"})).unwrap();
        assert_eq!(limits.meaning(), "");
        let stripped = parse(json!({"strip_newlines": true})).unwrap();
        let tasks = parse(json!({"query_task": "a"})).unwrap();
        let swapped = parse(json!({"document_task": "a"})).unwrap();
        assert_ne!(stripped.meaning(), "");
        assert_ne!(tasks.meaning(), swapped.meaning());
    }
}
