//! The SQL of this room.

pub mod requests;
