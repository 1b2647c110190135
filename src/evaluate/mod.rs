//! How good answers and indexes are.

mod api;
mod eval_sets;
mod evaluate;
mod measure_recall;
pub mod poor_indexes;
mod search_recall;
mod sql;
mod tune;
