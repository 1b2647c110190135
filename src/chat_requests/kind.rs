//! The contract of a kind of request.

use super::sql::requests::ChatRequest;
use crate::upkeep::Log;
use kb_types::Prompt;
use kb_types::error::Result;
use std::time::Duration;

/// What to ask for a request now.
pub struct Asked {
    pub llm: String,
    /// The most tokens of the answer.
    pub max_tokens: i64,
    pub prompt: Prompt,
    /// How far the subject has come. A request that failed is made again when this has changed.
    pub version: i64,
    /// Stores the answer, in a transaction; again if that was locked out. An error about the answer itself
    /// is one of the chat model.
    pub store: Box<dyn Fn(&str) -> Result<()>>,
    /// What is noted in the transaction that gives the request up, because the model's answers cannot be
    /// used.
    pub give_up: Option<Box<dyn Fn() -> Result<()>>>,
}

/// Texts whose vectors are wanted before a chat model is asked.
pub struct Texts {
    pub embedder: String,
    /// The knowledge base for which they are embedded.
    pub kb_no: i64,
    pub texts: Vec<String>,
}

/// What to do for a request.
pub enum Next {
    /// Embed these, and prepare it again.
    Embed(Texts),
    Ask(Asked),
    /// It is not due before this time is over.
    Wait(Duration),
    /// Nothing is left to ask.
    Finish,
}

/// A kind of request. Its methods are called in the worker.
pub trait Kind {
    /// As in kb.chat_requests.
    fn name(&self) -> &'static str;

    /// What to do now. A request is looked at again after each answer. `vectors` are those of the texts that
    /// it wanted just now; there are none if the embedder failed. In a transaction, under a snapshot that
    /// shows all that was committed before the request was locked.
    fn prepare(&mut self, request: &ChatRequest, vectors: Option<&[Vec<f32>]>) -> Result<Next>;

    /// Makes requests of what came up where nothing can be written, all of it if the worker `leaves`. Outside
    /// any transaction. Returns whether there were any.
    fn gather(&mut self, _leaves: bool, _log: &mut Log) -> bool {
        false
    }
}
