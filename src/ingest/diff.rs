//! Matches a document's new chunks to its stored ones by content, so that only new text is embedded.

use crate::model::Chunk;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// The version 5 namespace of chunk ids. Never to be changed: ids are stored.
const NAMESPACE: Uuid = Uuid::from_u128(0x6b62_0001_9d5c_5c0e_8a51_6368_756e_6b73);

/// What has to change in kb.chunks. Ordinals count from 0 in the order of the document.
#[derive(Debug, Default, PartialEq)]
pub struct Diff {
    pub insert: Vec<(Uuid, usize, Chunk)>,
    /// Rows whose text is unchanged; ordinal, span and headings may have moved.
    pub keep: Vec<(Uuid, usize, Chunk)>,
    pub delete: Vec<Uuid>,
}

/// The id of the `nth` chunk (from 0) with this content hash in a document.
pub fn chunk_id(kb_no: i64, external_id: &str, hash: &[u8; 32], nth: usize) -> Uuid {
    // All parts but one have a fixed length, so no two different tuples give the same name.
    let mut name = Vec::with_capacity(48 + external_id.len());
    name.extend_from_slice(&kb_no.to_be_bytes());
    name.extend_from_slice(hash);
    name.extend_from_slice(&(nth as u64).to_be_bytes());
    name.extend_from_slice(external_id.as_bytes());
    Uuid::new_v5(&NAMESPACE, &name)
}

/// Compares the stored chunks (id, content hash; in any order) with the new ones (in order).
/// A stored row whose hash is not that of its id is in both `delete` and `insert`: delete first.
pub fn diff(kb_no: i64, external_id: &str, existing: &[(Uuid, [u8; 32])], chunks: Vec<Chunk>) -> Diff {
    let stored: HashMap<Uuid, &[u8; 32]> = existing.iter().map(|(id, hash)| (*id, hash)).collect();
    let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
    let mut kept: HashSet<Uuid> = HashSet::new();
    let mut diff = Diff::default();
    for (ordinal, chunk) in chunks.into_iter().enumerate() {
        let hash = chunk.hash();
        let nth = seen.entry(hash).or_default();
        let id = chunk_id(kb_no, external_id, &hash, *nth);
        *nth += 1;
        if stored.get(&id).is_some_and(|known| **known == hash) {
            kept.insert(id);
            diff.keep.push((id, ordinal, chunk));
        } else {
            diff.insert.push((id, ordinal, chunk));
        }
    }
    diff.delete = existing.iter().map(|(id, _)| *id).filter(|id| !kept.contains(id)).collect();
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Span;

    fn chunks(texts: &[&str]) -> Vec<Chunk> {
        let chunk = |t: &&str| Chunk {
            content: t.to_string(),
            span: Span { start: 0, end: t.chars().count() },
            token_count: 1,
            headings: vec![],
        };
        texts.iter().map(chunk).collect()
    }

    /// The rows after a diff has been carried out.
    fn apply(before: &[(Uuid, [u8; 32])], diff: &Diff) -> Vec<(Uuid, [u8; 32])> {
        let mut rows: Vec<_> = before.iter().filter(|(id, _)| !diff.delete.contains(id)).copied().collect();
        rows.extend(diff.insert.iter().map(|(id, _, c)| (*id, c.hash())));
        rows
    }

    #[test]
    fn the_same_text_again_changes_nothing() {
        let rows = apply(&[], &diff(1, "d", &[], chunks(&["a", "b", "a"])));
        let again = diff(1, "d", &rows, chunks(&["a", "b", "a"]));
        assert_eq!((again.insert.len(), again.keep.len(), again.delete.len()), (0, 3, 0));
    }

    #[test]
    fn only_what_changed_is_inserted_and_deleted() {
        let rows = apply(&[], &diff(1, "d", &[], chunks(&["a", "b", "c"])));
        let edit = diff(1, "d", &rows, chunks(&["x", "a", "c"]));
        assert_eq!(
            edit.insert.iter().map(|(_, n, c)| (*n, c.content.as_str())).collect::<Vec<_>>(),
            [(0, "x")]
        );
        assert_eq!(edit.keep.iter().map(|(_, n, _)| *n).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(edit.delete, [rows[1].0]);
    }

    #[test]
    fn equal_texts_in_a_document_have_different_ids() {
        let first = diff(1, "d", &[], chunks(&["a", "a", "a"]));
        let ids: HashSet<Uuid> = first.insert.iter().map(|(id, _, _)| *id).collect();
        assert_eq!(ids.len(), 3);
        let rows = apply(&[], &first);
        let fewer = diff(1, "d", &rows, chunks(&["a"]));
        assert_eq!((fewer.insert.len(), fewer.keep.len(), fewer.delete.len()), (0, 1, 2));
    }

    #[test]
    fn ids_depend_on_knowledge_base_document_content_and_ordinal() {
        let hash = *blake3::hash(b"a").as_bytes();
        let id = chunk_id(1, "d", &hash, 0);
        assert_eq!(id, chunk_id(1, "d", &hash, 0));
        // Stored: an id that changes between versions of kb orphans every vector.
        assert_eq!(id.to_string(), "4732bf9b-91ff-581a-a2a5-c7fe941f667c");
        for other in [chunk_id(2, "d", &hash, 0), chunk_id(1, "e", &hash, 0), chunk_id(1, "d", &hash, 1)] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn a_row_whose_content_was_changed_by_hand_is_replaced() {
        let mut rows = apply(&[], &diff(1, "d", &[], chunks(&["a"])));
        rows[0].1 = [0; 32];
        let repaired = diff(1, "d", &rows, chunks(&["a"]));
        assert_eq!((repaired.insert.len(), repaired.delete.len()), (1, 1));
        assert_eq!(repaired.insert[0].0, repaired.delete[0]);
    }
}
