//! From the queue to chunks: whose jobs are claimed next.

pub(super) mod claims;
pub mod round_robin;
mod take_in;
