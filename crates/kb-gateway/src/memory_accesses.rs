//! How often the entries of memories were recalled in each database, until its worker has written it.
//!
//! A recall cannot write, so its accesses are counted here, in bounded memory. A part is repeated until the
//! worker's next request has the number of the part. Accesses that find no room, or that wait when the
//! gateway ends, are lost, which is no error.

use super::protocol::{AccessPart, EntryAccesses, TenantAccesses};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// The most entries whose accesses wait, and of one tenant in one database, so that none takes all places.
const ENTRIES: usize = 50_000;
const OF_TENANT: usize = 10_000;
/// The most entries of a part, and about how many bytes it has.
const PART: usize = 5_000;
pub const PART_BYTES: usize = PART * 64;
/// Accesses that are not fetched for this long are dropped, because the database may not exist any more.
const OLDEST: Duration = Duration::from_secs(3600);

/// By the number of the knowledge base and of the document.
type Entries = HashMap<(i64, i64), Accesses>;

struct Accesses {
    count: i64,
    /// The last one, in microseconds since 1970.
    at: i64,
}

pub struct MemoryAccesses {
    /// By database and tenant.
    waiting: HashMap<(u32, String), Entries>,
    /// The number of entries in it.
    entries: usize,
    /// The parts that were sent to the worker of each database and may not be written yet.
    given: HashMap<u32, AccessPart>,
    last_number: u64,
}

impl MemoryAccesses {
    pub fn new() -> MemoryAccesses {
        // Starts with the time, so that numbers of an earlier gateway do not occur again.
        let last_number = now().unsigned_abs();
        MemoryAccesses { waiting: HashMap::new(), entries: 0, given: HashMap::new(), last_number }
    }

    /// Counts an access to each of these entries of a knowledge base.
    pub fn add(&mut self, database: u32, tenant: String, kb_no: i64, at: i64, document_ids: &[i64]) {
        let key = (database, tenant);
        if self.entries >= ENTRIES && !self.waiting.contains_key(&key) {
            return;
        }
        let of_tenant = self.waiting.entry(key).or_default();
        for document_id in document_ids {
            let key = (kb_no, *document_id);
            if let Some(known) = of_tenant.get_mut(&key) {
                known.count = known.count.saturating_add(1);
                known.at = known.at.max(at);
            } else if self.entries < ENTRIES && of_tenant.len() < OF_TENANT {
                of_tenant.insert(key, Accesses { count: 1, at });
                self.entries += 1;
            }
        }
    }

    /// The previous part, if it has not been written, or else the next one.
    pub fn take(&mut self, database: u32, written: u64) -> AccessPart {
        if let Some(part) = self.given.get(&database).filter(|part| part.number != written) {
            return part.clone();
        }
        self.given.remove(&database);
        let mut room = PART;
        let mut tenants = Vec::new();
        for ((_, tenant), of_tenant) in self.waiting.iter_mut().filter(|((of, _), _)| *of == database) {
            let entry = |((kb_no, document_id), Accesses { count, at })| EntryAccesses {
                kb_no,
                document_id,
                count,
                at,
            };
            let entries: Vec<EntryAccesses> =
                of_tenant.extract_if(|_, _| true).take(room).map(entry).collect();
            room -= entries.len();
            if !entries.is_empty() {
                tenants.push(TenantAccesses { tenant: tenant.clone(), entries });
            }
        }
        self.waiting.retain(|_, of_tenant| !of_tenant.is_empty());
        self.entries -= PART - room;
        if tenants.is_empty() {
            return AccessPart::default();
        }
        self.last_number += 1;
        let part = AccessPart { number: self.last_number, tenants };
        self.given.insert(database, part.clone());
        part
    }

    pub fn forget_old(&mut self) {
        let oldest = now() - i64::try_from(OLDEST.as_micros()).unwrap_or(i64::MAX);
        for of_tenant in self.waiting.values_mut() {
            of_tenant.retain(|_, accesses| accesses.at >= oldest);
        }
        self.waiting.retain(|_, of_tenant| !of_tenant.is_empty());
        self.entries = self.waiting.values().map(HashMap::len).sum();
        let is_young = |part: &AccessPart| {
            part.tenants.iter().flat_map(|tenant| &tenant.entries).any(|entry| entry.at >= oldest)
        };
        self.given.retain(|_, part| is_young(part));
    }
}

