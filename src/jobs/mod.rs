//! Documents that wait for the worker: the queue, and which of its jobs are due.

pub mod enqueue;
mod sql;

pub use sql::{due_jobs, queue};
