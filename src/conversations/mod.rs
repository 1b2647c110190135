//! Conversations: created, continued turn by turn, summarized by chat models, read as windows that fit a
//! model, and searched for facts that a memory keeps.

mod alter_conversation;
mod api;
pub mod append_turn;
pub mod extraction;
mod extraction_prompt;
mod read_turns;
mod shown_turns;
mod sql;
pub mod summaries;
mod summary;
mod summary_prompt;
mod wait_for_summary;
pub mod window;
