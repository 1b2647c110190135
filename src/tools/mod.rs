//! Tools for language models: their schemas, and calls with the arguments that a model wrote.
//!
//! **Invariant:** what a model wrote decides neither which memory, subject or knowledge bases a call reaches,
//! nor which keys of metadata: the options do, which the application gives.

mod api;
mod arguments;
mod call_tool;
mod definitions;
mod options;
