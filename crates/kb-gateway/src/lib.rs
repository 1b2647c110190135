//! The gateway: the only process that loads models and opens outbound connections, and its protocol.
//!
//! A request goes through these files. `connection.rs` reads a client's frame once `request_memory.rs` has
//! room for it. `server.rs` decodes the request and gives it to `models.rs` (a local model) or to
//! `embed/queue_registry.rs`, which checks the right to the endpoint (`endpoint/access.rs`) and finds the
//! queue. `embed/queue.rs` puts texts of many requests into a batch, and `embed/remote_model.rs` makes one
//! call of it. `endpoint/call.rs` waits for limits, budget and breaker, and `endpoint/transport.rs` sends
//! what `provider/` wrote. The reply is read by `provider/` and becomes a value in `endpoint/classify.rs`.
//! `call.rs` tells limits and breaker of it, and retries or returns; `remote_model.rs` halves the batch or
//! normalises the vectors; `queue.rs` gives each text its result. Rerankers, chat models and extractors go
//! through `asked.rs` and `services.rs` instead of a queue. Pages are fetched by `fetch/`, and buckets are
//! listed and read by `object_storage/`.
//!
//! **Invariant:** every text of a request gets exactly one result, a vector or an error. A fault of one text
//! is never the error of another.

#![forbid(unsafe_code)]

mod asked;
pub mod cancellation;
pub mod chat;
mod connection;
pub mod embed;
pub mod endpoint;
mod fetch;
pub mod file_reader;
pub mod frame;
mod loaded_models;
pub mod local_models;
mod memory_accesses;
pub mod object_storage;
pub mod protocol;
pub mod provider;
mod query_log;
mod query_usage;
pub mod request_memory;
pub mod rerank;
pub mod semaphore;
pub mod server;
pub mod services;
pub mod turns;
mod wanted_summaries;
