//! Chat models at endpoints: writes a prompt as a request and reads the text of the reply.

use super::endpoint::access::Access;
use super::endpoint::call::{Endpoint, Operation};
use super::endpoint::classify::{Answer, Unusable};
use super::endpoint::transport::HttpRequest;
use super::endpoint::usage::Usage;
use super::frame::MAX_CHAT;
use super::protocol::Prompt;
use super::provider::{self, ChatApi};
use super::services::{Caller, Service, Services, estimate};
use kb_types::error::Result;
use kb_types::{Llm, ServiceKind};
use std::sync::Arc;

/// A chat model with its endpoint.
pub struct Chat {
    llm: Llm,
    api: &'static dyn ChatApi,
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
        let Chat { llm, api, service, .. } = self.chat;
        HttpRequest::post(service.url(), api.body(llm, &self.prompt))
    }

    fn max_reply(&self) -> usize {
        2 * MAX_CHAT
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<String>, Unusable> {
        let mut answer = self.chat.api.read(body)?;
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
        let kind = ServiceKind::Llm;
        let (provider, api) = provider::with_api(kind, &llm.provider, |provider| provider.chat)?;
        let (base_url, remote) = (llm.base_url.as_deref(), &llm.config.remote);
        let service = Service::new(kind, &llm.id, provider, base_url, remote, |base_url| api.path(base_url));
        let endpoint = services.endpoint(&service, access)?;
        Ok(Chat { llm: llm.clone(), api, service, endpoint })
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
