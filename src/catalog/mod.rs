//! What several use cases and the worker share: access to embedders, the life of a build, checks of settings, enqueueing.

pub mod build_lifecycle;
pub mod embedder_access;
pub mod embedder_settings;
pub mod enqueue;
pub mod knowledge_base_settings;
