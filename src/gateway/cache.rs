//! Remembers the vectors of recent queries.

use crate::model::{Embedder, Kind};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

/// Bounded by number of queries; the least recently asked is forgotten first.
pub struct QueryCache {
    entries: Mutex<Option<LruCache<[u8; 32], Vec<f32>>>>,
}

impl QueryCache {
    /// `capacity` 0 remembers nothing.
    pub fn new(capacity: usize) -> Self {
        QueryCache { entries: Mutex::new(NonZeroUsize::new(capacity).map(LruCache::new)) }
    }

    /// Keeps what fits the new capacity.
    pub fn resize(&self, capacity: usize) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match (NonZeroUsize::new(capacity), entries.as_mut()) {
            (None, _) => *entries = None,
            (Some(capacity), Some(cache)) => cache.resize(capacity),
            (Some(capacity), None) => *entries = Some(LruCache::new(capacity)),
        }
    }

    pub fn get(&self, embedder: &Embedder, kind: Kind, text: &str) -> Option<Vec<f32>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.as_mut()?.get(&key(embedder, kind, text)).cloned()
    }

    pub fn put(&self, embedder: &Embedder, kind: Kind, text: &str, vector: Vec<f32>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = entries.as_mut() {
            cache.put(key(embedder, kind, text), vector);
        }
    }

    pub fn clear(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = entries.as_mut() {
            cache.clear();
        }
    }

    pub fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, LruCache::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The fingerprint says which vectors mean the same, so it stands for the whole embedder. But what one address answers
/// is not told to those who ask another, in another database say.
fn key(embedder: &Embedder, kind: Kind, text: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&embedder.fingerprint().to_le_bytes());
    for part in [embedder.base_url.as_deref(), embedder.config.remote.path.as_deref()] {
        let part = part.unwrap_or_default();
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(&[kind as u8]);
    hasher.update(text.as_bytes());
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EmbedderConfig;

    fn embedder(dimension: usize) -> Embedder {
        Embedder {
            id: "e".into(),
            provider: "hash".into(),
            model: "hash".into(),
            dimension,
            base_url: None,
            config: EmbedderConfig::default(),
        }
    }

    #[test]
    fn another_embedder_address_or_kind_is_another_entry() {
        let cache = QueryCache::new(4);
        cache.put(&embedder(8), Kind::Query, "a", vec![1.0]);
        assert_eq!(cache.get(&embedder(8), Kind::Query, "a"), Some(vec![1.0]));
        assert_eq!(cache.get(&embedder(9), Kind::Query, "a"), None);
        assert_eq!(cache.get(&embedder(8), Kind::Document, "a"), None);
        let elsewhere = Embedder { base_url: Some("http://localhost:1".into()), ..embedder(8) };
        assert_eq!(cache.get(&elsewhere, Kind::Query, "a"), None);
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let cache = QueryCache::new(2);
        for text in ["a", "b", "c"] {
            cache.put(&embedder(8), Kind::Query, text, vec![]);
        }
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.get(&embedder(8), Kind::Query, "a"), None);
        cache.resize(0);
        cache.put(&embedder(8), Kind::Query, "d", vec![]);
        assert!(cache.is_empty());
    }
}