/// Microseconds since 1970.
fn now() -> i64 {
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(age.as_micros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a part as tenant, document and count, in order.
    fn counts(part: &AccessPart) -> Vec<(String, i64, i64)> {
        let of_tenant = |of: &TenantAccesses| {
            let tenant = of.tenant.clone();
            of.entries.iter().map(move |e| (tenant.clone(), e.document_id, e.count)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = part.tenants.iter().flat_map(of_tenant).collect();
        all.sort();
        all
    }

    #[test]
    fn accesses_are_returned_until_written_and_never_after() {
        let mut accesses = MemoryAccesses::new();
        assert_eq!(accesses.take(1, 0), AccessPart::default());
        accesses.add(1, "a".into(), 1, now(), &[7, 8]);
        accesses.add(1, "a".into(), 1, now(), &[7]);
        accesses.add(1, "b".into(), 1, now(), &[7]);
        accesses.add(2, "a".into(), 1, now(), &[9]);
        let first = accesses.take(1, 0);
        let expected =
            [("a", 7, 2), ("a", 8, 1), ("b", 7, 1)].map(|(tenant, id, n)| (tenant.to_string(), id, n));
        assert_eq!(counts(&first), expected);
        // Further accesses belong to the next part.
        accesses.add(1, "a".into(), 1, now(), &[7]);
        assert_eq!((accesses.take(1, 0), accesses.take(1, first.number - 1)), (first.clone(), first.clone()));
        let second = accesses.take(1, first.number);
        assert_eq!(counts(&second), [("a".to_string(), 7, 1)]);
        assert_eq!(accesses.take(1, second.number), AccessPart::default());
        assert_eq!(counts(&accesses.take(2, second.number)), [("a".to_string(), 9, 1)]);
        assert_eq!(accesses.entries, 0);
    }

    #[test]
    fn a_flood_is_bounded_and_leaves_room_for_other_tenants() {
        let mut accesses = MemoryAccesses::new();
        let many: Vec<i64> = (0..2 * OF_TENANT as i64).collect();
        accesses.add(1, "flood".into(), 1, now(), &many);
        accesses.add(1, "drop".into(), 1, now(), &[1]);
        assert_eq!(accesses.entries, OF_TENANT + 1);
        for tenant in 0..ENTRIES {
            accesses.add(1, tenant.to_string(), 1, now(), &[1, 2, 3]);
        }
        // What is known is counted although there is no room.
        accesses.add(1, "drop".into(), 1, now(), &[1, 2]);
        assert_eq!(accesses.entries, ENTRIES);
        let (mut number, mut taken, mut of_drop) = (0, 0, 0);
        loop {
            let part = accesses.take(1, number);
            let entries = counts(&part);
            if entries.is_empty() {
                break;
            }
            assert!(entries.len() <= PART);
            taken += entries.len();
            of_drop += entries.iter().filter(|(tenant, ..)| tenant == "drop").map(|(.., n)| n).sum::<i64>();
            number = part.number;
        }
        assert_eq!((taken, of_drop, accesses.entries, accesses.waiting.len()), (ENTRIES, 2, 0, 0));
    }

    #[test]
    fn accesses_that_are_not_fetched_are_dropped() {
        let mut accesses = MemoryAccesses::new();
        let long_ago = now() - 2 * 3600 * 1_000_000;
        accesses.add(1, "a".into(), 1, long_ago, &[1]);
        accesses.take(1, 0);
        accesses.add(1, "a".into(), 1, long_ago, &[1, 2]);
        accesses.add(2, "a".into(), 1, now(), &[1]);
        accesses.forget_old();
        assert_eq!((accesses.entries, accesses.given.len(), accesses.waiting.len()), (1, 0, 1));
    }
}
