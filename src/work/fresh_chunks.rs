//! Chunks that were just written and have no vector: they are sent without being read again. Pure.

use kb_text::chunk_settings::Chunk;
use kb_types::Missing;
use kb_types::chunk_context::MAX_TOKENS;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long chunks are kept: what waits longer may have been edited or deleted, and would be paid for in
/// vain.
const KEPT: Duration = Duration::from_secs(1);
/// Maximum size in bytes of the texts that are kept for a group.
const MOST: usize = 4 * 1024 * 1024;

/// All chunks of some documents that have no vector, in the order of document and ordinal.
#[derive(Debug, PartialEq)]
pub struct FreshChunks {
    /// None: they are not known, and have to be looked for.
    chunks: Option<VecDeque<Missing>>,
    /// Bytes of the texts that were added.
    size: usize,
    written: Instant,
}

impl FreshChunks {
    /// Of no document yet.
    pub fn new(now: Instant) -> FreshChunks {
        FreshChunks { chunks: Some(VecDeque::new()), size: 0, written: now }
    }

    /// Adds a document's new chunks, each with its id and ordinal; None: others of it may have no vector, or
    /// some of these have one.
    pub fn add(&mut self, document_id: i64, new: Option<Vec<(Uuid, usize, Chunk)>>) {
        let (Some(chunks), Some(new)) = (&mut self.chunks, new) else {
            self.chunks = None;
            return;
        };
        for (chunk_id, ordinal, mut chunk) in new {
            chunk.context = chunk.context.filter(|context| !context.is_empty());
            let of_context = chunk.context.as_ref().map_or(0, |_| MAX_TOKENS);
            let token_count = (chunk.token_count + of_context) as i32;
            let content = match &chunk.context {
                Some(_) => chunk.whole().into_owned(),
                None => chunk.content,
            };
            self.size += content.len();
            chunks.push_back(Missing {
                document_id,
                ordinal: ordinal as i32,
                chunk_id,
                content,
                token_count,
            });
        }
        self.forget_many();
    }

    /// Adds those of other documents.
    pub fn append(&mut self, other: FreshChunks) {
        self.written = self.written.min(other.written);
        self.size += other.size;
        match (&mut self.chunks, other.chunks) {
            (Some(chunks), Some(mut others)) => chunks.append(&mut others),
            (chunks, _) => *chunks = None,
        }
        self.forget_many();
        self.sort();
    }

    fn forget_many(&mut self) {
        if self.size > MOST {
            self.chunks = None;
        }
    }

    /// Brings them in order, after documents were added.
    pub fn sort(&mut self) {
        if let Some(chunks) = &mut self.chunks {
            chunks.make_contiguous().sort_by_key(|chunk| (chunk.document_id, chunk.ordinal));
        }
    }

    /// Forgets those that were written a while ago.
    pub fn forget_old(&mut self, now: Instant) {
        if now.duration_since(self.written) >= KEPT {
            self.chunks = None;
        }
    }

    /// Takes at most `most` of the next chunks, and says whether none is left. None if they are not known.
    pub fn take(&mut self, most: usize) -> Option<(Vec<Missing>, bool)> {
        let chunks = self.chunks.as_mut()?;
        let taken = chunks.drain(..most.min(chunks.len())).collect();
        Some((taken, chunks.is_empty()))
    }

    /// Puts back what was taken last, or the end of it.
    pub fn put_back(&mut self, taken: Vec<Missing>) {
        let Some(chunks) = &mut self.chunks else { return };
        taken.into_iter().rev().for_each(|chunk| chunks.push_front(chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kb_text::chunk_settings::Span;
    use kb_types::Locator;

    fn chunk(ordinal: usize, content: &str, context: Option<&str>) -> (Uuid, usize, Chunk) {
        let (content, context) = (content.to_string(), context.map(str::to_string));
        let (span, locator) = (Span { start: 0, end: 1 }, Locator::default());
        (Uuid::from_u128(ordinal as u128), ordinal, Chunk { content, context, span, token_count: 3, locator })
    }

    fn places(chunks: &[Missing]) -> Vec<(i64, i32)> {
        chunks.iter().map(|chunk| (chunk.document_id, chunk.ordinal)).collect()
    }

    #[test]
    fn chunks_are_taken_in_the_order_of_documents_and_ordinals_and_each_once() {
        let now = Instant::now();
        let (mut fresh, mut others) = (FreshChunks::new(now), FreshChunks::new(now));
        fresh.add(9, Some(vec![chunk(1, "b", None), chunk(0, "a", None)]));
        fresh.add(4, Some(vec![chunk(0, "c", None)]));
        fresh.sort();
        others.add(7, Some(vec![chunk(0, "d", None)]));
        fresh.append(others);
        let (mut taken, is_all) = fresh.take(3).unwrap();
        assert_eq!(places(&taken), [(4, 0), (7, 0), (9, 0)]);
        assert!(!is_all);
        fresh.put_back(taken.split_off(1));
        let (taken, is_all) = fresh.take(3).unwrap();
        assert_eq!(places(&taken), [(7, 0), (9, 0), (9, 1)]);
        assert!(is_all && fresh.take(3) == Some((Vec::new(), true)));
    }

    #[test]
    fn what_is_sent_is_the_context_and_the_text() {
        let mut fresh = FreshChunks::new(Instant::now());
        let contexts = [None, Some(""), Some("Ships")];
        fresh.add(1, Some(contexts.into_iter().enumerate().map(|(i, c)| chunk(i, "text", c)).collect()));
        let (taken, _) = fresh.take(9).unwrap();
        let found: Vec<(&str, i32)> = taken.iter().map(|c| (c.content.as_str(), c.token_count)).collect();
        assert_eq!(found, [("text", 3), ("text", 3), ("Ships\n\ntext", 3 + MAX_TOKENS as i32)]);
    }

    #[test]
    fn chunks_are_not_known_where_one_document_s_are_not_or_they_are_old_or_many() {
        let now = Instant::now();
        let known = || {
            let mut fresh = FreshChunks::new(now);
            fresh.add(1, Some(vec![chunk(0, "a", None)]));
            fresh
        };
        let mut one = known();
        one.add(2, None);
        one.add(3, Some(vec![chunk(0, "b", None)]));
        assert_eq!(one.take(1), None);
        let mut both = known();
        both.append(one);
        assert_eq!(both.take(1), None);
        let (mut young, mut old) = (known(), known());
        young.forget_old(now + KEPT / 2);
        old.forget_old(now + KEPT);
        assert!(young.take(1).is_some() && old.take(1).is_none());
        // As old as the oldest of them.
        let mut joined = FreshChunks::new(now + KEPT);
        joined.append(known());
        joined.forget_old(now + KEPT);
        assert_eq!(joined.take(1), None);
        let large = "x".repeat(MOST / 2 + 1);
        let mut many = known();
        many.add(2, Some(vec![chunk(0, &large, None)]));
        assert!(many.take(0).is_some());
        many.add(3, Some(vec![chunk(0, &large, None)]));
        assert_eq!(many.take(1), None);
    }
}
