//! The SQL of this room, a file per table.

pub mod bindings;
pub mod meant;
pub mod quotas;
pub mod shares;
