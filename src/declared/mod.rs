//! What is declared in a file: kb.apply makes it, kb.export writes it.
//!
//! Everything is made by kb's own SQL functions, called by the caller, so that their privileges, row security
//! and checks hold. What a file does not name stays as it is, unless it is to be pruned. A thing has changed
//! if kb.export would write it otherwise than before.
//!
//! **Invariant:** a file is applied as a whole or not at all.

mod api;
mod apply;
mod differences;
mod export;
mod make;
mod sql;
