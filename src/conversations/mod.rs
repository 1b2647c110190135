//! Conversations: created, continued turn by turn, and read as windows that fit a model.

mod alter_conversation;
mod api;
mod append_turn;
mod sql;
mod window;
