//! Requests to rerankers, chat models and extractors: which service answers them, and how their usage is
//! booked.

use super::chat::Chat;
use super::endpoint::budget::Spent;
use super::endpoint::usage::Usage;
use super::file_reader;
use super::protocol::{Access, Response};
use super::rerank::{self, Question};
use super::services::{Caller, Services};
use crate::local_models::Models;
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::{Dialogue, Extractor, Llm, ServiceKind};

pub enum Asked {
    Scores(Box<Question>),
    Words(Box<Llm>, Access, Dialogue),
    Text(Box<Extractor>, Access, File),
}

impl Asked {
    /// The tokens of the day that the requesting database knows of.
    pub fn spent(&self) -> Spent {
        match self {
            Asked::Scores(question) => question.access.spent,
            Asked::Words(_, access, _) | Asked::Text(_, access, _) => access.spent,
        }
    }

    /// The id and the capability for which usage is booked.
    pub fn booked_as(&self) -> (String, ServiceKind) {
        match self {
            Asked::Scores(question) => rerank::booked_as(question),
            Asked::Words(llm, ..) => (llm.id.clone(), ServiceKind::Llm),
            Asked::Text(extractor, ..) => (extractor.id.clone(), ServiceKind::Extractor),
        }
    }

    /// The error for an answer that does not come in time.
    pub fn late(&self) -> impl FnOnce(String) -> Error + use<> {
        let (kind, id) = match self {
            Asked::Scores(question) => (ServiceKind::Reranker, question.reranker.id.clone()),
            Asked::Words(llm, ..) => (ServiceKind::Llm, llm.id.clone()),
            Asked::Text(extractor, ..) => (ServiceKind::Extractor, extractor.id.clone()),
        };
        move |problem| Error::Service { kind, id, problem, passing: true }
    }

    /// Adds the cost to `usage`, even if there is no answer.
    pub async fn answer(
        self,
        services: &Services,
        models: &Models,
        caller: &Caller,
        usage: &mut Usage,
    ) -> Result<Response> {
        Ok(match self {
            Asked::Scores(question) => {
                Response::Reranked(rerank::rerank(services, models, *question, caller, usage).await?)
            }
            Asked::Words(llm, access, dialogue) => {
                let chat = Chat::open(services, &llm, &access)?;
                Response::Chatted(chat.ask(dialogue, caller, usage).await?)
            }
            Asked::Text(extractor, access, file) => Response::Extracted(
                file_reader::read(services, *extractor, &access, file, caller, usage).await?,
            ),
        })
    }
}
