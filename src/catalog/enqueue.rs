//! Enqueueing documents that a caller edited.

use crate::pg::wake;
use crate::store::jobs::{self, Subject};
use crate::store::knowledge_bases::KnowledgeBase;
use kb_types::error::Result;
use kb_types::states::Priority;

/// Enqueues edits, as the owner, and has the worker woken at commit.
pub fn edits(kb: &KnowledgeBase, documents: &[Subject]) -> Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    jobs::enqueue(kb.kb_no, documents, Priority::Live, None)?;
    wake::at_commit(kb.kb_no);
    Ok(())
}
