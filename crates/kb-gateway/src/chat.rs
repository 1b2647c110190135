//! Chat models at endpoints: writes a prompt as a request and reads the text of the reply.

use super::endpoint::access::Access;
use super::endpoint::call::{Endpoint, Operation};
use super::endpoint::classify::{Answer, Unusable};
use super::endpoint::transport::HttpRequest;
use super::endpoint::usage::Usage;
use super::frame::MAX_CHAT;
use super::provider::{self, ChatApi};
use super::services::{Caller, Service, Services, estimate};
use kb_types::error::Result;
use kb_types::{ChatReply, Dialogue, FinishReason, Llm, Prompt, ServiceKind};
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
    dialogue: Dialogue,
}

impl Operation for Exchange<'_> {
    type Output = ChatReply;

    fn request(&self) -> HttpRequest {
        let Chat { llm, api, service, .. } = self.chat;
        let request = HttpRequest::post(service.url(), api.body(llm, &self.dialogue));
        HttpRequest { headers: api.headers(), ..request }
    }

    fn max_reply(&self) -> usize {
        2 * MAX_CHAT
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<ChatReply>, Unusable> {
        let mut answer = self.chat.api.read(body)?;
        // A long answer is shortened and not refused, because it is paid for.
        let ChatReply { text, finish, .. } = &mut answer.value;
        if text.len() > MAX_CHAT {
            text.truncate(text.floor_char_boundary(MAX_CHAT));
            *finish = FinishReason::Length;
        }
        Ok(answer)
    }

    fn probe(&self) -> Self {
        let prompt = Prompt { system: "Answer with the word yes.".into(), user: "yes".into() };
        Exchange { chat: self.chat, dialogue: prompt.into() }
    }
}

impl Chat {
    /// Checks the access to the model.
    pub fn open(services: &Services, llm: &Llm, access: &Access) -> Result<Chat> {
        let kind = ServiceKind::Llm;
        let (provider, api) = provider::with_api(kind, &llm.provider, |provider| provider.chat)?;
        let (base_url, remote) = (llm.base_url.as_deref(), &llm.config.remote);
        let service = Service::new(kind, &llm.id, provider, base_url, remote, |base_url| {
            api.path(base_url, &llm.model)
        });
        let endpoint = services.endpoint(&service, access)?;
        Ok(Chat { llm: llm.clone(), api, service, endpoint })
    }

    /// Asks the model. Adds the cost to `usage`, even if it fails.
    pub async fn ask(
        &self,
        dialogue: impl Into<Dialogue>,
        caller: &Caller,
        usage: &mut Usage,
    ) -> Result<ChatReply> {
        let dialogue = dialogue.into();
        let tokens = estimate(dialogue.texts());
        let exchange = Exchange { chat: self, dialogue };
        let answer = self.service.call(&self.endpoint, &exchange, tokens, caller, usage).await?;
        usage.texts += 1;
        Ok(answer)
    }

    /// The most requests that it handles at the same time.
    pub fn concurrency(&self) -> usize {
        self.llm.config.remote.max_concurrency
    }
}
