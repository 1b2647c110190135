//! A batch of texts for the gateway, and the chunks that wait for their vectors. Pure.

use crate::work::{Destination, Hold};
use foldhash::quality::RandomState;
use foldhash::{HashMap, HashSet};
use kb_gateway::frame;
use kb_gateway::protocol::Access;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};
use uuid::Uuid;

/// A chunk without a vector.
#[derive(Debug, Clone)]
pub struct BatchChunk {
    pub chunk_id: Uuid,
    pub document_id: i64,
    /// Which chunk of the document it is, from 0.
    pub ordinal: i32,
    /// Which of the batch's texts it has.
    pub text: usize,
}

pub struct Batch<T> {
    pub target: Arc<T>,
    /// The right to ask the embedder, as it was when the batch was made.
    pub access: Access,
    /// The tenant of its documents when it was sent; None if they are of several tenants, or that is not
    /// known.
    pub tenant: Option<String>,
    /// The texts, without duplicates: equal ones are sent once.
    pub texts: Vec<String>,
    /// Of each text.
    pub hashes: Vec<u64>,
    /// Of each text.
    pub tokens: Vec<u32>,
    pub chunks: Vec<BatchChunk>,
    pub holds: Vec<Hold>,
}

/// The hash of a text, keyed at random in each process, so that nobody can construct texts with equal hashes.
pub fn hash(text: &str) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    STATE.hash_one(text)
}

impl<T: Destination> Batch<T> {
    pub fn new(target: Arc<T>, access: Access) -> Batch<T> {
        let (texts, hashes, tokens) = (Vec::new(), Vec::new(), Vec::new());
        let (chunks, holds) = (Vec::new(), Vec::new());
        Batch { target, access, tenant: None, texts, hashes, tokens, chunks, holds }
    }

    /// Adds chunks: each with its text, and the tokens that it has.
    pub fn fill(&mut self, chunks: impl IntoIterator<Item = (BatchChunk, String, u32)>) {
        let mut known: HashMap<String, usize> = HashMap::default();
        for (chunk, text, tokens) in chunks {
            let text = *known.entry(text).or_insert_with_key(|text| {
                self.texts.push(text.clone());
                self.hashes.push(hash(text));
                self.tokens.push(tokens);
                self.texts.len() - 1
            });
            self.chunks.push(BatchChunk { text, ..chunk });
        }
    }

    /// The documents of its chunks, in order.
    pub fn documents(&self) -> Vec<i64> {
        let mut documents: Vec<i64> = self.chunks.iter().map(|chunk| chunk.document_id).collect();
        documents.dedup();
        documents
    }

    /// Bytes that it holds at the gateway.
    pub fn cost(&self) -> usize {
        let vectors = frame::vector_bytes(self.texts.len(), self.target.embedder().dimension);
        frame::cost(self.texts.iter().map(String::len).sum(), vectors)
    }

    /// Two batches of half the texts each, to find the one text that is refused.
    pub fn halves(self) -> [Batch<T>; 2] {
        let middle = self.texts.len() / 2;
        let (mut texts, mut hashes, mut tokens) = (self.texts, self.hashes, self.tokens);
        let second = (texts.split_off(middle), hashes.split_off(middle), tokens.split_off(middle));
        let (left, mut right): (Vec<_>, Vec<_>) =
            self.chunks.into_iter().partition(|chunk| chunk.text < middle);
        right.iter_mut().for_each(|chunk| chunk.text -= middle);
        let half = |(texts, hashes, tokens), chunks: Vec<BatchChunk>| {
            let documents: HashSet<i64> = chunks.iter().map(|chunk| chunk.document_id).collect();
            let mut holds = self.holds.clone();
            holds.retain(|hold| documents.contains(&hold.document_id));
            let (target, access, tenant) =
                (Arc::clone(&self.target), self.access.clone(), self.tenant.clone());
            Batch { target, access, tenant, texts, hashes, tokens, chunks, holds }
        };
        [half((texts, hashes, tokens), left), half(second, right)]
    }

