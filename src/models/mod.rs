//! Embedders, rerankers and chat models: their settings, their secrets, and what they are asked.

pub mod acknowledge_restore;
mod alter_embedder;
mod alter_llm;
mod alter_reranker;
mod api;
pub mod ask;
mod check_embedder;
mod check_llm;
mod check_reranker;
mod count_tokens;
mod create_embedder;
mod create_llm;
mod create_reranker;
mod drop_embedder;
mod drop_llm;
mod drop_reranker;
mod drop_secret;
pub mod embed;
pub mod embedder_access;
mod embedder_settings;
mod endpoint_access;
mod endpoint_settings;
mod secrets_api;
mod service_settings;
mod services_api;
mod set_secret;
mod sql;
pub mod upkeep;

pub use sql::{embedders, origins, services, usage};
