//! The way to the gateway from a process of the server, which waits on its latch.

pub mod client;
pub mod pump;
