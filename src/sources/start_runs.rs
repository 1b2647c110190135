//! Starts runs of sources: of all of a knowledge base (kb.ingest), or of those that are due by their
//! schedule.

use super::sql::catalog;
use crate::builds::runs;
use kb_types::error::Result;
use kb_types::row_states::RunStrategy;

/// Enqueues the sources of a knowledge base for a run. Must run as the owner.
pub fn of_knowledge_base(kb_no: i64, run_no: i64) -> Result<()> {
    catalog::enqueue(kb_no, None, run_no)
}

/// Starts a run of each source whose time has come, except those that wait or are in progress.
pub fn due() -> Result<bool> {
    let due = catalog::take_due()?;
    for source in &due {
        let run_no = runs::insert(source.kb_no, &source.tenant_id, RunStrategy::Upsert)?;
        runs::set_scanned(run_no, source.documents, source.documents)?;
        catalog::enqueue(source.kb_no, Some(source.source_no), run_no)?;
    }
    Ok(!due.is_empty())
}
