//! The SQL of this room, a file per table.

pub mod chunks;
pub mod new_documents;
pub mod parts;
pub mod stored;
