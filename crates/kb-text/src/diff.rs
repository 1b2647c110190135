//! Matches the new chunks of a document with the stored ones by content, so that only new text is embedded.
//!
//! **Invariant:** a chunk's id is made of the knowledge base, the external_id, the tenant where it is not the
//! knowledge base's, the hash of the content and the ordinal among equal hashes. With `chunking.context` the
//! hash covers context and content, so that chunks with different contexts do not share a vector. The
//! namespace never changes, because ids are stored.

use crate::chunk_settings::Chunk;
use foldhash::{HashMap, HashSet};
use uuid::Uuid;

/// The version 5 namespace of chunk ids. It must never change, because ids are stored.
const NAMESPACE: Uuid = Uuid::from_u128(0x6b62_0001_9d5c_5c0e_8a51_6368_756e_6b73);

/// Identifies a document. Tenants choose external_ids independently of each other.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub kb_no: i64,
    /// The document's tenant, where it differs from that of the knowledge base.
    pub other_tenant: Option<&'a str>,
    pub external_id: &'a str,
}

/// The changes to make in kb.chunks. Ordinals count from 0 in the order of the document.
#[derive(Debug, Default, PartialEq)]
pub struct Diff {
    pub insert: Vec<(Uuid, usize, Chunk)>,
    /// The content hash of each chunk to insert.
    pub hashes: Vec<[u8; 32]>,
    /// Rows whose text is unchanged. Ordinal, span and locator may differ.
    pub keep: Vec<(Uuid, usize, Chunk)>,
    pub delete: Vec<Uuid>,
}

/// The id of the `nth` chunk (from 0) with this content hash in a document.
pub fn chunk_id(document: Identity, hash: &[u8; 32], nth: usize) -> Uuid {
    // The first parts have a fixed length, and texts in PostgreSQL have no NUL, so different tuples never
    // give the same name.
    let mut name = Vec::with_capacity(48 + document.external_id.len());
    name.extend_from_slice(&document.kb_no.to_be_bytes());
    name.extend_from_slice(hash);
    name.extend_from_slice(&(nth as u64).to_be_bytes());
    name.extend_from_slice(document.external_id.as_bytes());
    if let Some(tenant) = document.other_tenant {
        name.push(0);
        name.extend_from_slice(tenant.as_bytes());
    }
    Uuid::new_v5(&NAMESPACE, &name)
}

/// Compares the stored chunks (id, content hash; in any order) with the new ones (in order).
/// A stored row whose hash is not that of its id is in both `delete` and `insert`: delete first.
pub fn diff(document: Identity, existing: &[(Uuid, [u8; 32])], chunks: Vec<Chunk>) -> Diff {
    let stored: HashMap<Uuid, &[u8; 32]> = existing.iter().map(|(id, hash)| (*id, hash)).collect();
    let mut seen: HashMap<[u8; 32], usize> = HashMap::default();
    let mut kept: HashSet<Uuid> = HashSet::default();
    let mut diff = Diff::default();
    for (ordinal, chunk) in chunks.into_iter().enumerate() {
        let hash = chunk.hash();
        let nth = seen.entry(hash).or_default();
        let id = chunk_id(document, &hash, *nth);
        *nth += 1;
        if stored.get(&id).is_some_and(|known| **known == hash) {
            kept.insert(id);
            diff.keep.push((id, ordinal, chunk));
        } else {
            diff.insert.push((id, ordinal, chunk));
            diff.hashes.push(hash);
        }
    }
    diff.delete = existing.iter().map(|(id, _)| *id).filter(|id| !kept.contains(id)).collect();
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_settings::Span;
    use kb_types::Locator;

    const D: Identity = Identity { kb_no: 1, other_tenant: None, external_id: "d" };

    fn chunks(texts: &[&str]) -> Vec<Chunk> {
        let chunk = |t: &&str| Chunk {
            content: t.to_string(),
            context: None,
            span: Span { start: 0, end: t.chars().count() },
            token_count: 1,
            locator: Locator::default(),
        };
        texts.iter().map(chunk).collect()
    }

    /// The rows after a diff has been carried out.
    fn apply(before: &[(Uuid, [u8; 32])], diff: &Diff) -> Vec<(Uuid, [u8; 32])> {
        let mut rows: Vec<_> = before.iter().filter(|(id, _)| !diff.delete.contains(id)).copied().collect();
        assert!(diff.insert.iter().map(|(_, _, chunk)| chunk.hash()).eq(diff.hashes.iter().copied()));
        rows.extend(diff.insert.iter().zip(&diff.hashes).map(|((id, _, _), hash)| (*id, *hash)));
        rows
    }

    #[test]
    fn the_same_text_again_changes_nothing() {
        let rows = apply(&[], &diff(D, &[], chunks(&["a", "b", "a"])));
        let again = diff(D, &rows, chunks(&["a", "b", "a"]));
        assert_eq!((again.insert.len(), again.keep.len(), again.delete.len()), (0, 3, 0));
    }

    #[test]
    fn only_changed_chunks_are_inserted_and_deleted() {
        let rows = apply(&[], &diff(D, &[], chunks(&["a", "b", "c"])));
        let edit = diff(D, &rows, chunks(&["x", "a", "c"]));
        assert_eq!(
            edit.insert.iter().map(|(_, n, c)| (*n, c.content.as_str())).collect::<Vec<_>>(),
            [(0, "x")]
        );
        assert_eq!(edit.keep.iter().map(|(_, n, _)| *n).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(edit.delete, [rows[1].0]);
    }

    #[test]
    fn equal_texts_in_a_document_have_different_ids() {
        let first = diff(D, &[], chunks(&["a", "a", "a"]));
        let ids: HashSet<Uuid> = first.insert.iter().map(|(id, _, _)| *id).collect();
        assert_eq!(ids.len(), 3);
        let rows = apply(&[], &first);
        let fewer = diff(D, &rows, chunks(&["a"]));
        assert_eq!((fewer.insert.len(), fewer.keep.len(), fewer.delete.len()), (0, 1, 2));
    }

    #[test]
    fn ids_depend_on_knowledge_base_tenant_document_content_and_ordinal() {
        let hash = *blake3::hash(b"a").as_bytes();
        let id = chunk_id(D, &hash, 0);
        assert_eq!(id, chunk_id(D, &hash, 0));
        // Ids are stored, so a change of an id between versions of kb would orphan every vector.
        assert_eq!(id.to_string(), "4732bf9b-91ff-581a-a2a5-c7fe941f667c");
        let of_other = |tenant| Identity { other_tenant: Some(tenant), ..D };
        for other in [
            chunk_id(Identity { kb_no: 2, ..D }, &hash, 0),
            chunk_id(Identity { external_id: "e", ..D }, &hash, 0),
            chunk_id(D, &hash, 1),
            chunk_id(of_other(""), &hash, 0),
        ] {
            assert_ne!(id, other);
        }
        assert_ne!(chunk_id(of_other("a"), &hash, 0), chunk_id(of_other("b"), &hash, 0));
        assert_eq!(chunk_id(of_other("b"), &hash, 0).to_string(), "b407328c-d34b-5dee-beec-cb5b21576281");
    }

    #[test]
    fn a_row_whose_content_was_changed_by_hand_is_replaced() {
        let mut rows = apply(&[], &diff(D, &[], chunks(&["a"])));
        rows[0].1 = [0; 32];
        let repaired = diff(D, &rows, chunks(&["a"]));
        assert_eq!((repaired.insert.len(), repaired.delete.len()), (1, 1));
        assert_eq!(repaired.insert[0].0, repaired.delete[0]);
    }
}
