//! What one credential may spend: tokens a day.

use super::super::turns::Urgency;
use super::limiter::Throttled;
use kb_types::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tokens of one day, as far as the asking database knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spent {
    /// Days since 1970, UTC.
    pub day: u64,
    pub tokens: u64,
    /// Of these, by the tenant who asks; 0 where no tenant's share is bounded.
    pub by_tenant: u64,
    /// What that tenant may spend a day at all endpoints; None: there is no such limit.
    pub quota: Option<u64>,
    /// What it has spent at all endpoints; 0 without such a limit.
    pub of_quota: u64,
}

/// What was spent today under one key, by all endpoints that have it.
#[derive(Debug, Default)]
pub struct Budget {
    today: Mutex<Today>,
}

#[derive(Debug, Default)]
struct Today {
    day: u64,
    tokens: u64,
    /// By digest of the tenant's name. Tenants of one name in several databases are one.
    of_tenants: HashMap<[u8; 32], u64>,
}

/// Tenants that are counted each for itself at most; further ones share one count.
const TENANTS: usize = 100_000;

/// The days since 1970 (UTC), and how long until the next.
fn today() -> (u64, Duration) {
    const DAY: u64 = 86_400;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (now / DAY, Duration::from_secs(DAY - now % DAY))
}

/// Of the tokens of a day, those that a class may spend. What ingestion does not take in the morning cannot
/// be had back from it in the evening, so a tenth is left for questions and bulk calls, and half of that for
/// questions. Ingestion needs no such part: what it has to do is there when the day begins, and questions
/// come in the course of it.
pub fn part_of_day(tokens: u64, urgency: Urgency) -> u64 {
    match urgency {
        Urgency::Query => tokens,
        Urgency::Bulk => tokens - tokens / 20,
        Urgency::Ingest => tokens - tokens / 10,
    }
}

impl Budget {
    /// What was spent today, and how long today lasts.
    fn today(&self) -> (MutexGuard<'_, Today>, Duration) {
        let (day, left) = today();
        let mut today = lock(&self.today);
        if today.day != day {
            *today = Today { day, ..Today::default() };
        }
        (today, left)
    }

    /// Takes `count` of the `budget` tokens a day, if they are left to this class; [`Budget::spend`] corrects
    /// that afterwards. `known` were spent before this gateway started, as far as the asking database knew
    /// when it asked.
    pub fn reserve(&self, budget: u64, urgency: Urgency, count: u64, known: Spent) -> Result<(), Throttled> {
        let (mut today, left) = self.today();
        // A request from before midnight brings yesterday's figure.
        if known.day == today.day {
            today.tokens = today.tokens.max(known.tokens);
        }
        let part = part_of_day(budget, urgency);
        if today.tokens.saturating_add(count) <= part {
            today.tokens += count;
            return Ok(());
        }
        let kept = match budget - part {
            0 => String::new(),
            kept => format!(", but for {kept} that are kept for what is more urgent"),
        };
        let reason = format!("its daily_token_budget of {budget} tokens is spent{kept}");
        Err(Throttled { wait: left, reason })
    }

    /// So many tokens were spent, of which `reserved` had been taken.
    pub fn spend(&self, tokens: u64, reserved: u64) {
        let (mut today, _) = self.today();
        today.tokens = today.tokens.saturating_add(tokens).saturating_sub(reserved);
    }

    /// Takes `count` of the `share` of tokens that a tenant may spend a day, of which it has spent `known` on
    /// a day; as [`Budget::reserve`]. An error is how long today lasts.
    pub fn reserve_of_tenant(
        &self,
        tenant: &str,
        share: u64,
        count: u64,
        (day, known): (u64, u64),
    ) -> Result<(), Duration> {
        let (mut today, left) = self.today();
        let is_of_today = day == today.day;
        let spent = today.of_tenant(tenant);
        if is_of_today {
            *spent = known.max(*spent);
        }
        if spent.saturating_add(count) <= share {
            *spent += count;
            return Ok(());
        }
        Err(left)
    }

    /// What a tenant really spent; as [`Budget::spend`].
    pub fn spend_of_tenant(&self, tenant: &str, tokens: u64, reserved: u64) {
        let (mut today, _) = self.today();
        let spent = today.of_tenant(tenant);
        *spent = spent.saturating_add(tokens).saturating_sub(reserved);
    }

    /// Whether something was spent today.
    pub fn is_needed(&self) -> bool {
        let (today, _) = self.today();
        today.tokens > 0 || today.of_tenants.values().any(|spent| *spent > 0)
    }
}

impl Today {
    fn of_tenant(&mut self, tenant: &str) -> &mut u64 {
        let mut key = *blake3::hash(tenant.as_bytes()).as_bytes();
        if self.of_tenants.len() >= TENANTS && !self.of_tenants.contains_key(&key) {
            key = [0; 32];
        }
        self.of_tenants.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_holds_until_the_day_is_over() {
        // All of it on one day.
        while today().1 < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let budget = Budget::default();
        let none = Spent::default();
        let reserve = |budget: &Budget, count, known| budget.reserve(100, Urgency::Query, count, known);
        reserve(&budget, 70, none).unwrap();
        // It counts before it is answered, and then turns out to be less.
        assert!(reserve(&budget, 31, none).is_err());
        budget.spend(60, 70);
        assert!(reserve(&budget, 41, none).is_err());
        reserve(&budget, 40, none).unwrap();
        // What the database knows counts, too: the gateway may have been restarted.
        let budget = Budget::default();
        let (day, _) = today();
        // But not what it knew of yesterday, of a text that was queued before midnight.
        reserve(&budget, 1, Spent { day: day - 1, tokens: 100, ..none }).unwrap();
        let throttled = reserve(&budget, 1, Spent { day, tokens: 100, ..none }).unwrap_err();
        assert!(throttled.wait <= Duration::from_secs(86_400));
    }

    #[test]
    fn the_last_of_a_budget_is_left_to_what_is_more_urgent() {
        while today().1 < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let budget = Budget::default();
        let reserve = |urgency, count| budget.reserve(100, urgency, count, Spent::default());
        reserve(Urgency::Ingest, 90).unwrap();
        let reason = reserve(Urgency::Ingest, 1).unwrap_err().reason;
        assert!(reason.contains("daily_token_budget of 100 tokens is spent, but for 10"), "{reason}");
        reserve(Urgency::Bulk, 5).unwrap();
        assert!(reserve(Urgency::Bulk, 1).is_err());
        reserve(Urgency::Query, 5).unwrap();
        let reason = reserve(Urgency::Query, 1).unwrap_err().reason;
        assert_eq!(reason, "its daily_token_budget of 100 tokens is spent");
    }

    #[test]
    fn a_tenant_that_spent_its_share_is_throttled_and_no_other() {
        let budget = Budget::default();
        budget.reserve_of_tenant("a", 50, 50, (0, 0)).unwrap();
        assert!(budget.reserve_of_tenant("a", 50, 1, (0, 0)).is_err());
        budget.reserve_of_tenant("b", 50, 50, (0, 0)).unwrap();
        // It was less than thought.
        budget.spend_of_tenant("a", 20, 50);
        budget.reserve_of_tenant("a", 50, 30, (0, 0)).unwrap();
        // What the database knows counts, as far as it is of today.
        let (day, _) = today();
        assert!(budget.reserve_of_tenant("c", 50, 6, (day, 45)).is_err());
        budget.reserve_of_tenant("d", 50, 6, (day - 1, 45)).unwrap();
    }
}
