//! kb.health: what an operator has to know.

mod api;
mod health;
