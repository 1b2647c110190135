//! Ollama's own API. <https://docs.ollama.com/api/embed> and <https://docs.ollama.com/api/chat>

use super::read::Vector;
use super::{
    Address, Answer, ChatApi, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable,
    max_output_tokens, messages_with_system, read, temperature, url,
};
use kb_types::{ChatReply, Dialogue, Embedder, FinishReason, Kind, Llm};
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
struct Chatted {
    message: Message,
    done_reason: Option<String>,
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

    fn path(&self, _base_url: &str, _model: &str) -> String {
        "/api/chat".into()
    }

    fn body(&self, llm: &Llm, dialogue: &Dialogue) -> Value {
        // The default is to stream.
        let mut body =
            json!({"model": llm.model, "messages": messages_with_system(dialogue), "stream": false});
        let mut options = Map::new();
        if let Some(temperature) = temperature(llm) {
            options.insert("temperature".into(), json!(temperature));
        }
        if let Some(most) = max_output_tokens(llm, dialogue) {
            options.insert("num_predict".into(), json!(most));
        }
        if !options.is_empty() {
            body["options"] = Value::Object(options);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<ChatReply>, Unusable> {
        let Chatted { message, done_reason, usage } = read::parse(body)?;
        // Ollama does not count the tokens of a cached prompt.
        let input_tokens = read::tokens(&usage, &["prompt_eval_count"]);
        let output_tokens = read::tokens(&usage, &["eval_count"]);
        let finish = match done_reason.as_deref() {
            None | Some("stop") => FinishReason::Stop,
            Some("length") => FinishReason::Length,
            Some(_) => FinishReason::Other,
        };
        let tokens = input_tokens.map(|tokens| tokens.saturating_add(output_tokens.unwrap_or(0)));
        Ok(Answer { value: ChatReply { text: message.content, finish, input_tokens, output_tokens }, tokens })
    }
}
