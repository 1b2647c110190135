//! What setup chooses (tools/decide.sh), against fake trees: a directory in place of `/`, and a PATH with
//! nothing on it but what the case has. No PostgreSQL, no apt, no network.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod choices;
mod interrupted;
mod machine;
mod stops;
