//! The batches that are at the gateway, and which texts have come back from it. Pure.

use super::embed_batch::{Batch, BatchChunk, hash};
use crate::work::{Destination, Hold};
use foldhash::{HashMap, HashSet};
use uuid::Uuid;

/// At most this many texts are remembered.
const RECEIVED: usize = 200_000;

pub struct InFlight<T> {
    /// By request id.
    batches: HashMap<u64, Batch<T>>,
    /// Which batch has a chunk or a text of a build, and where.
    by_chunk: HashMap<(i64, Uuid), (u64, usize)>,
    by_text: HashMap<(i64, u64), (u64, usize)>,
    /// Bytes that each batch holds at the gateway.
    costs: HashMap<u64, usize>,
    /// Hashes of texts that got their vectors, by build, as far as there is room: for a later chunk with such
    /// a text the worker looks whether the vector can be copied.
    received: HashSet<(i64, u64)>,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        InFlight {
            batches: HashMap::default(),
            by_chunk: HashMap::default(),
            by_text: HashMap::default(),
            costs: HashMap::default(),
            received: HashSet::default(),
        }
    }
}

/// A batch at the gateway that will bring a chunk's vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkPlace {
    batch: u64,
    /// The text of the batch that equals the chunk's; None if the batch has the chunk itself.
    text: Option<usize>,
}

impl<T: Destination> InFlight<T> {
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn clear(&mut self) {
        *self = InFlight::default();
    }

    pub fn add(&mut self, id: u64, batch: Batch<T>) {
        let build_no = batch.target.build_no();
        let chunks = batch.chunks.iter().enumerate();
        self.by_chunk.extend(chunks.map(|(at, chunk)| ((build_no, chunk.chunk_id), (id, at))));
        let texts = batch.hashes.iter().enumerate();
        self.by_text.extend(texts.map(|(text, hash)| ((build_no, *hash), (id, text))));
        self.costs.insert(id, batch.cost());
        self.batches.insert(id, batch);
    }

    /// The batch that a request was for: its answer has come.
    pub fn remove(&mut self, id: u64) -> Option<Batch<T>> {
        let batch = self.batches.remove(&id)?;
        let build_no = batch.target.build_no();
        // Another batch may have the same chunk or text by now.
        for chunk in &batch.chunks {
            let key = (build_no, chunk.chunk_id);
            if self.by_chunk.get(&key).is_some_and(|(of, _)| *of == id) {
                self.by_chunk.remove(&key);
            }
        }
        for hash in &batch.hashes {
            let key = (build_no, *hash);
            if self.by_text.get(&key).is_some_and(|(of, _)| *of == id) {
                self.by_text.remove(&key);
            }
        }
        self.costs.remove(&id);
        Some(batch)
    }

    /// Where a chunk's vector will come from, if the chunk is at the gateway already (it was sent before its
    /// document was claimed again) or another one with the same text is.
    pub fn find(&self, build_no: i64, chunk_id: Uuid, content: &str) -> Option<ChunkPlace> {
        if let Some((batch, _)) = self.by_chunk.get(&(build_no, chunk_id)) {
            return Some(ChunkPlace { batch: *batch, text: None });
        }
        let (batch, text) = *self.by_text.get(&(build_no, hash(content)))?;
        let is_equal = self.batches.get(&batch)?.texts.get(text).is_some_and(|text| text == content);
        is_equal.then_some(ChunkPlace { batch, text: Some(text) })
    }

    pub fn batch(&self, place: ChunkPlace) -> Option<&Batch<T>> {
        self.batches.get(&place.batch)
    }

    /// Has a chunk get its vector from a batch that is at the gateway, so that nothing is paid for twice.
    pub fn join(&mut self, place: ChunkPlace, chunk: BatchChunk, holds: Vec<Hold>) {
        let Some(batch) = self.batches.get_mut(&place.batch) else { return };
        batch.holds.extend(holds);
        let key = (batch.target.build_no(), chunk.chunk_id);
        match place.text {
            Some(text) => {
                self.by_chunk.insert(key, (place.batch, batch.chunks.len()));
                batch.chunks.push(BatchChunk { text, ..chunk });
            }
            // Its document may have been deleted and put again.
            None => {
                let own = self.by_chunk.get(&key).and_then(|(_, at)| batch.chunks.get_mut(*at));
                own.into_iter().for_each(|own| own.document_id = chunk.document_id);
            }
        }
    }

    /// Remembers the texts of a batch whose vectors are written.
    pub fn note_received(&mut self, batch: &Batch<T>) {
        if self.received.len() > RECEIVED {
            self.received.clear();
        }
        let build_no = batch.target.build_no();
        self.received.extend(batch.hashes.iter().map(|hash| (build_no, *hash)));
    }

    /// Whether this text has got a vector in this build.
    pub fn was_received(&self, build_no: i64, content: &str) -> bool {
        !self.received.is_empty() && self.received.contains(&(build_no, hash(content)))
    }

    /// Batches of local models.
    pub fn local_batches(&self) -> usize {
        self.batches.values().filter(|batch| !batch.target.is_remote()).count()
    }

