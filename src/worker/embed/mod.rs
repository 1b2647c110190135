//! From chunks to vectors.

pub mod embed_batch;
pub mod fresh_chunks;
pub mod gateway_link;
pub mod in_flight;
pub mod pauses;
pub mod receive;
pub mod send;
pub mod send_queue;
