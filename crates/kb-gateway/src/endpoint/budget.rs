//! The daily token budget of a credential.

use super::super::turns::Urgency;
use super::limiter::Throttled;
use kb_types::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The tokens of one day that the requesting database knows of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spent {
    /// Days since 1970, UTC.
    pub day: u64,
    pub tokens: u64,
    /// The part of these that the requesting tenant used, or 0 if tenants have no limit.
    pub by_tenant: u64,
    /// The daily limit of that tenant for all endpoints. None means no limit.
    pub quota: Option<u64>,
    /// The tokens that it used at all endpoints, or 0 without such a limit.
    pub of_quota: u64,
}

/// The tokens used today with one key, over all endpoints that use it.
#[derive(Debug, Default)]
pub struct Budget {
    today: Mutex<Today>,
}

#[derive(Debug, Default)]
struct Today {
    day: u64,
    tokens: u64,
    /// By digest of the tenant's name. Tenants with the same name in several databases count as one.
    of_tenants: HashMap<[u8; 32], u64>,
}

/// The most tenants that are counted separately. Further ones share one count.
const TENANTS: usize = 100_000;

/// The number of the day since 1970 (UTC), and the time until the next day.
fn today() -> (u64, Duration) {
    const DAY: u64 = 86_400;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (now / DAY, Duration::from_secs(DAY - now % DAY))
}

/// The part of a day's tokens that a class may use. Ingestion could use up the budget in the morning, so a
/// tenth is reserved for questions and bulk calls, and half of that for questions. Ingestion needs no
/// reserve, because its work is there when the day begins, and questions arrive in the course of the day.
pub fn part_of_day(tokens: u64, urgency: Urgency) -> u64 {
    match urgency {
        Urgency::Query => tokens,
        Urgency::Bulk => tokens - tokens / 20,
        Urgency::Ingest => tokens - tokens / 10,
    }
}

impl Budget {
    /// Today's usage, and how long today lasts.
    fn today(&self) -> (MutexGuard<'_, Today>, Duration) {
        let (day, left) = today();
        let mut today = lock(&self.today);
        if today.day != day {
            *today = Today { day, ..Today::default() };
        }
        (today, left)
    }

    /// Reserves `count` of the `budget` tokens of the day, if they are left for this class. [`Budget::spend`]
    /// corrects the number afterwards. `known` are the tokens that the requesting database knew of, which
    /// include those from before this gateway started.
    pub fn reserve(&self, budget: u64, urgency: Urgency, count: u64, known: Spent) -> Result<(), Throttled> {
        let (mut today, left) = self.today();
        // A request from before midnight has yesterday's figure.
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
            kept => format!(", except for {kept} that are reserved for more urgent requests"),
        };
        let reason = format!("its daily_token_budget of {budget} tokens is spent{kept}");
        Err(Throttled { wait: left, reason })
    }

    /// Records the tokens that were really used, of which `reserved` had been reserved.
    pub fn spend(&self, tokens: u64, reserved: u64) {
        let (mut today, _) = self.today();
        today.tokens = today.tokens.saturating_add(tokens).saturating_sub(reserved);
    }

    /// Like [`Budget::reserve`], for the `share` of tokens that a tenant may use in a day, of which it is
    /// known to have used `known`. The error is how long today lasts.
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

    /// Like [`Budget::spend`], for a tenant.
    pub fn spend_of_tenant(&self, tenant: &str, tokens: u64, reserved: u64) {
        let (mut today, _) = self.today();
        let spent = today.of_tenant(tenant);
        *spent = spent.saturating_add(tokens).saturating_sub(reserved);
    }

    /// Whether anything was used today.
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
    fn a_used_budget_refuses_until_the_day_is_over() {
        // The test must not run over midnight.
        while today().1 < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let budget = Budget::default();
        let none = Spent::default();
        let reserve = |budget: &Budget, count, known| budget.reserve(100, Urgency::Query, count, known);
        reserve(&budget, 70, none).unwrap();
        // A reservation counts at once, and turns out to be less afterwards.
        assert!(reserve(&budget, 31, none).is_err());
        budget.spend(60, 70);
        assert!(reserve(&budget, 41, none).is_err());
        reserve(&budget, 40, none).unwrap();
        // Tokens that the database knows of count, because the gateway may have been restarted.
        let budget = Budget::default();
        let (day, _) = today();
        // Yesterday's tokens, which come with a text that was queued before midnight, do not count.
        reserve(&budget, 1, Spent { day: day - 1, tokens: 100, ..none }).unwrap();
        let throttled = reserve(&budget, 1, Spent { day, tokens: 100, ..none }).unwrap_err();
        assert!(throttled.wait <= Duration::from_secs(86_400));
    }

    #[test]
    fn the_rest_of_a_budget_is_reserved_for_more_urgent_requests() {
        while today().1 < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let budget = Budget::default();
        let reserve = |urgency, count| budget.reserve(100, urgency, count, Spent::default());
        reserve(Urgency::Ingest, 90).unwrap();
        let reason = reserve(Urgency::Ingest, 1).unwrap_err().reason;
        assert!(reason.contains("daily_token_budget of 100 tokens is spent, except for 10"), "{reason}");
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
        // The tenant used less than estimated.
        budget.spend_of_tenant("a", 20, 50);
        budget.reserve_of_tenant("a", 50, 30, (0, 0)).unwrap();
        // Tokens that the database knows of count if they are of today.
        let (day, _) = today();
        assert!(budget.reserve_of_tenant("c", 50, 6, (day, 45)).is_err());
        budget.reserve_of_tenant("d", 50, 6, (day - 1, 45)).unwrap();
    }
}
