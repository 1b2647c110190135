//! Reports failing endpoints to the server's log: a line when an endpoint takes no more requests, one when it
//! answers again, and at most one a minute for each kind of failure. The lines contain nothing of endpoints'
//! messages or of texts.

use super::super::turns::Whose;
use kb_types::tally::{EVERY, Tally};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// An outage that no request has met for this long is forgotten, because its row was altered or it is not
/// used any more.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// The most outages that are remembered.
const OUTAGES: usize = 10_000;

/// The oid of the database, and the service in it, such as llm "e".
type ServiceKey = (u32, String);

#[derive(Default)]
pub struct Outages {
    outages: HashMap<ServiceKey, Outage>,
    /// The service, the tenant, and the reason of the failure.
    failures: Tally<(ServiceKey, String, String)>,
    /// When the last outage of each service was reported. An intermittent outage is reported once a minute.
    said: HashMap<ServiceKey, Instant>,
    /// Lines about outages that are over.
    over: Vec<String>,
}

struct Outage {
    since: Instant,
    met: Instant,
    reason: String,
    /// How many requests failed or were not sent.
    failed: u64,
    is_said: bool,
}

impl Outages {
    /// Records that a request failed.
    pub fn count(&mut self, name: &str, whose: &Whose, why: &str) {
        let asked = (whose.database, name.to_string());
        if let Some(outage) = self.outages.get_mut(&asked) {
            outage.failed += 1;
        }
        self.failures.count((asked, whose.tenant.clone(), why.to_string()));
    }

    /// Records that a request failed as all others would, or was not sent for that reason.
    pub fn refuse(&mut self, name: &str, whose: &Whose, why: &str) {
        self.refuse_at(name, whose, why, Instant::now());
    }

    fn refuse_at(&mut self, name: &str, whose: &Whose, why: &str, now: Instant) {
        let asked = (whose.database, name.to_string());
        if self.outages.len() < OUTAGES || self.outages.contains_key(&asked) {
            let begin =
                || Outage { since: now, met: now, reason: why.to_string(), failed: 0, is_said: false };
            self.outages.entry(asked).or_insert_with(begin).met = now;
        }
        self.count(name, whose, why);
    }

    /// Records that a request was answered.
    pub fn answer(&mut self, name: &str, whose: &Whose) {
        self.answer_at(name, whose, Instant::now());
    }

    fn answer_at(&mut self, name: &str, whose: &Whose, now: Instant) {
        if self.outages.is_empty() {
            return;
        }
        let ended = self.outages.remove(&(whose.database, name.to_string()));
        if let Some(Outage { since, failed, is_said: true, .. }) = ended {
            let (seconds, database) = (now.saturating_duration_since(since).as_secs(), whose.database);
            self.over.push(format!(
                "{name} answers again after {seconds} s, in which {failed} calls failed (database {database})"
            ));
        }
    }

    /// The lines that are due.
    pub fn lines(&mut self, now: Instant) -> Vec<String> {
        self.said.retain(|_, at| now.saturating_duration_since(*at) < EVERY);
        self.outages.retain(|_, outage| now.saturating_duration_since(outage.met) < FORGOTTEN);
        let mut lines = std::mem::take(&mut self.over);
        for (asked, outage) in self.outages.iter_mut().filter(|(_, outage)| !outage.is_said) {
            if !self.said.contains_key(asked) {
                self.said.insert(asked.clone(), now);
                outage.is_said = true;
                let (database, name) = asked;
                lines.push(format!("{name} takes no requests: {} (database {database})", outage.reason));
            }
        }
        for (((database, name), tenant, why), number) in self.failures.due(now) {
            lines.push(format!(
                "{number} calls of {name} failed: {why} (tenant {tenant:?}, database {database})"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str) -> Whose {
        Whose { database: 5, tenant: tenant.into(), connection: 1 }
    }

    #[test]
    fn an_outage_is_reported_at_its_begin_and_end_and_failures_once_a_minute() {
        let (mut outages, start) = (Outages::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let name = "llm \"e\"";
        let mut said = Vec::new();
        for second in 0..100 {
            for tenant in ["a", "b"] {
                match second {
                    // A single fault, then repeated faults, then nothing is sent, then it answers.
                    ..10 => outages.answer_at(name, &of(tenant), at(second)),
                    10 => outages.count(name, &of(tenant), "it answered 500"),
                    11..90 => outages.refuse_at(name, &of(tenant), "it is left alone", at(second)),
                    _ => outages.answer_at(name, &of(tenant), at(second)),
                }
            }
            let mut lines = outages.lines(at(second));
            lines.sort_unstable();
            said.extend(lines.into_iter().map(|line| format!("{second}: {line}")));
        }
        assert_eq!(
            said,
            [
                "10: 1 calls of llm \"e\" failed: it answered 500 (tenant \"a\", database 5)",
                "10: 1 calls of llm \"e\" failed: it answered 500 (tenant \"b\", database 5)",
                "11: 1 calls of llm \"e\" failed: it is left alone (tenant \"a\", database 5)",
                "11: 1 calls of llm \"e\" failed: it is left alone (tenant \"b\", database 5)",
                "11: llm \"e\" takes no requests: it is left alone (database 5)",
                "71: 60 calls of llm \"e\" failed: it is left alone (tenant \"a\", database 5)",
                "71: 60 calls of llm \"e\" failed: it is left alone (tenant \"b\", database 5)",
                "90: llm \"e\" answers again after 79 s, in which 158 calls failed (database 5)",
            ]
        );
    }

    #[test]
    fn an_intermittent_outage_is_reported_once_a_minute() {
        let (mut outages, start) = (Outages::default(), Instant::now());
        let mut said = 0;
        for second in 0..120 {
            let now = start + Duration::from_secs(second);
            outages.refuse_at("llm \"m\"", &of("a"), "it answered 403", now);
            said += outages.lines(now).iter().filter(|line| line.contains("takes no requests")).count();
            outages.answer_at("llm \"m\"", &of("a"), now);
        }
        assert_eq!(said, 2);
        // A name with a line break does not end the line.
        outages.count("llm \"e\"", &of("x\nLOG: forged"), "why");
        assert!(outages.lines(start).iter().all(|line| !line.contains('\n')));
    }
}
