//! Calling an endpoint outside this server: one call with its limits, budget, breaker, retries and transport. What it
//! is called for is the caller's business ([`call::Operation`]).

pub mod access;
mod breaker;
pub mod budget;
pub mod call;
pub mod classify;
mod congestion;
pub mod deadline;
pub mod egress;
mod error_body;
mod limiter;
mod outages;
pub mod pool;
mod rate;
pub mod seal;
pub mod secret;
pub mod secret_reference;
pub mod transport;
pub mod usage;
