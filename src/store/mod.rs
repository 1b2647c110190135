//! The only room with SQL text: a file per table. Functions take and give plain values.

use std::ffi::CStr;

/// Settings under which rows are found by an index, even if the plan is made (and kept) while the table is empty.
const BY_INDEX: &[(&CStr, &CStr)] = &[(c"enable_seqscan", c"off")];

/// The same where one plan is right for any arguments and planning would take as long as looking up a few rows.
const BY_INDEX_UNPLANNED: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"plan_cache_mode", c"force_generic_plan")];

/// Settings under which rows come in the order of an index, whatever statistics say when the plan is made.
const IN_ORDER: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_bitmapscan", c"off"), (c"enable_sort", c"off")];

/// Settings under which the few rows that a statement begins with are each looked up in the other tables by an index, whatever
/// statistics say.
const BY_LOOKUPS: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_hashjoin", c"off"), (c"enable_mergejoin", c"off")];

/// Settings under which each side of a join is gone through once, whatever statistics say.
const BY_HASH: &[(&CStr, &CStr)] = &[(c"enable_nestloop", c"off"), (c"enable_mergejoin", c"off")];

/// Whether this transaction has written a row of a table, other than in a savepoint that was rolled back: a row that is
/// visible while its transaction is in progress is the caller's own. An xmin older than this transaction may be of an earlier
/// epoch; under the current one it would name a transaction of the future, which is an error.
const IS_UNCOMMITTED: &str = "CASE WHEN pg_catalog.age(xmin) <= 0 THEN
    pg_catalog.pg_xact_status((((pg_catalog.pg_current_xact_id()::text::bigint >> 32) << 32)
        + xmin::text::bigint)::text::xid8) = 'in progress' END";

pub mod arguments;
pub mod bm25;
pub mod builds;
pub mod candidates;
pub mod changes;
pub mod chunks;
pub mod documents;
pub mod due_jobs;
pub mod embedders;
pub mod eval_sets;
pub mod filter;
pub mod grants;
pub mod index_recall;
pub mod jobs;
pub mod knowledge_bases;
pub mod metadata_indexes;
pub mod moves;
pub mod named_chunks;
pub mod new_documents;
pub mod origins;
pub mod passages;
pub mod query_log;
pub mod quotas;
pub mod row_documents;
pub mod runs;
pub mod search;
pub mod secrets;
pub mod server_catalogs;
pub mod services;
pub mod shares;
pub mod sources;
pub mod tenants;
pub mod usage;
pub mod vector_dbs;
pub mod vector_store;
