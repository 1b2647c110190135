//! From a document to chunks: parse, chunk, diff, batch. Pure.
