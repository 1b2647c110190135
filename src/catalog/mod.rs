//! What several use cases and the worker share: access to embedders, the life of a build, checks of settings and of
//! documents, attached tables, enqueueing.

pub mod build_lifecycle;
pub mod embedder_access;
pub mod embedder_settings;
pub mod endpoint_access;
pub mod endpoint_settings;
pub mod enqueue;
pub mod knowledge_base_settings;
pub mod new_document;
pub mod partitions;
pub mod quota;
pub mod reranking;
pub mod rewording;
pub mod row_document;
pub mod row_presence;
pub mod row_texts;
pub mod service_settings;
pub mod source_tables;
