//! Use cases over the catalogs: creating, altering and dropping what knowledge bases are made of.

pub mod access;
pub mod builds;
pub mod embedders;
pub mod estimate;
pub mod health;
pub mod knowledge_bases;
pub mod restore;
pub mod secrets;
pub mod vector_dbs;
