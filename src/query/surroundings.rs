//! Reads what surrounds hits in their documents, as the caller, and joins it with them.
//!
//! **Invariant:** a row that claims to be a slice of a document was compared with the document under the same
//! snapshot, and every chunk in it was read as the caller. Nothing is joined across a chunk that the caller
//! may not read.

use crate::query::sql::passages::{Range, pieces, text};
use crate::query::sql::search::SearchTarget;
use kb_search::passages;
use kb_search::passages::MAX_SECTION;
use kb_search::request::AnswerBounds;
use kb_types::Hit;
use kb_types::error::Result;
use std::collections::HashMap;

/// Tokens set aside for the text around each passage of a context (numbers, titles, addresses).
const AROUND: usize = 80;

/// Joins hits of one knowledge base with what surrounds them, as its settings specify. With `as_context`,
/// adjacent hits are joined in any case, and room is left for the text around each passage.
pub fn surrounded(
    target: &SearchTarget,
    hits: Vec<Hit>,
    bounds: &AnswerBounds,
    as_context: bool,
) -> Result<Vec<Hit>> {
    let settings = target.retrieval.surroundings;
    if hits.is_empty() {
        return Ok(hits);
    }
    let mut documents = pieces(target.build_no, &ranges(&hits, settings.neighbors, settings.section))?;
    // One text at a time, because they may be large.
    for (document_id, pieces) in &mut documents {
        let own = std::mem::take(pieces);
        *pieces = match text(*document_id)? {
            Some(text) => passages::verified(&text, own),
            None => Vec::new(),
        };
    }
    let around = if as_context { AROUND * hits.len() } else { 0 };
    let most = bounds.max_tokens.map(|most| most.saturating_sub(around));
    Ok(passages::with_surroundings(hits, &documents, settings, most))
}

/// The chunks that may be joined with hits, each once.
fn ranges(hits: &[Hit], neighbors: usize, section: bool) -> Vec<Range> {
    // At least those that are adjacent.
    let reach = neighbors.max(if section { MAX_SECTION } else { 0 }).max(1) as i32;
    let mut by_document: HashMap<i64, Vec<i32>> = HashMap::new();
    for hit in hits {
        by_document.entry(hit.row.place.document_id).or_default().push(hit.row.place.ordinal);
    }
    let mut ranges: Vec<Range> = Vec::new();
    for (document_id, mut ordinals) in by_document {
        ordinals.sort_unstable();
        for ordinal in ordinals {
            let (first, last) = (ordinal.saturating_sub(reach), ordinal.saturating_add(reach));
            match ranges.last_mut() {
                Some(range) if range.document_id == document_id && first <= range.last => range.last = last,
                _ => ranges.push(Range { document_id, first, last }),
            }
        }
    }
    ranges
}
