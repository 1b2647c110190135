//! kb: a PostgreSQL extension that makes a database its own retrieval engine.
//! The table of contents; ARCHITECTURE.md says how the rooms hang together.

// Pure: no PostgreSQL, tested without a server (`cargo test --no-default-features`).
pub mod error;
pub mod gateway;
pub mod ingest;
pub mod model;
pub mod model_files;
pub mod retrieve;
pub mod tokenizer;
