//! The promises of kb, tested from outside: each test has a PostgreSQL cluster of its own, is named for
//! the property it protects, and waits for conditions, never for time. See support/ for how they are run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../layers/source.rs"]
#[allow(dead_code)] // what only the layer test needs
mod source;
#[path = "../stub/mod.rs"]
mod stub;
mod support;

mod background;
mod callers_settings;
mod chunk_context;
mod chunk_sentences;
mod commit;
mod compare_settings;
mod context;
mod copied;
mod crash;
mod databases;
mod delete;
mod dependents;
mod docs;
mod dump;
mod edit;
mod evaluate;
mod explain;
mod extract;
mod failures;
mod filter_language;
mod filter_plans;
mod filters;
mod gateway;
mod hostile;
mod index;
mod index_builds;
mod indexer;
mod injection;
mod installation;
mod kernels;
mod keys;
mod keyword;
mod leak;
mod locks;
mod many;
mod money;
mod operators;
mod orphans;
mod outage;
mod outgrown;
mod poor_index;
mod prompts;
mod providers;
mod query_log;
mod reference;
mod repeated;
mod replace;
mod rerank;
mod restart;
mod restore;
mod secrets;
mod security;
mod segment_filters;
mod segment_merges;
mod segments;
mod semantic;
mod send_order;
mod shadows;
mod sizes;
mod soak;
mod standby;
mod sync;
mod tables;
mod tails;
mod tenants;
mod together;
mod upgrade;
mod vectors;
mod waiting;
