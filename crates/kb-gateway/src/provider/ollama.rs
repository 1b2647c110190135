//! Ollama's own API. <https://docs.ollama.com/api/embed> and <https://docs.ollama.com/api/chat>

use super::read::Vector;
use super::{
    Address, Answer, ChatApi, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Prompt, Provider, Unusable,
    read, url,
};
use kb_types::{Embedder, Kind, Llm};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const BASE: &str = "http://localhost:11434";

pub const PROVIDER: Provider = Provider {
    name: "ollama",
    address: Address::Default(BASE),
    needs_secret: false,
    embed: Some(&Ollama),
    chat: Some(&Ollama),
    ..Provider::DEFAULT
};

struct Ollama;

#[derive(Deserialize)]
struct Embedded {
    embeddings: Vec<Vector>,
    #[serde(default)]
    prompt_eval_count: Value,
}

impl EmbedApi for Ollama {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("nomic-embed-text"),
            dimension: Some(768),
            max_batch: 512,
            keys: &["dimensions"],
        }
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        // truncate is always sent, because by default Ollama truncates a long text silently.
        let mut body = json!({"model": embedder.model, "input": texts, "truncate": embedder.config.truncate});
        if let Some(dimensions) = embedder.config.remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        HttpRequest::post(url(embedder, BASE, "/api/embed"), body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let Embedded { embeddings, prompt_eval_count } = read::parse(body)?;
        read::answer(embeddings, read::count(&prompt_eval_count), count)
    }
}

#[derive(Deserialize)]
struct ChatReply {
    message: Message,
    #[serde(flatten)]
    usage: Value,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}

impl ChatApi for Ollama {
    fn model(&self) -> Option<&'static str> {
        None
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
        let ChatReply { message, usage } = read::parse(body)?;
        // Ollama does not count the tokens of a cached prompt.
        let prompt = read::tokens(&usage, &["prompt_eval_count"]);
        let tokens =
            prompt.map(|prompt| prompt.saturating_add(read::tokens(&usage, &["eval_count"]).unwrap_or(0)));
        Ok(Answer { value: message.content, tokens })
    }
}
