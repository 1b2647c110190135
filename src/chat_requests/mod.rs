//! What the worker asks chat models beside jobs: requests wait in kb.chat_requests until they are due, a
//! kind of request says what to ask and stores the answer, and failures are tried again with growing pauses.

mod ask;
mod kind;
mod sql;
pub mod upkeep;

pub use kind::{Asked, Kind, Next, Texts};
pub use sql::requests;
