//! Use cases over the catalogs: creating, altering and dropping what knowledge bases are made of.

/// Bytes of a knowledge base's, embedder's or vector database's id at most.
const MAX_ID_BYTES: usize = 255;

pub mod access;
pub mod builds;
pub mod embedders;
pub mod estimate;
pub mod health;
pub mod knowledge_bases;
pub mod restore;
pub mod secrets;
pub mod vector_dbs;
