//! From the queue to chunks.

pub mod back_pressure;
pub mod backfill;
pub mod claims;
pub mod compare;
pub mod consult;
pub mod documents;
pub mod prepare;
pub mod rests;
pub mod round_robin;
pub mod row_intake;
pub mod slow_intake;
pub mod source_changes;
pub mod source_faults;
pub mod target;
pub mod unindexed;
