//! What several use cases and the worker share: the right to ask an embedder, builds, and the checks of settings.

pub mod build_lifecycle;
pub mod embedder_access;
pub mod embedder_settings;
pub mod enqueue;
pub mod knowledge_base_settings;
