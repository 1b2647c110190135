//! The planner's statistics of what the worker fills.

use super::VectorDb;
use crate::pg::spi;
use crate::pg::{ddl, setting};
use kb_types::error::Result;

/// Takes statistics, so that sessions' plans made while the tables were small are made again. Cheap: only of the columns
/// that rows are looked up by. An error where an index is being built.
pub fn refresh<'a>(vector_dbs: impl IntoIterator<Item = &'a VectorDb>) -> Result<()> {
    let mut tables = String::from(
        "kb.documents (document_id, kb_no, external_id, status, error, source_no), kb.jobs,
         kb.chunks (build_no, chunk_id, document_id, kb_no, ordinal, content_hash)",
    );
    for vector_db in vector_dbs {
        // It may have gone with its knowledge base.
        if ddl::table_exists(&vector_db.table_name)? {
            tables.push_str(&format!(", {} (build_no, chunk_id)", vector_db.table()));
        }
    }
    // Of a tenth of the usual sample: how many there are of each is all that matters, and the next ANALYZE takes more. Whoever waits
    // longer than deadlock_timeout for autovacuum has it cancelled.
    let settings =
        [(c"lock_timeout", c"100ms"), (c"deadlock_timeout", c"1s"), (c"default_statistics_target", c"10")];
    setting::with(&settings, || spi::execute_utility(&format!("ANALYZE {tables}")))
}
