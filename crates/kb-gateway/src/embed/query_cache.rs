//! A cache of the vectors of recent queries.

use super::super::turns::Whose;
use kb_types::sync::lock;
use kb_types::{Embedder, Kind};
use lru::LruCache;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

/// The cache is bounded by the number of queries. If it is full, the tenant with the most entries loses its
/// least recently used one, so that no tenant takes the share of others.
pub struct QueryCache {
    entries: Mutex<Entries>,
}

/// A database, and a tenant in it.
type Tenant = (u32, String);

#[derive(Default)]
struct Entries {
    capacity: usize,
    count: usize,
    tenants: HashMap<Tenant, LruCache<CacheKey, Vec<f32>>>,
    /// The tenants by their number of entries, so that the one with the most is found at once.
    by_count: BTreeSet<(usize, Tenant)>,
}

impl Entries {
    fn count_of(&self, tenant: &Tenant) -> usize {
        self.tenants.get(tenant).map_or(0, LruCache::len)
    }

    fn put(&mut self, tenant: &Tenant, key: CacheKey, vector: Vec<f32>) {
        let before = self.count_of(tenant);
        let own = self.tenants.entry(tenant.clone()).or_insert_with(LruCache::unbounded);
        own.put(key, vector);
        self.recount(tenant, before);
    }

    /// Removes one entry, preferably of `tenant` if no other tenant has more.
    fn forget_one(&mut self, tenant: &Tenant) {
        let Some((before, most)) = self.by_count.last().cloned() else { return };
        let most = if self.count_of(tenant) == before { tenant.clone() } else { most };
        if let Some(entries) = self.tenants.get_mut(&most) {
            entries.pop_lru();
        }
        self.recount(&most, before);
    }

    /// Updates the number of entries of a tenant, which had `before`.
    fn recount(&mut self, tenant: &Tenant, before: usize) {
        let now = self.count_of(tenant);
        self.count = self.count - before + now;
        self.by_count.remove(&(before, tenant.clone()));
        match now {
            0 => drop(self.tenants.remove(tenant)),
            now => drop(self.by_count.insert((now, tenant.clone()))),
        }
    }
}

impl QueryCache {
    /// With a `capacity` of 0 nothing is cached.
    pub fn new(capacity: usize) -> Self {
        QueryCache { entries: Mutex::new(Entries { capacity, ..Entries::default() }) }
    }

    /// Keeps the entries that fit into the new capacity.
    pub fn resize(&self, capacity: usize) {
        let mut entries = lock(&self.entries);
        entries.capacity = capacity;
        while entries.count > capacity {
            entries.forget_one(&Tenant::default());
        }
    }

    pub fn get(&self, whose: &Whose, key: &CacheKey) -> Option<Vec<f32>> {
        let mut entries = lock(&self.entries);
        entries.tenants.get_mut(&(whose.database, whose.tenant.clone()))?.get(key).cloned()
    }

    pub fn put(&self, whose: &Whose, key: CacheKey, vector: Vec<f32>) {
        let mut entries = lock(&self.entries);
        let entries = &mut *entries;
        if entries.capacity == 0 {
            return;
        }
        let tenant = (whose.database, whose.tenant.clone());
        entries.put(&tenant, key, vector);
        if entries.count > entries.capacity {
            entries.forget_one(&tenant);
        }
    }

    pub fn clear(&self) {
        let mut entries = lock(&self.entries);
        *entries = Entries { capacity: entries.capacity, ..Entries::default() };
    }
}

/// A hash of everything that identifies an entry; see [`key`].
pub type CacheKey = [u8; 32];

/// An entry is found only by the same tenant of the same database, for the unchanged embedder and with the
/// same right. Otherwise response times would reveal the questions of other tenants.
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
    use kb_types::EmbedderConfig;

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
            cache.get(whose, &key(whose, embedder, right, kind, "text").unwrap())
        };
        cache.put(&whose, key(&whose, &embedder(), &right, Kind::Query, "text").unwrap(), vec![1.0]);
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

    fn of(tenant: &str) -> Whose {
        Whose { database: 1, tenant: tenant.into(), connection: 1 }
    }

    #[test]
    fn the_cache_never_exceeds_its_capacity() {
        let (cache, whose) = (QueryCache::new(2), of("a"));
        for first in 0..3 {
            cache.put(&whose, [first; 32], vec![]);
        }
        assert_eq!(cache.get(&whose, &[0; 32]), None);
        assert_eq!(cache.get(&whose, &[2; 32]), Some(vec![]));
        cache.resize(0);
        cache.put(&whose, [3; 32], vec![]);
        assert_eq!(cache.get(&whose, &[3; 32]), None);
        assert_eq!(cache.get(&whose, &[2; 32]), None);
    }

    #[test]
    fn a_tenant_with_many_queries_does_not_displace_others() {
        let cache = QueryCache::new(8);
        let count = |tenant: &str| (0..=100).filter(|n| cache.get(&of(tenant), &[*n; 32]).is_some()).count();
        (0..100).for_each(|n| cache.put(&of("much"), [n; 32], vec![]));
        (0..3).for_each(|n| cache.put(&of("little"), [n; 32], vec![]));
        (0..100).for_each(|n| cache.put(&of("much"), [n; 32], vec![]));
        assert_eq!((count("much"), count("little")), (5, 3));
        // Two tenants that want everything get half each.
        (0..100).for_each(|n| cache.put(&of("little"), [n; 32], vec![]));
        assert_eq!((count("much"), count("little")), (4, 4));
        // If both have the same number, the one that adds an entry loses one of its own.
        cache.resize(9);
        cache.put(&of("much"), [100; 32], vec![]);
        cache.put(&of("little"), [100; 32], vec![]);
        let first = |tenant: &str| (0..100).find(|n| cache.get(&of(tenant), &[*n; 32]).is_some());
        assert_eq!((first("much"), first("little")), (Some(96), Some(97)));
        cache.resize(3);
        assert_eq!(count("much") + count("little"), 3);
        cache.clear();
        assert_eq!((count("much"), count("little")), (0, 0));
    }
}
