//! What several use cases and the worker share: access to embedders, the life of a build, checks of settings and of
//! documents, attached tables, enqueueing.

pub mod build_lifecycle;
pub mod embedder_access;
pub mod embedder_settings;
pub mod enqueue;
pub mod knowledge_base_settings;
pub mod new_document;
pub mod partitions;
pub mod quota;
pub mod row_document;
pub mod row_presence;
pub mod source_tables;
