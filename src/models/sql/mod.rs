//! The SQL of this room, a file per table.

pub mod origins;
pub mod secrets;
pub mod services;
pub mod usage;
