//! Conversations: created, continued turn by turn, and read as windows that fit a model.

mod alter_conversation;
mod api;
pub mod append_turn;
mod sql;
pub mod window;
