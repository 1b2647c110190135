//! Embedders, rerankers, chat models and extractors: their settings, their secrets, and requests to them.
//! Each is a kind of service (`ServiceKind`), and all are created, altered, checked and dropped by the same
//! code.

mod access;
mod api;
pub mod ask;
mod check;
mod default_embedder;
mod define;
mod embed;
mod secrets;
mod settings;
mod sql;
pub mod upkeep;

pub use access::{access, acknowledge_restore, embedder_access, source_access};
pub use default_embedder::default_embedder;
pub use embed::embed;
pub use sql::{origins, services, usage};
