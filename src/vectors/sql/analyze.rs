//! The planner's statistics of the tables that the worker fills.

use super::VectorDb;
use crate::pg::spi;
use crate::pg::{ddl, setting};
use kb_types::error::Result;

/// Gathers statistics, so that sessions replan statements that they planned while the tables were small. This
/// is cheap, because it covers only the columns by which rows are looked up. Returns an error while an index
/// is being built.
pub fn refresh<'a>(vector_dbs: impl IntoIterator<Item = &'a VectorDb>) -> Result<()> {
    let mut tables = String::from(
        "kb.documents (document_id, kb_no, external_id, status, error, source_no), kb.jobs,
         kb.chunks (build_no, chunk_id, document_id, kb_no, ordinal, content_hash)",
    );
    for vector_db in vector_dbs {
        // The table may have been dropped with its knowledge base.
        if ddl::table_exists(&vector_db.table_name)? {
            tables.push_str(&format!(", {} (build_no, chunk_id)", vector_db.table()));
        }
    }
    // A tenth of the usual sample is enough, because only the number of rows for each value matters, and the
    // next ANALYZE takes more. A session that waits for autovacuum for longer than deadlock_timeout cancels
    // it.
    let settings =
        [(c"lock_timeout", c"100ms"), (c"deadlock_timeout", c"1s"), (c"default_statistics_target", c"10")];
    setting::with(&settings, || spi::execute_utility(&format!("ANALYZE {tables}")))
}
