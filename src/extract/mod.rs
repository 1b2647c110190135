//! Files of foreign formats: the program kb-extract, which finds their text, and reads Git repositories.
//!
//! **Invariant:** no parser of a foreign format runs in a process of PostgreSQL, because a crash in a process
//! with shared memory restarts the server. The program has no privileges, and a file that crashes it, or that
//! takes too much time or memory, is the only one that fails.

mod program;
mod repository;

pub use program::{Program, error_of};
pub use repository::{Answer, Repository};
