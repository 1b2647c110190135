//! Ollama's own API. <https://docs.ollama.com/api/chat>

use super::super::provider::{parse, tokens};
use super::{Answer, Dialect, Prompt, Unusable};
use kb_types::Llm;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const BASE: &str = "http://localhost:11434";

pub struct Ollama;

#[derive(Deserialize)]
struct Reply {
    message: Message,
    #[serde(flatten)]
    usage: Value,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}

impl Dialect for Ollama {
    fn base_url(&self) -> &'static str {
        BASE
    }

    fn model(&self) -> Option<&'static str> {
        None
    }

    fn needs_secret(&self) -> bool {
        false
    }

    fn path(&self, _base_url: &str) -> &'static str {
        "/api/chat"
    }

    fn body(&self, llm: &Llm, prompt: &Prompt) -> Value {
        let mut body = json!({
            "model": llm.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            // The default is to stream.
            "stream": false,
        });
        let mut options = Map::new();
        if let Some(millis) = llm.config.temperature_millis {
            options.insert("temperature".into(), json!(f64::from(millis) / 1000.0));
        }
        if let Some(most) = llm.config.max_output_tokens {
            options.insert("num_predict".into(), json!(most));
        }
        if !options.is_empty() {
            body["options"] = Value::Object(options);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<String>, Unusable> {
        let Reply { message, usage } = parse(body)?;
        // Ollama does not count the tokens of a cached prompt.
        let prompt = tokens(&usage, &["prompt_eval_count"]);
        let tokens = prompt.map(|prompt| prompt.saturating_add(tokens(&usage, &["eval_count"]).unwrap_or(0)));
        Ok(Answer { value: message.content, tokens })
    }
}
