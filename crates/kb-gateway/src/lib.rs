//! The one process that loads models and opens outbound connections, and the way to it.

#![forbid(unsafe_code)]

mod asked;
pub mod cancellation;
pub mod chat;
mod connection;
pub mod embed;
pub mod endpoint;
pub mod frame;
mod loaded_models;
pub mod models;
pub mod places;
pub mod protocol;
pub mod provider;
mod query_log;
mod query_usage;
pub mod request_memory;
pub mod rerank;
pub mod server;
pub mod services;
pub mod turns;
