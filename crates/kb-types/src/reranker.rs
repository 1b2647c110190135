//! A reranker: a model that scores how well each text answers a question.

use crate::json_reader::Fields;
use crate::remote_settings::Remote;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many characters of the question and of each text are sent to a model, unless the config says
/// otherwise. The rest is left out.
const MAX_CHARS: usize = 8_000;
/// The most bytes of a config as JSON, because it is sent to the gateway with every request.
pub(super) const MAX_CONFIG: usize = 64 * 1024;

/// How a chat model is asked for scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scoring {
    /// By one call for all texts.
    #[default]
    Batch,
    /// By one call for each text.
    Single,
}

crate::named!(Scoring { Batch => "batch", Single => "single" });

/// The validated `config` of a reranker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RerankerConfig {
    /// The most texts of one request. None leaves the limit to the provider.
    pub batch_size: Option<usize>,
    /// How many characters of the question and of each text are sent.
    pub max_chars: usize,
    /// For provider `local`: a lower limit than the model's own for the tokens of question and text together.
    pub max_input_tokens: Option<usize>,
    /// For provider `llm`: the id of the chat model.
    pub llm: Option<String>,
    pub scoring: Scoring,
    pub remote: Remote,
}

impl Default for RerankerConfig {
    fn default() -> Self {
        RerankerConfig {
            batch_size: None,
            max_chars: MAX_CHARS,
            max_input_tokens: None,
            llm: None,
            scoring: Scoring::Batch,
            remote: Remote::default(),
        }
    }
}

impl RerankerConfig {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        check_size(&mut fields, value);
        let config = RerankerConfig {
            batch_size: fields.integer("batch_size", 1, 4096).map(|n| n as usize),
            max_chars: fields.integer("max_chars", 1, 100_000).map_or(MAX_CHARS, |n| n as usize),
            max_input_tokens: fields.integer("max_input_tokens", 8, 1_000_000).map(|n| n as usize),
            llm: fields.text("llm"),
            scoring: fields.named("scoring").unwrap_or(Scoring::Batch),
            remote: Remote::parse(&mut fields),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

pub(super) fn check_size(fields: &mut Fields, value: &Value) {
    let size = value.to_string().len();
    if size > MAX_CONFIG {
        fields.problems.push(format!("config has {size} bytes as JSON; at most {MAX_CONFIG} are allowed"));
    }
}

/// A row of kb.rerankers, as sent to the gateway with every request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reranker {
    pub id: String,
    pub provider: String,
    /// For provider `local` a directory under kb.model_dir.
    pub model: String,
    /// The provider's address. None means its default address.
    pub base_url: Option<String>,
    pub config: RerankerConfig,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn config_reports_every_problem() {
        let config =
            json!({"batch_size": 0, "scoring": "fast", "temperature": 1, "max_chars": "x", "llm": 5});
        assert_eq!(RerankerConfig::parse(&config).unwrap_err().len(), 5);
        let problems = RerankerConfig::parse(&json!({"llm": "a".repeat(MAX_CONFIG)})).unwrap_err();
        assert!(problems[0].contains("65536"), "{problems:?}");
        let read = RerankerConfig::parse(&json!({"scoring": "single", "rpm": 5})).unwrap();
        assert_eq!((read.scoring, read.max_chars, read.remote.rpm), (Scoring::Single, 8_000, Some(5)));
    }
}
