//! Embedding by models at endpoints: texts of many requests in batches, and vectors from what the endpoints reply.

pub mod query_cache;
mod queue;
pub mod queue_registry;
mod remote_model;
