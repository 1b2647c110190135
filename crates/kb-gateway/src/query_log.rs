//! Questions that wait for the worker of their database to write them to the log.

use super::protocol::LoggedQuestion;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The most waiting questions of a database, and of one knowledge base, so that none displaces all others.
const OF_DATABASE: usize = 4000;
const OF_KNOWLEDGE_BASE: usize = 1000;
/// The most bytes of all questions.
const BYTES: usize = 32 * 1024 * 1024;
/// About how many bytes a part has.
pub const PART_BYTES: usize = 512 * 1024;
/// Questions that are not fetched for this long are dropped, because the database may not exist any more.
const OLDEST: Duration = Duration::from_secs(3600);

/// The waiting questions of each database with their numbers, oldest first.
pub struct QueryLog {
    databases: HashMap<u32, VecDeque<(u64, LoggedQuestion)>>,
    bytes: usize,
    last_number: u64,
}

impl QueryLog {
    pub fn new() -> QueryLog {
        // Starts with the time, so that numbers of an earlier gateway do not occur again.
        QueryLog { databases: HashMap::new(), bytes: 0, last_number: now().unsigned_abs() }
    }

    /// Adds a question. If there is no room, a question of the tenant with the most is not logged.
    pub fn add(&mut self, database: u32, question: LoggedQuestion) {
        let bytes = size(&question);
        let waiting = self.databases.entry(database).or_default();
        let of_the_same = waiting.iter().filter(|(_, other)| other.kb_no == question.kb_no).count();
        if of_the_same >= OF_KNOWLEDGE_BASE {
            return;
        }
        while waiting.len() >= OF_DATABASE || self.bytes.saturating_add(bytes) > BYTES {
            let Some((_, gone)) = largest_share(waiting, &question.tenant).and_then(|at| waiting.remove(at))
            else {
                return;
            };
            self.bytes -= size(&gone);
        }
        self.last_number += 1;
        self.bytes += bytes;
        waiting.push_back((self.last_number, question));
    }

    /// Drops the questions that have been written, up to this number, and returns the next ones with the
    /// number of the last.
    pub fn take(&mut self, database: u32, written: u64) -> (u64, Vec<LoggedQuestion>) {
        let Some(waiting) = self.databases.get_mut(&database) else { return (written, Vec::new()) };
        while let Some((_, question)) = waiting.pop_front_if(|(number, _)| *number <= written) {
            self.bytes -= size(&question);
        }
        let (mut last, mut bytes, mut part) = (written, 0, Vec::new());
        for (number, question) in waiting.iter() {
            bytes += size(question);
            if bytes > PART_BYTES && !part.is_empty() {
                break;
            }
            last = *number;
            part.push(question.clone());
        }
        if waiting.is_empty() {
            self.databases.remove(&database);
        }
        (last, part)
    }

    pub fn find(&self, database: u32, query_id: Uuid) -> Option<LoggedQuestion> {
        let waiting = self.databases.get(&database)?;
        waiting
            .iter()
            .find(|(_, question)| question.query_id == query_id)
            .map(|(_, question)| question.clone())
    }

    pub fn forget_old(&mut self) {
        let oldest = now() - i64::try_from(OLDEST.as_micros()).unwrap_or(i64::MAX);
        let bytes = &mut self.bytes;
        for waiting in self.databases.values_mut() {
            while let Some((_, question)) = waiting.pop_front_if(|(_, question)| question.asked_at < oldest) {
                *bytes -= size(&question);
            }
        }
        self.databases.retain(|_, waiting| !waiting.is_empty());
    }
}

/// The place of the last question of the tenant with the most. None if `tenant` would have as many.
fn largest_share(waiting: &VecDeque<(u64, LoggedQuestion)>, tenant: &str) -> Option<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (_, question) in waiting {
        *counts.entry(&question.tenant).or_default() += 1;
    }
    let own = counts.get(tenant).copied().unwrap_or(0);
    let (most, _) =
        counts.into_iter().filter(|(_, count)| *count > own + 1).max_by_key(|(_, count)| *count)?;
    waiting.iter().rposition(|(_, question)| question.tenant == most)
}

