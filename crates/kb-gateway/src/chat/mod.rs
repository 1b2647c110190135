//! Chat models at endpoints: writes a prompt as a request and reads the text of the reply.

mod ollama;
mod openai;

use super::endpoint::access::Access;
use super::endpoint::call::{Endpoint, Operation};
use super::endpoint::classify::{Answer, Unusable};
use super::endpoint::transport::HttpRequest;
use super::endpoint::usage::Usage;
use super::frame::MAX_CHAT;
use super::protocol::Prompt;
use super::services::{Caller, Service, Services, estimate};
use kb_types::Llm;
use kb_types::error::{Error, Object, Result};
use serde_json::Value;
use std::sync::Arc;

/// The chat API of a provider.
pub trait Dialect: Send + Sync {
    /// The default base_url.
    fn base_url(&self) -> &'static str;
    /// The default model. None if a model must be given.
    fn model(&self) -> Option<&'static str>;
    /// Whether the default base_url answers only requests with a key.
    fn needs_secret(&self) -> bool;
    /// The path after `base_url`.
    fn path(&self, base_url: &str) -> &'static str;
    fn body(&self, llm: &Llm, prompt: &Prompt) -> Value;
    /// Reads the text of a reply, and the tokens of the whole request.
    fn read(&self, body: &[u8]) -> Result<Answer<String>, Unusable>;
}

/// The names of all providers of chat models.
pub const NAMES: [&str; 2] = ["openai", "ollama"];

pub fn find(name: &str) -> Option<&'static dyn Dialect> {
    Some(match name {
        "openai" => &openai::OpenAi,
        "ollama" => &ollama::Ollama,
        _ => return None,
    })
}

/// A chat model with its endpoint.
pub struct Chat {
    llm: Llm,
    dialect: &'static dyn Dialect,
    service: Service,
    endpoint: Arc<Endpoint>,
}

/// The operation of asking a chat model once.
struct Exchange<'a> {
    chat: &'a Chat,
    prompt: Prompt,
}

impl Operation for Exchange<'_> {
    type Output = String;

    fn request(&self) -> HttpRequest {
        let Chat { llm, dialect, service, .. } = self.chat;
        HttpRequest { method: "POST".to_string(), url: service.url(), body: dialect.body(llm, &self.prompt) }
    }

    fn max_reply(&self) -> usize {
        2 * MAX_CHAT
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<String>, Unusable> {
        let mut answer = self.chat.dialect.read(body)?;
        // A long answer is shortened and not refused, because it is paid for.
        let most = answer.value.floor_char_boundary(MAX_CHAT);
        answer.value.truncate(most);
        Ok(answer)
    }

    fn probe(&self) -> Self {
        let prompt = Prompt { system: "Answer with the word yes.".into(), user: "yes".into() };
        Exchange { chat: self.chat, prompt }
    }
}

impl Chat {
    /// Checks the access to the model.
    pub fn open(services: &Services, llm: &Llm, access: &Access) -> Result<Chat> {
        let dialect = find(&llm.provider)
            .ok_or_else(|| Error::ProviderUnavailable { provider: llm.provider.clone() })?;
        let base_url = llm.base_url.as_deref().unwrap_or(dialect.base_url()).to_string();
        let own = llm.config.remote.path.clone();
        let path = own.unwrap_or_else(|| dialect.path(&base_url).to_string());
        let remote = llm.config.remote.clone();
        let service = Service { what: Object::Llm, id: llm.id.clone(), base_url, path, remote };
        let endpoint = services.endpoint(&service, access)?;
        Ok(Chat { llm: llm.clone(), dialect, service, endpoint })
    }

    /// Asks the model. Adds the cost to `usage`, even if it fails.
    pub async fn ask(&self, prompt: Prompt, caller: &Caller, usage: &mut Usage) -> Result<String> {
        let tokens = estimate([prompt.system.as_str(), prompt.user.as_str()]);
        let exchange = Exchange { chat: self, prompt };
        let answer = self.service.call(&self.endpoint, &exchange, tokens, caller, usage).await?;
        usage.texts += 1;
        Ok(answer)
    }

    /// The most requests that it handles at the same time.
    pub fn concurrency(&self) -> usize {
        self.llm.config.remote.max_concurrency
    }
}
