//! The SQL surface, a file per noun: parse, call one use case, convert.

mod chunking;
mod documents;
mod embedders;
mod health;
mod knowledge_bases;
mod query;
mod runs;
mod vector_dbs;
