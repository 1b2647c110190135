//! OpenAI, and every server that speaks its APIs.
//! <https://platform.openai.com/docs/api-reference/embeddings/create> and
//! <https://platform.openai.com/docs/api-reference/chat/create>

use super::{
    Address, Answer, ChatApi, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable,
    max_output_tokens, messages_with_system, read, temperature, url,
};
use kb_types::remote_settings::EncodingFormat;
use kb_types::{ChatReply, Dialogue, Embedder, FinishReason, Kind, Llm};
use serde::Deserialize;
use serde_json::{Value, json};

const BASE: &str = "https://api.openai.com/v1";

pub const PROVIDER: Provider = Provider {
    name: "openai",
    address: Address::Default(BASE),
    remark: Some("and whatever speaks its protocol, by base_url"),
    embed: Some(&OpenAi),
    chat: Some(&OpenAi),
    ..Provider::DEFAULT
};

struct OpenAi;

impl EmbedApi for OpenAi {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("text-embedding-3-small"),
            dimension: Some(1536),
            max_batch: 2048,
            keys: &["dimensions", "encoding_format"],
        }
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        let remote = &embedder.config.remote;
        let (host, base_path) = host_and_path(embedder.base_url.as_deref().unwrap_or(BASE));
        // Not all compatible servers support base64.
        let default_encoding =
            if host == "api.openai.com" { EncodingFormat::Base64 } else { EncodingFormat::Float };
        let mut body = json!({
            "model": embedder.model,
            "input": texts,
            "encoding_format": remote.encoding_format.unwrap_or(default_encoding),
        });
        if let Some(dimensions) = remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        // base_url is accepted with /v1, as in OpenAI's own clients, and without.
        let path = if base_path.is_empty() { "/v1/embeddings" } else { "/embeddings" };
        HttpRequest::post(url(embedder, BASE, path), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        read::openai(body, count)
    }
}

/// Splits "https://host:80/v1/" into "host:80" and "v1".
pub fn host_and_path(base: &str) -> (&str, &str) {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    (host, path.trim_matches('/'))
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
    /// Some gateways report an error here.
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    /// What the model says instead of an answer that it refuses.
    refusal: Option<String>,
}

impl ChatApi for OpenAi {
    fn model(&self) -> Option<&'static str> {
        Some("gpt-4o-mini")
    }

    /// As for embeddings, base_url is accepted with /v1 and without.
    fn path(&self, base_url: &str, _model: &str) -> String {
        let version = if host_and_path(base_url).1.is_empty() { "/v1" } else { "" };
        format!("{version}/chat/completions")
    }

    fn body(&self, llm: &Llm, dialogue: &Dialogue) -> Value {
        let messages = messages_with_system(dialogue);
        let mut body = json!({"model": llm.model, "messages": messages, "stream": false});
        if let Some(temperature) = temperature(llm) {
            body["temperature"] = json!(temperature);
        }
        // OpenAI's newer models refuse max_tokens, but other servers know only that.
        if let Some(most) = max_output_tokens(llm, dialogue) {
            let is_own = llm.base_url.as_deref().is_none_or(|base| base.contains("://api.openai.com"));
            body[if is_own { "max_completion_tokens" } else { "max_tokens" }] = json!(most);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<ChatReply>, Unusable> {
        let Completion { choices, usage } = read::parse(body)?;
        let choice = choices.into_iter().next();
        let choice = choice.ok_or_else(|| Unusable::Unreadable("the answer has no message".to_string()))?;
        if !choice.error.is_null() {
            return Err(Unusable::Unreadable("the answer is an error".to_string()));
        }
        let Message { content, refusal } = choice.message;
        let finish = match choice.finish_reason.as_deref() {
            _ if refusal.is_some() => FinishReason::ContentFilter,
            // Some servers give no reason.
            None | Some("stop" | "eos" | "end_turn") => FinishReason::Stop,
            Some("length" | "max_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            Some("tool_calls" | "function_call") => FinishReason::ToolCalls,
            Some(_) => FinishReason::Other,
        };
        let value = ChatReply {
            // A model that used all its tokens for reasoning returns no text, but is paid for.
            text: content.or(refusal).unwrap_or_default(),
            finish,
            input_tokens: read::tokens(&usage, &["prompt_tokens"]),
            output_tokens: read::tokens(&usage, &["completion_tokens"]),
        };
        Ok(Answer { value, tokens: read::tokens(&usage, &["total_tokens"]) })
    }
}
