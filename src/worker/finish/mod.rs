//! How documents end.

pub mod leases;
pub mod open_documents;
pub mod outcome;
