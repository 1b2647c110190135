//! The one process that loads models and opens outbound connections, and the way to it.

mod asked;
pub mod cancellation;
pub mod chat;
#[cfg(feature = "server")]
pub mod client;
mod connection;
pub mod embed;
pub mod endpoint;
pub mod frame;
mod loaded_models;
pub mod local;
pub mod models;
pub mod places;
pub mod protocol;
pub mod provider;
#[cfg(feature = "server")]
pub mod pump;
mod query_log;
mod query_usage;
pub mod request_memory;
pub mod rerank;
pub mod server;
pub mod services;
pub mod turns;
