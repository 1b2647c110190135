//! The SQL of this room, a file per table.

pub mod changes;
pub mod row_documents;
pub mod sources;
