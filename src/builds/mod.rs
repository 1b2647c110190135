//! The rows of knowledge bases, of their builds and of runs, which most rooms read.

mod sql;

pub use sql::{builds, knowledge_bases, runs};
