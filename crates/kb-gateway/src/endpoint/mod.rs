//! Calls endpoints outside this server, with limits, budget, breaker, retries and transport. The purpose of a
//! call is defined by the caller ([`call::Operation`]).
//!
//! Endpoints share limits if they have the same host, key, purpose other than embedding, rpm, tpm and
//! max_concurrency. They share budgets if they have the same host and key, and breakers if they have the same
//! host, base_url and path. This state is forgotten when no endpoint uses it and it has nothing to remember.
//!
//! **Invariant:** every request has a timeout and a cap on its reply. An error contains no key, and at most a
//! short line of the endpoint's own message.
//!
//! **Invariant:** state that is kept for later messages (`Throttled`, `Breaker`) contains nothing of an
//! endpoint's own message, which may repeat a text. That is passed on only to the client whose texts alone
//! made the request.
//!
//! **Invariant:** a request that was throttled or never sent is not a failure of its texts.

pub mod access;
mod breaker;
pub mod budget;
pub mod call;
pub mod classify;
mod congestion;
pub mod deadline;
pub mod egress;
pub mod error_body;
mod limiter;
mod outages;
pub mod pool;
mod rate;
pub mod seal;
pub mod secret;
pub mod secret_reference;
pub mod transport;
pub mod usage;
