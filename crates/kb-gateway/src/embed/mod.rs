//! Embedding by models at endpoints, in batches over many requests.
//!
//! Requests with the same embedder, kind, key, reach and urgency share a queue. It takes as many texts as
//! `batch_size`, the provider, the token limits and the size of the reply allow, waits for the rate and for a
//! place among the batches in flight, and adds texts that have arrived meanwhile. A batch therefore fills
//! while it waits, from all documents and knowledge bases. The queue drops texts whose client has left, and a
//! batch without any remaining client is neither halved nor retried. A question does not queue, and its call
//! takes the next place in flight. A queue that has not been used for ten minutes is closed, and its key is
//! forgotten.

pub mod query_cache;
mod queue;
pub mod queue_registry;
mod remote_model;
