//! The gateway's remote providers against the stub: every dialect, every fault. No PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../stub/mod.rs"]
mod stub;

mod blame;
mod clients;
mod congestion;
mod dialects;
mod egress;
mod fair;
mod faults;
mod files;
mod limits;
mod pages;
mod rerank;
mod support;
mod tls;
