//! What all statements share: the settings under which they are planned, and PostgreSQL's own catalogs.
//!
//! SQL text stands only in modules `sql`, of this room and of the others, with a file for each table. Their
//! functions take and return plain values.
//!
//! **Invariant:** values are passed as `$n`, every name in SQL has its schema, and the names of vector tables
//! come from kb.builds or kb.vector_dbs, where they were checked.
//!
//! **Invariant:** a statement that a caller runs once per document finds its rows by whole keys, whatever the
//! statistics say, because a plan that was made while a table was empty is kept ([`BY_INDEX`]).
//!
//! Whether a session may read a row depends on the row's own `tenant_id`, never on that of the knowledge
//! base. Runs and builds belong to the tenant of the knowledge base, and their foreign keys carry it.
//! Documents, jobs, chunks and vectors may belong to any tenant, because rows of one table with a tenant
//! column go into one knowledge base. Therefore:
//!
//! - An external_id is unique within its tenant only. `documents` is unique by (kb_no, tenant_id,
//!   external_id), `jobs` by (kb_no, tenant_id, kind, subject), and a chunk's id contains the tenant if that
//!   is not the tenant of the knowledge base. Otherwise one tenant's put would change another's document, or
//!   be refused because of it and so reveal it.
//! - The foreign keys from these tables to the knowledge base do not carry the tenant. PostgreSQL checks
//!   foreign keys past row-level security, but they reveal only that a knowledge base exists, and only to
//!   those who may insert, which is kb's library.
//! - SQL functions put, delete and retry documents of the knowledge base's own tenant. kb.ingest processes
//!   the documents of all tenants, because a build has every document; its caller learns how many there are,
//!   not which.
//! - A claim is fair among the tenants that own knowledge bases. Within one knowledge base, jobs are claimed
//!   in the order in which they were enqueued.
//!
//! `kb.documents` repeats the knowledge base's id in each row, because users write `WHERE kb_id =
//! 'handbook'`. A view that joins the id in would not be the relation to which policies, triggers, locks and
//! statistics belong, and every read would pay for the join. The foreign key (kb_no, kb_id) keeps the column
//! true.

use std::ffi::CStr;

/// Settings under which rows are found by an index, even if the plan is made (and kept) while the table is
/// empty.
pub const BY_INDEX: &[(&CStr, &CStr)] = &[(c"enable_seqscan", c"off")];

/// The same, for statements for which one plan is right for any arguments and planning would take as long as
/// looking up a few rows.
pub const BY_INDEX_UNPLANNED: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"plan_cache_mode", c"force_generic_plan")];

/// Settings under which rows are read in the order of an index, whatever the statistics say when the plan is
/// made.
pub const IN_ORDER: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_bitmapscan", c"off"), (c"enable_sort", c"off")];

/// Settings under which a statement that begins with a few rows looks up each of them in the other tables by
/// an index, whatever the statistics say.
pub const BY_LOOKUPS: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_hashjoin", c"off"), (c"enable_mergejoin", c"off")];

/// Settings under which rows that are looked up by an array of keys are joined with a list that has these
/// keys, whatever the statistics say: the list is not read for each of the rows, nor the table for the list.
pub const KEYS_BY_HASH: &[(&CStr, &CStr)] =
    &[(c"enable_seqscan", c"off"), (c"enable_nestloop", c"off"), (c"enable_mergejoin", c"off")];

/// Settings under which each side of a join is read once, whatever the statistics say.
pub const BY_HASH: &[(&CStr, &CStr)] = &[(c"enable_nestloop", c"off"), (c"enable_mergejoin", c"off")];

/// Whether this transaction has written a row of a table, other than in a savepoint that was rolled back. A
/// row that is visible while its transaction is in progress is the caller's own. An xmin older than this
/// transaction may be from an earlier epoch: with the current epoch it would name a transaction of the
/// future, which raises an error.
pub const IS_UNCOMMITTED: &str = "CASE WHEN pg_catalog.age(xmin) <= 0 THEN
    pg_catalog.pg_xact_status((((pg_catalog.pg_current_xact_id()::text::bigint >> 32) << 32)
        + xmin::text::bigint)::text::xid8) = 'in progress' END";

pub mod server_catalogs;
