//! Summaries of conversations that windows lacked, until the worker of their database takes them. A session
//! that asks for a window cannot write, and it asks again with its next window, so nothing is lost if there
//! is no room for one or if the worker ends after it has taken it.

use super::frame::MAX_TENANT;
use super::protocol::WantedSummary;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The most summaries that are wanted in a database, and by one of its tenants.
const OF_DATABASE: usize = 1000;
const OF_TENANT: usize = 200;
/// The most databases.
const DATABASES: usize = 1000;
/// The most that are taken at once, and their bytes.
const PART: usize = 100;
pub const PART_BYTES: usize = PART * (3 * MAX_TENANT + 64);
/// What is not taken for this long is dropped, because the database may not exist any more.
const OLDEST: Duration = Duration::from_secs(600);

#[derive(Default)]
pub struct WantedSummaries {
    databases: HashMap<u32, Waiting>,
}

struct Waiting {
    wanted: BTreeSet<WantedSummary>,
    /// When the worker last took some, or the first was added.
    taken: Instant,
}

impl WantedSummaries {
    /// Adds one, unless there is no room for it.
    pub fn add(&mut self, database: u32, wanted: WantedSummary) {
        if !self.databases.contains_key(&database) && self.databases.len() >= DATABASES {
            return;
        }
        let empty = || Waiting { wanted: BTreeSet::new(), taken: Instant::now() };
        let waiting = &mut self.databases.entry(database).or_insert_with(empty).wanted;
        let of_tenant = waiting.iter().filter(|other| other.tenant == wanted.tenant).count();
        if waiting.len() < OF_DATABASE && of_tenant < OF_TENANT {
            waiting.insert(wanted);
        }
    }

    /// Removes and returns some.
    pub fn take(&mut self, database: u32) -> Vec<WantedSummary> {
        let Some(waiting) = self.databases.get_mut(&database) else { return Vec::new() };
        waiting.taken = Instant::now();
        let part: Vec<WantedSummary> = std::iter::from_fn(|| waiting.wanted.pop_first()).take(PART).collect();
        if waiting.wanted.is_empty() {
            self.databases.remove(&database);
        }
        part
    }

    pub fn forget_old(&mut self) {
        self.databases.retain(|_, waiting| waiting.taken.elapsed() < OLDEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(tenant: &str, version: i64) -> WantedSummary {
        WantedSummary { tenant: tenant.into(), version, ..WantedSummary::default() }
    }

    #[test]
    fn each_is_taken_once_and_only_in_its_database() {
        let mut all = WantedSummaries::default();
        for version in [1, 1, 2] {
            all.add(1, wanted("a", version));
        }
        all.add(2, wanted("b", 3));
        assert_eq!(all.take(1), [wanted("a", 1), wanted("a", 2)]);
        assert!(all.take(1).is_empty() && all.take(3).is_empty());
        assert_eq!(all.take(2), [wanted("b", 3)]);
        assert!(all.databases.is_empty());
    }

    #[test]
    fn a_flood_of_one_tenant_leaves_room_for_others() {
        let mut all = WantedSummaries::default();
        (0..10_000).for_each(|version| all.add(1, wanted("flood", version)));
        all.add(1, wanted("other", 1));
        let mut taken = Vec::new();
        loop {
            let part = all.take(1);
            assert!(part.len() <= PART);
            if part.is_empty() {
                break;
            }
            taken.extend(part);
        }
        assert_eq!((taken.len(), taken.last()), (OF_TENANT + 1, Some(&wanted("other", 1))));
        (0..2 * DATABASES as u32).for_each(|database| all.add(database, wanted("a", 1)));
        assert_eq!(all.databases.len(), DATABASES);
    }
}
