//! Conversations: created, continued turn by turn, summarized by chat models, and read as windows that fit a
//! model.

mod alter_conversation;
mod api;
pub mod append_turn;
mod shown_turns;
mod sql;
pub mod summaries;
mod summary;
mod summary_prompt;
mod wait_for_summary;
pub mod window;
