//! What setup chooses (tools/decide.sh) and lint requires, against fake trees: a directory in place of `/`,
//! and a PATH with nothing on it but what the case has. No PostgreSQL, no apt, no network. Also what the
//! repository must have.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod interrupted;
mod lint;
mod machine;
mod plans;
mod repository;