/// Microseconds since 1970.
fn now() -> i64 {
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(age.as_micros()).unwrap_or_default()
}

fn size(question: &LoggedQuestion) -> usize {
    let texts =
        question.query.len() + question.tenant.len() + question.filter.as_ref().map_or(0, String::len);
    size_of::<LoggedQuestion>() + texts + size_of_val(question.chunk_ids.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kb_no: i64, query: &str) -> LoggedQuestion {
        LoggedQuestion {
            query_id: Uuid::new_v4(),
            kb_no,
            tenant: String::new(),
            asked_at: now(),
            query: query.into(),
            mode: "dense".into(),
            filter: None,
            top_k: 5,
            row_count: 0,
            score: None,
            chunk_ids: Vec::new(),
            duration_ms: 1.0,
        }
    }

    fn words((_, questions): &(u64, Vec<LoggedQuestion>)) -> Vec<&str> {
        questions.iter().map(|question| question.query.as_str()).collect()
    }

    #[test]
    fn questions_are_returned_until_written_and_never_after() {
        let mut log = QueryLog::new();
        log.add(1, question(1, "a"));
        log.add(2, question(1, "of another database"));
        let first = log.take(1, 0);
        assert_eq!(words(&first), ["a"]);
        let waits = first.1[0].query_id;
        assert!(log.find(1, waits).is_some() && log.find(2, waits).is_none());
        log.add(1, question(1, "b"));
        assert_eq!(words(&log.take(1, 0)), ["a", "b"]);
        let second = log.take(1, first.0);
        assert_eq!(words(&second), ["b"]);
        assert!(log.find(1, waits).is_none());
        assert_eq!(log.take(1, second.0), (second.0, Vec::new()));
        assert_eq!(words(&log.take(2, 0)), ["of another database"]);
    }

    #[test]
    fn a_flood_is_bounded_and_leaves_room_for_other_knowledge_bases() {
        let mut log = QueryLog::new();
        for _ in 0..2 * OF_KNOWLEDGE_BASE {
            log.add(1, question(1, "flood"));
        }
        log.add(1, question(2, "drop"));
        let waiting = &log.databases[&1];
        assert_eq!(
            (waiting.len(), waiting.back().unwrap().1.query.as_str()),
            (OF_KNOWLEDGE_BASE + 1, "drop")
        );
        let long = "x".repeat(PART_BYTES);
        for kb_no in 3..1000 {
            log.add(1, question(kb_no, &long));
        }
        assert!(log.bytes <= BYTES && log.bytes > BYTES / 2, "{}", log.bytes);
        let mut written = 0;
        loop {
            let (number, part) = log.take(1, written);
            if part.is_empty() {
                break;
            }
            assert!(part.len() == 1 || part.iter().map(size).sum::<usize>() <= PART_BYTES);
            written = number;
        }
        assert_eq!((log.bytes, log.databases.len()), (0, 0));
    }

    #[test]
    fn a_tenant_that_fills_the_log_leaves_every_other_its_share() {
        let mut log = QueryLog::new();
        let of = |tenant: &str, kb_no| LoggedQuestion { tenant: tenant.into(), ..question(kb_no, tenant) };
        for kb_no in 0..OF_DATABASE as i64 {
            log.add(1, of("flood", kb_no));
        }
        for kb_no in 0..OF_DATABASE as i64 {
            log.add(1, of("late", -kb_no));
        }
        let count = |tenant: &str| log.databases[&1].iter().filter(|(_, q)| q.tenant == tenant).count();
        assert_eq!((count("flood"), count("late")), (OF_DATABASE / 2, OF_DATABASE / 2));
        let bytes: usize = log.databases[&1].iter().map(|(_, question)| size(question)).sum();
        assert_eq!(log.bytes, bytes);
    }

    #[test]
    fn questions_that_are_not_fetched_are_dropped() {
        let mut log = QueryLog::new();
        log.add(1, LoggedQuestion { asked_at: now() - 2 * 3600 * 1_000_000, ..question(1, "old") });
        log.add(2, question(1, "new"));
        log.forget_old();
        assert!(log.databases.contains_key(&2) && log.databases.len() == 1);
    }
}
