//! Enqueueing documents that a caller edited.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::jobs::sql::queue;
use crate::jobs::sql::queue::Subject;
use crate::pg::wake;
use kb_types::error::Result;
use kb_types::row_states::Priority;

/// Enqueues edits, as the owner, and requests that the commit wake the worker.
pub fn edits(kb: &KnowledgeBase, documents: &[Subject]) -> Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    queue::enqueue(kb.kb_no, documents, Priority::Live, None)?;
    wake::at_commit(kb.kb_no);
    Ok(())
}
