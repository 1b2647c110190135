//! The life of a knowledge base: created, altered, moved, shared, rebuilt, dropped.

pub mod alter_knowledge_base;
mod api;
pub mod build_lifecycle;
pub mod create_knowledge_base;
pub mod drop_knowledge_base;
mod estimate_ingest;
mod index_metadata;
mod ingest;
pub mod knowledge_base_settings;
mod move_knowledge_base;
mod share;
mod sql;
pub mod upkeep;
mod wait;
