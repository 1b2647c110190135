//! The usage of queries in each database, until the worker of the database has booked it.
//!
//! A query cannot write, so its usage waits here. A part is repeated until the worker's next request has the
//! number of the part, so that nothing is lost when a worker dies. A part that a worker committed just before
//! it died is booked twice.

use super::endpoint::usage::Usage;
use super::protocol::{UsagePart, UsageRow};
use kb_types::ServiceKind;
use std::collections::HashMap;
use std::time::SystemTime;

/// The most rows. The usage of further keys is booked for no knowledge base and the unnamed tenant.
const ROWS: usize = 10_000;
/// The most rows of a part.
const PART: usize = 1000;

/// Database, endpoint, kind of service, knowledge base and tenant.
pub type UsageKey = (u32, String, ServiceKind, i64, String);

pub struct QueryUsage {
    sums: HashMap<UsageKey, Usage>,
    /// The parts that were sent to the worker of each database and may not be booked yet.
    given: HashMap<u32, UsagePart>,
    last_number: u64,
}

impl QueryUsage {
    pub fn new() -> QueryUsage {
        // Starts with the time, so that numbers of an earlier gateway do not occur again.
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        QueryUsage {
            sums: HashMap::new(),
            given: HashMap::new(),
            last_number: u64::try_from(age.as_micros()).unwrap_or_default(),
        }
    }

    pub fn add(&mut self, key: UsageKey, usage: &Usage) {
        let rows = self.sums.len() + self.given.values().map(|part| part.rows.len()).sum::<usize>();
        let is_known = rows < ROWS || self.sums.contains_key(&key);
        let key = if is_known { key } else { (key.0, key.1, key.2, 0, String::new()) };
        self.sums.entry(key).or_default().add(usage);
    }

    /// The previous part, if it has not been booked, or else the next one.
    pub fn take(&mut self, database: u32, booked: u64) -> UsagePart {
        if let Some(part) = self.given.get(&database).filter(|part| part.number != booked) {
            return part.clone();
        }
        self.given.remove(&database);
        let taken = self.sums.extract_if(|key, _| key.0 == database).take(PART);
        let row =
            |((_, endpoint, kind, kb_no, tenant), usage)| UsageRow { endpoint, kind, kb_no, tenant, usage };
        let rows: Vec<UsageRow> = taken.map(row).collect();
        if rows.is_empty() {
            return UsagePart::default();
        }
        self.last_number += 1;
        let part = UsagePart { number: self.last_number, rows };
        self.given.insert(database, part.clone());
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(usage: &mut QueryUsage, database: u32, tokens: u64) {
        let key = (database, "e".to_string(), ServiceKind::Embedder, 1, String::new());
        usage.add(key, &Usage { requests: 1, texts: 1, tokens, retries: 0 });
    }

    fn tokens(part: &UsagePart) -> Vec<u64> {
        part.rows.iter().map(|row| row.usage.tokens).collect()
    }

    #[test]
    fn usage_is_returned_until_booked_and_never_after() {
        let mut usage = QueryUsage::new();
        assert_eq!(usage.take(1, 0), UsagePart::default());
        spend(&mut usage, 1, 5);
        let first = usage.take(1, 0);
        assert_eq!(tokens(&first), [5]);
        // Further usage of the same key belongs to the next part.
        spend(&mut usage, 1, 7);
        // A worker that has just started knows no number, and the number of another gateway means nothing.
        assert_eq!(usage.take(1, 0), first);
        assert_eq!(usage.take(1, first.number - 1), first);
        let second = usage.take(1, first.number);
        assert_eq!(tokens(&second), [7]);
        assert_eq!(usage.take(1, first.number), second);
        assert_eq!(usage.take(1, second.number), UsagePart::default());
        assert_eq!(usage.take(1, 0), UsagePart::default());
    }

    #[test]
    fn a_worker_neither_gets_nor_confirms_usage_of_another_database() {
        let mut usage = QueryUsage::new();
        spend(&mut usage, 1, 5);
        spend(&mut usage, 2, 7);
        let (first, second) = (usage.take(1, 0), usage.take(2, 0));
        assert_eq!((tokens(&first), tokens(&second)), (vec![5], vec![7]));
        assert_eq!(usage.take(1, second.number), first);
        assert_eq!(usage.take(2, first.number), second);
        assert_eq!(usage.take(3, first.number), UsagePart::default());
    }

    #[test]
    fn rows_are_bounded_even_without_booking_and_no_token_is_lost() {
        let mut usage = QueryUsage::new();
        let mut spent = 0;
        let mut given = 0;
        for kb_no in 1..=ROWS as i64 + 500 {
            usage.add(
                (1, "e".into(), ServiceKind::Embedder, kb_no, String::new()),
                &Usage { tokens: 1, ..Usage::default() },
            );
            spent += 1;
            if kb_no == 2000 {
                given = usage.take(1, 0).rows.len();
            }
        }
        // One additional row is for all other keys.
        assert_eq!((given, usage.sums.len()), (PART, ROWS - PART + 1));
        let mut booked = 0;
        let mut number = 0;
        loop {
            let part = usage.take(1, number);
            if part.rows.is_empty() {
                break;
            }
            booked += tokens(&part).iter().sum::<u64>();
            number = part.number;
        }
        assert_eq!(booked, spent);
    }
}
