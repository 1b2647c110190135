//! Recall from the tables of a database, and what is around a hit. The stages that need no server are kb-search.

pub mod dense;
pub mod gone;
pub mod index_recall;
pub mod keyword;
pub mod surroundings;
pub mod word_statistics;
