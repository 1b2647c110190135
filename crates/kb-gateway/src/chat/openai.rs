//! OpenAI, and every server that speaks its chat API.
//! <https://platform.openai.com/docs/api-reference/chat/create>

use super::super::provider::{parse, tokens};
use super::{Answer, Dialect, Prompt, Unusable};
use kb_types::Llm;
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.openai.com/v1";

pub struct OpenAi;

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    /// Some gateways report an error here.
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

impl Dialect for OpenAi {
    fn base_url(&self) -> &'static str {
        BASE
    }

    fn model(&self) -> Option<&'static str> {
        Some("gpt-4o-mini")
    }

    fn needs_secret(&self) -> bool {
        true
    }

    /// base_url is accepted with /v1, as in OpenAI's own clients, and without.
    fn path(&self, base_url: &str) -> &'static str {
        let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
        match rest.split_once('/').is_some_and(|(_, path)| !path.trim_matches('/').is_empty()) {
            true => "/chat/completions",
            false => "/v1/chat/completions",
        }
    }

    fn body(&self, llm: &Llm, prompt: &Prompt) -> Value {
        let mut body = json!({
            "model": llm.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "stream": false,
        });
        if let Some(millis) = llm.config.temperature_millis {
            body["temperature"] = json!(f64::from(millis) / 1000.0);
        }
        // OpenAI's newer models refuse max_tokens, but other servers know only that.
        if let Some(most) = llm.config.max_output_tokens {
            let is_own = llm.base_url.as_deref().is_none_or(|base| base.contains("://api.openai.com"));
            body[if is_own { "max_completion_tokens" } else { "max_tokens" }] = json!(most);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<String>, Unusable> {
        let Completion { choices, usage } = parse(body)?;
        let choice = choices.into_iter().next();
        let choice = choice.ok_or_else(|| Unusable::Unreadable("the answer has no message".to_string()))?;
        if !choice.error.is_null() {
            return Err(Unusable::Unreadable("the answer is an error".to_string()));
        }
        // A model that used all its tokens for reasoning returns no text, but is paid for.
        let value = choice.message.content.unwrap_or_default();
        Ok(Answer { value, tokens: tokens(&usage, &["total_tokens"]) })
    }
}