    /// Texts of an embedder.
    pub fn texts_of(&self, embedder: &str) -> usize {
        let own = self.batches.values().filter(|batch| batch.target.embedder().id == embedder);
        own.map(|batch| batch.texts.len()).sum()
    }

    /// Texts of a build.
    pub fn texts_of_build(&self, build_no: i64) -> usize {
        let own = self.batches.values().filter(|batch| batch.target.build_no() == build_no);
        own.map(|batch| batch.texts.len()).sum()
    }

    /// Bytes that the batches of an embedder hold at the gateway, and those of all.
    pub fn cost(&self, embedder: &str) -> (usize, usize) {
        let cost = |id| self.costs.get(id).copied().unwrap_or(0);
        let own = self.batches.iter().filter(|(_, batch)| batch.target.embedder().id == embedder);
        (own.map(|(id, _)| cost(id)).sum(), self.costs.values().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::UnderWay;
    use crate::worker::embed::embed_batch::tests::{TestBuild, batch, build, chunk_id};

    fn chunk(ordinal: i32, document_id: i64) -> BatchChunk {
        BatchChunk { chunk_id: chunk_id(ordinal), document_id, ordinal, text: 0 }
    }

    #[test]
    fn a_text_at_the_gateway_is_not_sent_again_for_another_chunk() {
        let mut in_flight = InFlight::default();
        in_flight.add(5, batch(&build(1, "e", "hash"), &[(1, "a"), (1, "b")]));
        let place = in_flight.find(1, chunk_id(9), "b").unwrap();
        let mut under_way = UnderWay::default();
        under_way.add(2, ());
        in_flight.join(place, chunk(9, 2), under_way.hold([2]));
        // It is there itself now.
        assert_eq!(in_flight.find(1, chunk_id(9), "b"), Some(ChunkPlace { batch: 5, text: None }));
        let batch = in_flight.remove(5).unwrap();
        assert_eq!(batch.spread(&[0.1, 0.2, 0.3, 0.4], &[]).0, [chunk_id(0), chunk_id(1), chunk_id(9)]);
        assert_eq!(batch.holds.len(), 1);
        assert_eq!(in_flight.find(1, chunk_id(9), "b"), None);
    }

    #[test]
    fn a_chunk_at_the_gateway_is_of_the_document_that_was_put_again() {
        let mut in_flight = InFlight::default();
        in_flight.add(5, batch(&build(1, "e", "hash"), &[(1, "a"), (1, "b")]));
        let place = in_flight.find(1, chunk_id(1), "b").unwrap();
        in_flight.join(place, chunk(1, 2), Vec::new());
        let batch = in_flight.remove(5).unwrap();
        let documents: Vec<i64> = batch.chunks.iter().map(|chunk| chunk.document_id).collect();
        assert_eq!((documents, batch.texts.len()), (vec![1, 2], 2));
    }

    #[test]
    fn another_build_and_another_text_are_sent() {
        let mut in_flight: InFlight<TestBuild> = InFlight::default();
        in_flight.add(5, batch(&build(1, "e", "hash"), &[(1, "a")]));
        assert_eq!(in_flight.find(2, chunk_id(0), "a"), None);
        assert_eq!(in_flight.find(1, chunk_id(1), "c"), None);
        assert!(in_flight.find(1, chunk_id(0), "a").is_some());
    }

    #[test]
    fn removing_a_batch_keeps_the_places_of_a_later_one() {
        let mut in_flight = InFlight::default();
        let target = build(1, "e", "hash");
        in_flight.add(5, batch(&target, &[(1, "a")]));
        in_flight.add(6, batch(&target, &[(1, "a")]));
        in_flight.remove(5);
        assert_eq!(in_flight.find(1, chunk_id(0), "a"), Some(ChunkPlace { batch: 6, text: None }));
        assert_eq!(in_flight.find(1, chunk_id(7), "a"), Some(ChunkPlace { batch: 6, text: Some(0) }));
    }

    #[test]
    fn texts_and_bytes_are_counted_by_embedder() {
        let mut in_flight = InFlight::default();
        in_flight.add(1, batch(&build(1, "local", "hash"), &[(1, "a"), (1, "a")]));
        in_flight.add(2, batch(&build(2, "far", "openai"), &[(1, "a"), (1, "b")]));
        assert_eq!((in_flight.texts_of("local"), in_flight.texts_of("far")), (1, 2));
        assert_eq!((in_flight.texts_of_build(1), in_flight.texts_of_build(2)), (1, 2));
        assert_eq!(in_flight.local_batches(), 1);
        let ((local, all), (far, _)) = (in_flight.cost("local"), in_flight.cost("far"));
        assert!(local < far && local + far == all, "{local} {far} {all}");
    }

    #[test]
    fn texts_that_came_back_are_remembered_by_build() {
        let mut in_flight = InFlight::default();
        in_flight.note_received(&batch(&build(1, "e", "hash"), &[(1, "a")]));
        assert!(in_flight.was_received(1, "a"));
        assert!(!in_flight.was_received(2, "a") && !in_flight.was_received(1, "b"));
    }
}
