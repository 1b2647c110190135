//! The report of kb.health on indexes that find too little, with a remedy.

use crate::evaluate::sql::index_recall;
use crate::evaluate::sql::index_recall::Low;
use crate::pg::role::as_owner;
use crate::vectors::hnsw;
use kb_search::scan_plan;
use kb_types::error::Result;
use std::collections::BTreeSet;

/// The least recall of an index that is not reported.
const LEAST_RECALL: f64 = 0.9;
/// The most knowledge bases whose indexes are named.
const MOST_NAMED: usize = 5;

/// The indexes that missed too much when they were last measured and that queries use nevertheless: what they
/// find, and a hint. Returns None if there are none.
pub fn poor_indexes() -> Result<Option<(String, String)>> {
    let (mut named, mut hints) = (Vec::new(), BTreeSet::new());
    for Low { kb_id, recall, is_auto, owns_table, vector_db } in index_recall::below(LEAST_RECALL)? {
        if is_auto {
            let vectors = vector_db.store().searched()?.map_or(0, |searched| searched.vectors);
            // Queries compare all vectors instead.
            if scan_plan::is_quick_exactly(vectors, vector_db.dimension) {
                continue;
            }
        }
        hints.insert(match is_auto {
            false => {
                "Set ef_search in retrieval to \"auto\" (kb.alter_knowledge_base) and measure again: kb.measure_recall(kb_id)."
            }
            true if owns_table && as_owner(|| hnsw::is_weak(&vector_db))? => {
                "An index is being rebuilt with more edges (see building in kb.status). Measure again when it is finished."
            }
            true if owns_table && hnsw::can_be_stronger(&vector_db) => {
                "Measure again (kb.measure_recall); the index is then rebuilt with more edges."
            }
            true => {
                "If the index is not rebuilt with more edges, create the knowledge base again with a vector_db \
                 (kb.create_vector_db) that has larger m and ef_construction, or a larger min_rows, below which all \
                 vectors are compared."
            }
        });
        named.push(format!("knowledge base \"{kb_id}\": {recall:.2}"));
        if named.len() == MOST_NAMED {
            break;
        }
    }
    let detail = format!("an index finds too little of what an exact search finds: {}", named.join("; "));
    let hint = hints.into_iter().collect::<Vec<_>>().join(" ");
    Ok((!named.is_empty()).then_some((detail, hint)))
}
