//! From chunks to vectors.

pub mod embed_batch;
pub mod gateway_link;
pub mod in_flight;
mod receive;
mod send;
pub mod send_queue;
pub mod unsaved;
