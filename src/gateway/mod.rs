//! The one process that loads models (and, later, opens outbound connections), and the way to it.

pub mod cache;
#[cfg(feature = "server")]
pub mod client;
pub mod local;
pub mod models;
pub mod protocol;
pub mod server;
