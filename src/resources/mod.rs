//! What has a strong entity tag (etag): knowledge bases and their sources, embedders, vector databases, chat
//! models, rerankers and extractors, each listed and read as JSON.
//!
//! The etag is a hash of the JSON, so it changes with everything that a reader of the resource sees, and with
//! nothing else (RFC 9110, section 8.8.3).

mod api;
mod get;
mod if_match;
mod list;
mod resource;
mod sql;

pub use if_match::check;
pub use resource::Resource;
pub use sql::{properties, table_of};
