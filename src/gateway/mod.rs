//! The way to the gateway from a process of the server, which waits at its latch.

pub mod client;
pub mod pump;
