//! Use cases over the catalogs: creating, altering and dropping what knowledge bases are made of.

pub mod builds;
pub mod embedders;
pub mod health;
pub mod knowledge_bases;
pub mod vector_dbs;
