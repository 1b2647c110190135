//! kb.sources, for those that a run lists, and the documents that they have. Must run as the owner.

pub mod catalog;
pub mod items;
