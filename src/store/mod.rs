//! The only room with SQL text: a file per table. Functions take and give plain values.

use std::ffi::CStr;

/// Settings under which rows are found by an index, even if the plan is made (and kept) while the table is empty.
const BY_INDEX: &[(&CStr, &CStr)] = &[(c"enable_seqscan", c"off")];

pub mod arguments;
pub mod builds;
pub mod changes;
pub mod chunks;
pub mod documents;
pub mod due_jobs;
pub mod embedders;
pub mod filter;
pub mod jobs;
pub mod knowledge_bases;
pub mod new_documents;
pub mod origins;
pub mod row_documents;
pub mod runs;
pub mod search;
pub mod secrets;
pub mod server_catalogs;
pub mod sources;
pub mod usage;
pub mod vector_dbs;
pub mod vector_store;
