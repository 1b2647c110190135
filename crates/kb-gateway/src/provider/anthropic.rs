//! Anthropic's Messages API. <https://platform.claude.com/docs/en/api/messages>

use super::openai::host_and_path;
use super::{
    Address, Answer, Auth, ChatApi, Provider, Unusable, max_output_tokens, messages, read, temperature,
};
use kb_types::{ChatReply, Dialogue, FinishReason, Llm, LlmConfig};
use serde::Deserialize;
use serde_json::{Value, json};

const VERSION: &str = "2023-06-01";
/// The most tokens of a reply where nothing else is said, because the API wants a number. Every model can
/// write as many.
const MAX_TOKENS: u32 = 4096;

pub const PROVIDER: Provider = Provider {
    name: "anthropic",
    address: Address::Default("https://api.anthropic.com/v1"),
    auth: Auth::Header("x-api-key"),
    chat: Some(&Anthropic),
    ..Provider::DEFAULT
};

struct Anthropic;

#[derive(Deserialize)]
struct Written {
    content: Vec<Block>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Value,
}

/// A block of another type than text, such as a thought, is not the answer.
#[derive(Deserialize)]
struct Block {
    r#type: String,
    #[serde(default)]
    text: String,
}

impl ChatApi for Anthropic {
    /// None, because Anthropic's models are retired after a year or two.
    fn model(&self) -> Option<&'static str> {
        None
    }

    /// base_url is accepted with /v1 and without, as in Anthropic's own clients.
    fn path(&self, base_url: &str, _model: &str) -> String {
        let version = if host_and_path(base_url).1.is_empty() { "/v1" } else { "" };
        format!("{version}/messages")
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        vec![("anthropic-version", VERSION.into())]
    }

    fn problems(&self, config: &LlmConfig) -> Vec<String> {
        match config.temperature_millis {
            Some(1001..) => vec!["config.temperature: provider anthropic allows at most 1".into()],
            _ => Vec::new(),
        }
    }

    fn body(&self, llm: &Llm, dialogue: &Dialogue) -> Value {
        let mut body = json!({
            "model": llm.model,
            "max_tokens": max_output_tokens(llm, dialogue).unwrap_or(MAX_TOKENS),
            "system": dialogue.system,
            "messages": messages(dialogue),
        });
        if let Some(temperature) = temperature(llm) {
            body["temperature"] = json!(temperature);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<ChatReply>, Unusable> {
        let Written { content, stop_reason, usage } = read::parse(body)?;
        let finish = match stop_reason.as_deref() {
            None | Some("end_turn" | "stop_sequence") => FinishReason::Stop,
            Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
            Some("refusal") => FinishReason::ContentFilter,
            Some("tool_use") => FinishReason::ToolCalls,
            Some(_) => FinishReason::Other,
        };
        let input_tokens =
            read::sum(&usage, &["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]);
        let output_tokens = read::tokens(&usage, &["output_tokens"]);
        let tokens = input_tokens.map(|tokens| tokens.saturating_add(output_tokens.unwrap_or(0)));
        let texts = content.into_iter().filter(|block| block.r#type == "text").map(|block| block.text);
        let value = ChatReply { text: texts.collect(), finish, input_tokens, output_tokens };
        Ok(Answer { value, tokens })
    }
}
