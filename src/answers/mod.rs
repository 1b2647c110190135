//! Answers: a chat model answers a question from passages, memories and a conversation, and cites what it was
//! given.

mod answer;
mod api;
mod found;
mod token_counter;
mod turns;
