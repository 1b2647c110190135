//! The one process that loads models and opens outbound connections, and the way to it.

pub mod asker;
mod breaker;
mod budget;
pub mod cache;
#[cfg(feature = "server")]
pub mod client;
mod connection;
pub mod egress;
mod exchange;
pub mod frame;
mod lane;
mod limiter;
pub mod local;
pub mod memory;
pub mod models;
pub mod protocol;
pub mod provider;
pub mod remote;
pub mod seal;
pub mod secret;
pub mod server;
mod transport;
pub mod turns;
mod verdict;
