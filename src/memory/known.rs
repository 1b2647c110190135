//! What a memory knows of a subject, for the extraction of further facts.

use super::sql::entries;
use crate::builds::knowledge_bases::KnowledgeBase;
use kb_types::error::Result;

/// The newest facts of a subject that hold: ids and facts. For the worker.
pub fn newest(kb: &KnowledgeBase, subject: &str, limit: i64) -> Result<Vec<(String, String)>> {
    entries::newest(kb, subject, limit)
}
