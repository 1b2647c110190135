//! What one credential may spend: tokens a day.

use super::limiter::Held;
use super::protocol::Spent;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What was spent today under one key, by all embedders that have it.
#[derive(Debug, Default)]
pub struct Budget {
    spent: Mutex<Spent>,
}

/// The days since 1970 (UTC), and how long until the next.
fn today() -> (u64, Duration) {
    const DAY: u64 = 86_400;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (now / DAY, Duration::from_secs(DAY - now % DAY))
}

impl Budget {
    /// Takes `count` of the `budget` tokens a day, if they are left; [`Budget::spend`] says what it really was.
    /// `known` were spent before this gateway started, as far as the asking database knew when it asked.
    pub fn reserve(&self, budget: u64, count: u64, known: Spent) -> Result<(), Held> {
        let (day, left) = today();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.day != day {
            *spent = Spent { day, tokens: 0 };
        }
        // What was asked before midnight brings the figure of yesterday.
        if known.day == day {
            spent.tokens = spent.tokens.max(known.tokens);
        }
        if spent.tokens.saturating_add(count) <= budget {
            spent.tokens += count;
            return Ok(());
        }
        Err(Held {
            wait: left,
            reason: format!("its daily_token_budget of {budget} tokens is spent ({} today)", spent.tokens),
        })
    }

    /// So many tokens were spent, of which `reserved` had been taken.
    pub fn spend(&self, tokens: u64, reserved: u64) {
        let (day, _) = today();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.day != day {
            *spent = Spent { day, tokens: 0 };
        }
        spent.tokens = spent.tokens.saturating_add(tokens).saturating_sub(reserved);
    }

    /// Whether something was spent today.
    pub fn is_needed(&self) -> bool {
        let spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.day == today().0 && spent.tokens > 0
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
        budget.reserve(100, 70, none).unwrap();
        // Before it is answered it counts already; it was less than thought.
        assert!(budget.reserve(100, 31, none).is_err());
        budget.spend(60, 70);
        assert!(budget.reserve(100, 41, none).is_err());
        budget.reserve(100, 40, none).unwrap();
        // What the database knows counts, too: the gateway may have been restarted.
        let budget = Budget::default();
        let (day, _) = today();
        // But not what it knew of yesterday, of a text that was queued before midnight.
        budget.reserve(100, 1, Spent { day: day - 1, tokens: 100 }).unwrap();
        let held = budget.reserve(100, 1, Spent { day, tokens: 100 }).unwrap_err();
        assert!(held.wait <= Duration::from_secs(86_400));
    }
}
