//! What a memory knows of a subject, for the extraction of further facts.

use super::sql::{consolidations, entries};
use crate::builds::builds;
use crate::builds::knowledge_bases::KnowledgeBase;
use kb_search::related;
use kb_types::error::Result;
use std::collections::HashMap;

pub use super::sql::entries::KnownFact;

/// The newest facts of a subject that hold, without those that others were merged into. For the worker.
pub fn newest(kb: &KnowledgeBase, subject: &str, limit: i64) -> Result<Vec<KnownFact>> {
    entries::newest(kb, subject, limit)
}

/// How similar facts are to the nearest of these vectors, by document_id. Those without a vector are left
/// out. For the worker.
pub fn similarities(
    kb: &KnowledgeBase,
    facts: &[KnownFact],
    vectors: &[Vec<f32>],
) -> Result<HashMap<i64, f64>> {
    if vectors.is_empty() {
        return Ok(HashMap::new());
    }
    let build = builds::live(kb.kb_no)?;
    let document_ids: Vec<i64> = facts.iter().map(|fact| fact.document_id).collect();
    let entries = consolidations::read(build.build_no, &document_ids)?;
    let chunk_ids: Vec<_> = entries.iter().filter_map(|entry| entry.chunk_id).collect();
    let theirs = build.vector_db.store().all_vectors(build.build_no, &chunk_ids)?;
    let similarity = |chunk_id| related::similarity(theirs.get(chunk_id)?, vectors);
    Ok(entries
        .iter()
        .filter_map(|entry| Some((entry.document_id, similarity(entry.chunk_id.as_ref()?)?)))
        .collect())
}

/// The embedder whose vectors the facts of a memory have.
pub fn embedder(kb: &KnowledgeBase) -> Result<String> {
    Ok(builds::live(kb.kb_no)?.embedder)
}
