//! Embedding by models at endpoints: texts of many requests in batches, and vectors from what the endpoints
//! reply.
//!
//! Requests that are alike in embedder, kind, key, reach and urgency share a queue. It takes as many texts as
//! `batch_size`, the provider, the token limits and the size of the reply allow, waits for the rate and for a
//! place among the batches that may be sent, and adds texts that have come meanwhile. So a batch fills while
//! it waits, over documents and knowledge bases. The queue drops texts whose client is gone; a batch all of
//! whose clients are gone is neither halved nor sent again. A question does not queue: its call takes the
//! next place in flight. A queue that nobody has asked for ten minutes is closed, and with it goes its key.

pub mod query_cache;
mod queue;
pub mod queue_registry;
mod remote_model;
