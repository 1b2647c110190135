//! Memories: what an agent learnt, as facts about somebody. A memory is a knowledge base of which each
//! document is a fact, so that all that holds for documents holds for facts; kb.memory_entries has the rest.

mod api;
pub mod consolidation;
mod consolidation_prompt;
mod create_memory;
mod fact_sources;
mod forget;
pub mod known;
pub mod recall;
pub mod remember;
mod sql;
mod touch;
pub mod upkeep;

pub use sql::stores;
