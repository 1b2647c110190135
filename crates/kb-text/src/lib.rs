//! From the bytes of a document to its chunks: formats, JSON, tokenisers, chunkers, and the comparison with
//! stored chunks.
//!
//! **Invariant:** no text of n bytes costs more than n log n in time or memory, and no call into a library
//! takes long. Inputs for which a library would be quadratic (attributes, misplaced content of tables,
//! containers of Markdown, neighbours of one name, overlap of chunks) are counted and bounded before the
//! call. A text is split window by window (`chunk/windows.rs`). Text that a tokeniser drops, or reads as one
//! unknown word, counts as a token for every 64 bytes.
//!
//! A document is parsed and split on a thread that cannot be stopped from outside. The code therefore reports
//! its work to `kb_types::Bounds`, which has the limits of the document and checks the clock. A document that
//! exceeds a limit fails for good. In a session the same places check for interrupts.

#![forbid(unsafe_code)]

pub mod batch;
pub mod chunk;
pub mod chunk_settings;
pub mod context;
pub mod diff;
pub mod json_text;
pub mod model_answers;
pub mod model_files;
pub mod parse;
pub mod rechunk;
pub mod tokenizer;
mod vocabularies;
