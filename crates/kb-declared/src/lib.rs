//! What is declared in a YAML file: embedders, vector databases, knowledge bases and the rest, in the names
//! of kb and of other systems. [`read::declarations`] reads it and reports every problem with its place;
//! [`write::yaml`] writes it.

pub mod declaration;
pub mod names;
mod places;
pub mod read;
mod secret;
mod tree;
pub mod write;
