//! A chat model, which answers instructions in text.

use super::reranker::check_size;
use crate::json_reader::Fields;
use crate::remote_settings::Remote;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The validated `config` of a chat model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct LlmConfig {
    /// `temperature` in thousandths. None sends no temperature, because some models refuse it.
    pub temperature_millis: Option<u32>,
    /// The most tokens of an answer. None leaves the limit to the provider.
    pub max_output_tokens: Option<u32>,
    pub remote: Remote,
}

impl LlmConfig {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        check_size(&mut fields, value);
        let config = LlmConfig {
            temperature_millis: fields.number("temperature", 0.0, 2.0).map(|t| (t * 1000.0).round() as u32),
            max_output_tokens: fields.integer("max_output_tokens", 1, 1_000_000).map(|n| n as u32),
            remote: Remote::parse(&mut fields),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// A row of kb.llms, as sent to the gateway with every request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Llm {
    pub id: String,
    pub provider: String,
    pub model: String,
    /// The provider's address. None means its default address.
    pub base_url: Option<String>,
    pub config: LlmConfig,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn config_reports_every_problem() {
        let config = json!({"temperature": 3, "max_output_tokens": 0, "batch_size": 1});
        assert_eq!(LlmConfig::parse(&config).unwrap_err().len(), 3);
        let read = LlmConfig::parse(&json!({"temperature": 0.25, "tpm": 9})).unwrap();
        assert_eq!((read.temperature_millis, read.remote.tpm), (Some(250), Some(9)));
    }
}
