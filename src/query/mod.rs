//! From a question to ranked rows.

mod annotate;
mod api;
mod candidates;
pub mod context;
mod context_api;
pub mod dense;
mod explain;
pub mod feedback;
mod keyword;
mod log_question;
pub mod query;
mod query_rows;
pub mod query_several;
pub mod question_vector;
mod relevant;
mod removed_rows;
mod reranking;
mod rewording;
mod sql;
mod surroundings;
pub mod upkeep;

pub use sql::{query_log, search};
