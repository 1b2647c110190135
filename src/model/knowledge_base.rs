//! A knowledge base's settings: what is done to a document before it is cut, and how it is searched.

use super::fields::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What happens to documents and chunks before they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preprocess {
    /// The same text is embedded once and answered once; the answer's locator names every place.
    pub dedupe: bool,
    /// HTML becomes Markdown, without script and style; false keeps the source as it is.
    pub remove_html: bool,
    /// Text search configuration for keywords.
    pub language: String,
}

impl Default for Preprocess {
    fn default() -> Self {
        Preprocess { dedupe: true, remove_html: true, language: "simple".into() }
    }
}

impl Preprocess {
    /// Errors are the complete list of problems.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("preprocess", value);
        let preprocess = Preprocess {
            dedupe: fields.boolean("dedupe").unwrap_or(true),
            remove_html: fields.boolean("remove_html").unwrap_or(true),
            language: fields.text("language").unwrap_or_else(|| "simple".into()),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(preprocess) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

/// Defaults of kb.query on this knowledge base; each can be overridden by the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retrieval {
    /// Rows at most.
    pub top_k: usize,
    /// Least similarity of a row.
    pub min_score: f64,
    /// Tokens at most of all rows together; None: no bound.
    pub max_tokens: Option<usize>,
    /// HNSW candidates looked at; None: from top_k.
    pub ef_search: Option<usize>,
    /// What a query does when its embedder fails.
    pub on_error: OnError,
    /// The keys that metadata and filters may have; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_metadata_keys: Vec<String>,
}

/// What a query does when its embedder fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It fails, too.
    #[default]
    Error,
    /// It answers by keywords, and marks the rows.
    Keyword,
}

impl OnError {
    pub fn parse(word: &str) -> Option<OnError> {
        match word {
            "error" => Some(OnError::Error),
            "keyword" => Some(OnError::Keyword),
            _ => None,
        }
    }
}

impl Default for Retrieval {
    fn default() -> Self {
        Retrieval {
            top_k: 5,
            min_score: 0.0,
            max_tokens: None,
            ef_search: None,
            on_error: OnError::Error,
            allowed_metadata_keys: Vec::new(),
        }
    }
}

/// Rows at most that one query may ask for.
pub const MAX_TOP_K: i64 = 10_000;

/// Keys of metadata at most that a knowledge base can be bound to.
const MAX_ALLOWED_KEYS: usize = 1000;

impl Retrieval {
    /// What is wrong with keys of metadata, if not all are allowed.
    pub fn key_problem<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let allowed = &self.allowed_metadata_keys;
        let is_allowed = |key: &str| allowed.is_empty() || allowed.iter().any(|allowed| allowed == key);
        let wrong = keys.into_iter().find(|key| !is_allowed(key))?;
        Some(format!("metadata key \"{wrong}\" is not allowed; allowed are {}", allowed.join(", ")))
    }

    /// Errors are the complete list of problems.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("retrieval", value);
        let default = Retrieval::default();
        let retrieval = Retrieval {
            top_k: fields.integer("top_k", 1, MAX_TOP_K).map_or(default.top_k, |n| n as usize),
            min_score: fields.number("min_score", -1e6, 1e6).unwrap_or(default.min_score),
            max_tokens: fields.integer("max_tokens", 1, i64::MAX).map(|n| n as usize),
            ef_search: fields.integer("ef_search", 1, 1000).map(|n| n as usize),
            on_error: fields.text("on_error").map_or(default.on_error, |word| {
                OnError::parse(&word).unwrap_or_else(|| {
                    fields.problem("on_error", format_args!("\"{word}\" is not one of error, keyword"));
                    default.on_error
                })
            }),
            allowed_metadata_keys: fields.texts("allowed_metadata_keys").unwrap_or_default(),
        };
        if retrieval.allowed_metadata_keys.len() > MAX_ALLOWED_KEYS {
            fields.problem("allowed_metadata_keys", format_args!("at most {MAX_ALLOWED_KEYS} are taken"));
        }
        let problems = fields.finish();
        if problems.is_empty() { Ok(retrieval) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_read_back_the_same() {
        let retrieval = Retrieval::parse(&json!({"top_k": 8, "min_score": 0.1})).unwrap();
        assert_eq!(Retrieval::parse(&retrieval.to_json()).unwrap(), retrieval);
        let preprocess = Preprocess::parse(&json!({"dedupe": false})).unwrap();
        assert_eq!(Preprocess::parse(&preprocess.to_json()).unwrap(), preprocess);
    }

    #[test]
    fn keys_are_bound_only_where_some_are_named() {
        let bound = Retrieval::parse(&json!({"allowed_metadata_keys": ["a", "b"]})).unwrap();
        assert_eq!(Retrieval::parse(&bound.to_json()).unwrap(), bound);
        assert_eq!(bound.key_problem(["b", "a"]), None);
        assert!(bound.key_problem(["a", "c"]).is_some_and(|p| p.contains("\"c\"") && p.contains("a, b")));
        assert_eq!(Retrieval::default().key_problem(["c"]), None);
        assert!(Retrieval::parse(&json!({"allowed_metadata_keys": "a"})).is_err());
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(Retrieval::parse(&json!({"top_k": 0, "ef_search": 1001, "x": 1})).unwrap_err().len(), 3);
    }
}
