//! How good answers and indexes are.

mod api;
mod create_eval_set;
mod drop_eval_set;
mod evaluate;
mod load_eval;
mod measure_recall;
pub mod poor_indexes;
mod probe;
mod put_eval_question;
mod sql;
mod tune;
