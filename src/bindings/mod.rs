//! Bindings: which knowledge bases a project, workflow, task or agent asks, and how their texts enter a
//! prompt.
//!
//! A binding names a knowledge base. In the scope of a workflow, task or agent, its own knowledge base of
//! this name comes before any other; its id begins with `workflow:NAME/` or the like. What is bound is not
//! checked when it is bound: a knowledge base that does not exist, or that the caller may not read, is like
//! one that fails.
//!
//! **Invariant:** a knowledge base that fails never keeps another one from being asked.

mod api;
mod bind;
mod prompt_context;
mod resolve_bindings;
mod retrieve_context;
mod sql;
