//! How documents end.

pub mod leases;
pub mod open_documents;
pub mod outcome;
pub mod under_way;
pub mod unsaved;
