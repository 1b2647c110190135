//! The one process that loads models and opens outbound connections, and the way to it.

pub mod asker;
mod breaker;
mod budget;
pub mod cache;
#[cfg(feature = "server")]
pub mod client;
pub mod egress;
mod exchange;
mod lane;
mod limiter;
pub mod local;
pub mod models;
pub mod protocol;
pub mod provider;
pub mod remote;
pub mod seal;
pub mod secret;
pub mod server;
mod transport;
mod verdict;
