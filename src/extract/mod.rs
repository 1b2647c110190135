//! Files of foreign formats: the program kb-extract, which finds their text.
//!
//! **Invariant:** no parser of a foreign format runs in a process of PostgreSQL, because a crash in a process
//! with shared memory restarts the server. The program has no privileges, and a file that crashes it, or that
//! takes too much time or memory, is the only one that fails.

mod program;

pub use program::Program;
