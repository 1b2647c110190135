//! From a document to chunks: text of JSON, parse, chunk, diff, batch; and questions to evaluate with. Pure.
//!
//! **Invariant:** no text costs more than n log n of its size, in time or memory, and no call into a library
//! takes long. Inputs that would be quadratic in a library (attributes, misplaced content of tables,
//! containers of Markdown, neighbours of one name, overlap of chunks) are counted and bounded before the
//! call. A text is cut window by window (`chunk/windows.rs`). Text that a tokeniser drops, or takes for one
//! unknown word, counts as a token for every 64 bytes.
//!
//! A document is parsed and cut on a thread that nothing can stop from outside. So the code reports its work
//! to `kb_types::Bounds`, which holds the limits of that document and looks at the clock. Over a limit the
//! document fails for good. In a session the same places check interrupts.

#![forbid(unsafe_code)]

pub mod answers;
pub mod batch;
pub mod chunk;
pub mod chunking;
pub mod context;
pub mod diff;
pub mod json_text;
pub mod model_files;
pub mod parse;
pub mod rechunk;
pub mod tokenizer;
