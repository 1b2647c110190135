//! Calling an endpoint outside this server: one call with its limits, budget, breaker, retries and transport.
//! What it is called for is the caller's business ([`call::Operation`]).
//!
//! Limits are shared by host, key, what is asked for beside embedding, rpm, tpm and max_concurrency; budgets
//! by host and key; breakers by host, base_url and path. They are forgotten when no endpoint uses them and
//! they have nothing to remember.
//!
//! **Invariant:** every request has a timeout and a cap on its reply. An error holds no key, and at most a
//! short line of what the endpoint said.
//!
//! **Invariant:** what is kept for later messages (`Throttled`, `Breaker`) has none of an endpoint's words,
//! which may repeat a text. They are passed on only to the client whose texts alone made the request.
//!
//! **Invariant:** a request that the endpoint asked to send later, and one that was never sent, is no failure
//! of its texts.

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