    /// The chunks whose text has a vector, and their vectors one after the other. `numbers` holds those of
    /// the texts that are not in `failed` (in order of position).
    pub fn spread(&self, numbers: &[f32], failed: &[usize]) -> (Vec<Uuid>, Vec<f32>) {
        let dimension = self.target.embedder().dimension;
        let (mut ids, mut all) = (Vec::new(), Vec::with_capacity(self.chunks.len() * dimension));
        for chunk in &self.chunks {
            let before = failed.partition_point(|text| *text < chunk.text);
            if failed.get(before) == Some(&chunk.text) {
                continue;
            }
            let at = (chunk.text - before) * dimension;
            if let Some(vector) = numbers.get(at..at + dimension) {
                ids.push(chunk.chunk_id);
                all.extend_from_slice(vector);
            }
        }
        (ids, all)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::work::UnderWay;
    use kb_types::Embedder;

    pub struct TestBuild(pub i64, pub Embedder);

    impl Destination for TestBuild {
        fn build_no(&self) -> i64 {
            self.0
        }
        fn embedder(&self) -> &Embedder {
            &self.1
        }
    }

    pub fn build(build_no: i64, embedder: &str, provider: &str) -> Arc<TestBuild> {
        let config = kb_types::EmbedderConfig::default();
        let (id, provider) = (embedder.to_string(), provider.to_string());
        Arc::new(TestBuild(
            build_no,
            Embedder { id, provider, model: "m".into(), dimension: 2, base_url: None, config },
        ))
    }

    /// Chunks of documents: their ordinals are their numbers in all.
    pub fn batch(target: &Arc<TestBuild>, chunks: &[(i64, &str)]) -> Batch<TestBuild> {
        let mut batch = Batch::new(Arc::clone(target), Access::default());
        batch.fill(chunks.iter().zip(0..).map(|((document_id, text), ordinal)| {
            let chunk =
                BatchChunk { chunk_id: chunk_id(ordinal), document_id: *document_id, ordinal, text: 0 };
            (chunk, text.to_string(), 7)
        }));
        batch
    }

    pub fn chunk_id(ordinal: i32) -> Uuid {
        Uuid::from_u128(ordinal as u128 + 1)
    }

    #[test]
    fn equal_texts_are_sent_once_and_all_their_chunks_get_the_vector() {
        let batch = batch(&build(1, "e", "hash"), &[(1, "a"), (1, "b"), (2, "a")]);
        assert_eq!(batch.texts, ["a", "b"]);
        assert_eq!(batch.documents(), [1, 2]);
        let (ids, vectors) = batch.spread(&[0.1, 0.2, 0.3, 0.4], &[]);
        assert_eq!(ids, [chunk_id(0), chunk_id(1), chunk_id(2)]);
        assert_eq!(vectors, [0.1, 0.2, 0.3, 0.4, 0.1, 0.2]);
    }

    #[test]
    fn a_text_that_failed_has_no_vector_and_the_others_have_theirs() {
        let batch = batch(&build(1, "e", "hash"), &[(1, "a"), (1, "b"), (2, "c"), (3, "b")]);
        let (ids, vectors) = batch.spread(&[0.1, 0.2, 0.3, 0.4], &[1]);
        assert_eq!(ids, [chunk_id(0), chunk_id(2)]);
        assert_eq!(vectors, [0.1, 0.2, 0.3, 0.4]);
    }

    #[test]
    fn each_half_has_its_own_texts_chunks_and_documents() {
        let mut under_way = UnderWay::default();
        (1..=3).for_each(|id| under_way.add(id, ()));
        let mut whole =
            batch(&build(1, "e", "hash"), &[(1, "a"), (2, "b"), (2, "c"), (3, "c"), (1, "d"), (1, "e")]);
        whole.holds = under_way.hold([1, 2, 3]);
        let [left, right] = whole.halves();
        assert_eq!((left.texts.join(""), right.texts.join("")), ("ab".to_string(), "cde".to_string()));
        assert_eq!(right.chunks.iter().map(|chunk| chunk.text).collect::<Vec<_>>(), [0, 0, 1, 2]);
        let documents = |half: &Batch<TestBuild>| -> Vec<i64> {
            half.holds.iter().map(|hold| hold.document_id).collect()
        };
        assert_eq!((documents(&left), documents(&right)), (vec![1, 2], vec![1, 2, 3]));
        assert_eq!((left.hashes.len(), right.hashes.len(), right.tokens.len()), (2, 3, 3));
    }
}
