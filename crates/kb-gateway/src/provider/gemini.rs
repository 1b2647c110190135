//! Google's Gemini API. It truncates texts that are embedded and too long silently.
//! <https://ai.google.dev/api/embeddings#method:-models.batchembedcontents> and
//! <https://ai.google.dev/api/generate-content#method:-models.generatecontent>

use super::read::Vector;
use super::{
    Address, Answer, Auth, ChatApi, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable,
    max_output_tokens, read, task, temperature, url,
};
use kb_types::url_path::escaped;
use kb_types::{ChatReply, Dialogue, Embedder, FinishReason, Kind, Llm, Speaker};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const BASE: &str = "https://generativelanguage.googleapis.com/v1beta";

pub const PROVIDER: Provider = Provider {
    name: "gemini",
    address: Address::Default(BASE),
    auth: Auth::Header("x-goog-api-key"),
    embed: Some(&Gemini),
    chat: Some(&Gemini),
    ..Provider::DEFAULT
};

struct Gemini;

/// The name of a model in a path. Google's own lists put a prefix before it.
fn name(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Embedded {
    embeddings: Vec<Option<Embedding>>,
    #[serde(default)]
    usage_metadata: Value,
}

#[derive(Default, Deserialize)]
struct Embedding {
    #[serde(default)]
    values: Vector,
}

impl EmbedApi for Gemini {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some("gemini-embedding-001"),
            dimension: Some(3072),
            max_batch: 100,
            keys: &["dimensions", "document_task", "query_task"],
        }
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let model = name(&embedder.model);
        let request = |text: &String| {
            let mut request = json!({
                "model": format!("models/{model}"),
                "content": {"parts": [{"text": text}]},
                "taskType": task(embedder, kind, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"),
            });
            if let Some(dimensions) = embedder.config.remote.dimensions {
                request["outputDimensionality"] = json!(dimensions);
            }
            request
        };
        let requests: Vec<Value> = texts.iter().map(request).collect();
        let path = format!("/models/{}:batchEmbedContents", escaped(model));
        HttpRequest::post(url(embedder, BASE, &path), json!({"requests": requests}))
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let Embedded { embeddings, usage_metadata } = read::parse(body)?;
        let tokens = read::tokens(&usage_metadata, &["promptTokenCount"]);
        let vectors = embeddings.into_iter().map(|embedding| embedding.unwrap_or_default().values);
        read::answer(vectors.collect(), tokens, count)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generated {
    #[serde(default)]
    candidates: Vec<Generation>,
    #[serde(default)]
    prompt_feedback: Value,
    #[serde(default)]
    usage_metadata: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generation {
    /// A candidate that was refused has none.
    #[serde(default)]
    content: Content,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Part>,
}

/// A part that is no text has other members.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
    /// Whether it is a part of the reasoning and not of the answer.
    #[serde(default)]
    thought: bool,
}

impl ChatApi for Gemini {
    /// None, because Google's models are retired after a year.
    fn model(&self) -> Option<&'static str> {
        None
    }

    fn path(&self, _base_url: &str, model: &str) -> String {
        format!("/models/{}:generateContent", escaped(name(model)))
    }

    fn body(&self, llm: &Llm, dialogue: &Dialogue) -> Value {
        let contents: Vec<Value> = dialogue
            .messages()
            .iter()
            .map(|message| {
                let role = if message.speaker == Speaker::User { "user" } else { "model" };
                json!({"role": role, "parts": [{"text": message.text}]})
            })
            .collect();
        let mut body =
            json!({"systemInstruction": {"parts": [{"text": dialogue.system}]}, "contents": contents});
        let mut config = Map::new();
        if let Some(temperature) = temperature(llm) {
            config.insert("temperature".into(), json!(temperature));
        }
        if let Some(most) = max_output_tokens(llm, dialogue) {
            config.insert("maxOutputTokens".into(), json!(most));
        }
        if !config.is_empty() {
            body["generationConfig"] = Value::Object(config);
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Answer<ChatReply>, Unusable> {
        let Generated { candidates, prompt_feedback, usage_metadata: usage } = read::parse(body)?;
        let is_blocked = prompt_feedback.get("blockReason").is_some_and(Value::is_string);
        let (text, finish) = match candidates.into_iter().next() {
            Some(Generation { content, finish_reason }) => {
                let parts = content.parts.into_iter().filter(|part| !part.thought);
                (parts.map(|part| part.text).collect(), finish(finish_reason.as_deref()))
            }
            // A prompt that is refused gets no candidate.
            None if is_blocked => (String::new(), FinishReason::ContentFilter),
            None => return Err(Unusable::Unreadable("the answer has no candidate".to_string())),
        };
        let [input, output] = [
            &["promptTokenCount", "toolUsePromptTokenCount"],
            &["candidatesTokenCount", "thoughtsTokenCount"],
        ]
        .map(|fields| read::sum(&usage, fields));
        let value = ChatReply { text, finish, input_tokens: input, output_tokens: output };
        Ok(Answer { value, tokens: read::tokens(&usage, &["totalTokenCount"]) })
    }
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        None | Some("STOP") => FinishReason::Stop,
        Some("MAX_TOKENS") => FinishReason::Length,
        Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY") => {
            FinishReason::ContentFilter
        }
        Some(_) => FinishReason::Other,
    }
}
