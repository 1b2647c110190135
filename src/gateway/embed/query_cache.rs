//! Remembers the vectors of recent queries.

use super::super::turns::Whose;
use crate::model::{Embedder, Kind};
use crate::sync::lock;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Mutex;

/// Bounded by number of queries; the least recently asked is forgotten first.
pub struct QueryCache {
    entries: Mutex<Option<LruCache<CacheKey, Vec<f32>>>>,
}

impl QueryCache {
    /// `capacity` 0 remembers nothing.
    pub fn new(capacity: usize) -> Self {
        QueryCache { entries: Mutex::new(NonZeroUsize::new(capacity).map(LruCache::new)) }
    }

    /// Keeps what fits the new capacity.
    pub fn resize(&self, capacity: usize) {
        let mut entries = lock(&self.entries);
        match (NonZeroUsize::new(capacity), entries.as_mut()) {
            (None, _) => *entries = None,
            (Some(capacity), Some(cache)) => cache.resize(capacity),
            (Some(capacity), None) => *entries = Some(LruCache::new(capacity)),
        }
    }

    pub fn get(&self, key: &CacheKey) -> Option<Vec<f32>> {
        let mut entries = lock(&self.entries);
        entries.as_mut()?.get(key).cloned()
    }

    pub fn put(&self, key: CacheKey, vector: Vec<f32>) {
        let mut entries = lock(&self.entries);
        if let Some(cache) = entries.as_mut() {
            cache.put(key, vector);
        }
    }

    pub fn clear(&self) {
        let mut entries = lock(&self.entries);
        if let Some(cache) = entries.as_mut() {
            cache.clear();
        }
    }
}

/// A hash of all that an entry is for: see [`key`].
pub type CacheKey = [u8; 32];

/// A vector is found only by the tenant who asked, in that database, for the embedder as it is now, and by the right by
/// which it was asked: otherwise the time of an answer would reveal what other tenants have asked.
pub fn key(whose: &Whose, embedder: &Embedder, right: &[u8; 32], kind: Kind, text: &str) -> Option<CacheKey> {
    let mut hasher = blake3::Hasher::new();
    let embedder = rmp_serde::to_vec(embedder).ok()?;
    hasher.update(&whose.database.to_le_bytes());
    for part in [whose.tenant.as_bytes(), &embedder, right, &[kind as u8], text.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Some(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EmbedderConfig;

    fn embedder() -> Embedder {
        Embedder {
            id: "e".into(),
            provider: "hash".into(),
            model: "hash".into(),
            dimension: 8,
            base_url: None,
            config: EmbedderConfig::default(),
        }
    }

    #[test]
    fn another_tenant_database_embedder_right_or_kind_is_another_entry() {
        let cache = QueryCache::new(4);
        let whose = Whose { database: 1, tenant: "a".into(), connection: 1 };
        let right = [0; 32];
        let find = |whose: &Whose, embedder: &Embedder, right, kind| {
            cache.get(&key(whose, embedder, right, kind, "text").unwrap())
        };
        cache.put(key(&whose, &embedder(), &right, Kind::Query, "text").unwrap(), vec![1.0]);
        let other_connection = Whose { connection: 2, ..whose.clone() };
        assert_eq!(find(&other_connection, &embedder(), &right, Kind::Query), Some(vec![1.0]));
        for (tenant, database) in [("b", 1), ("a", 2), ("", 1)] {
            let other = Whose { database, tenant: tenant.into(), ..whose.clone() };
            assert_eq!(find(&other, &embedder(), &right, Kind::Query), None, "{other:?}");
        }
        for other in [
            Embedder { id: "f".into(), ..embedder() },
            Embedder { dimension: 9, ..embedder() },
            Embedder { base_url: Some("http://localhost:1".into()), ..embedder() },
        ] {
            assert_eq!(find(&whose, &other, &right, Kind::Query), None, "{other:?}");
        }
        assert_eq!(find(&whose, &embedder(), &[1; 32], Kind::Query), None);
        assert_eq!(find(&whose, &embedder(), &right, Kind::Document), None);
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let cache = QueryCache::new(2);
        for first in 0..3 {
            cache.put([first; 32], vec![]);
        }
        assert_eq!(cache.get(&[0; 32]), None);
        assert_eq!(cache.get(&[2; 32]), Some(vec![]));
        cache.resize(0);
        cache.put([3; 32], vec![]);
        assert_eq!(cache.get(&[3; 32]), None);
    }
}
