//! Embedders that are not asked for a while: for all tenants, or for one. Pure.
//!
//! Documents of a paused embedder are claimed once all the same, chunked and written, so that they are found
//! by words. Then they wait: `kb.jobs.chunked` is the generation whose chunks are written, and claims pass
//! over these jobs while the pause lasts. The worker ends the pause of an embedder whose row has changed,
//! and kb.alter_embedder makes the jobs due, so that a corrected embedder is tried at once. A document that
//! meets a pause does not lengthen it.

use kb_types::Embedder;
use kb_types::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The longest pause of an embedder or a document before it is tried again.
pub const LONGEST: Duration = Duration::from_secs(300);
/// How often paused embedders are compared with what they are now.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

struct Pause {
    until: Instant,
    /// As it was when it was paused: an altered one is tried at once.
    embedder: Embedder,
    reason: Error,
}

#[derive(Default)]
pub struct Pauses {
    /// By embedder, and the tenant if it is paused for that one only.
    all: HashMap<(String, Option<String>), Pause>,
    compared: Option<Instant>,
}

/// For claiming: what to pass over.
#[derive(Debug, Default, PartialEq)]
pub struct Paused {
    /// Embedders that are paused for everybody.
    pub of_all: Vec<String>,
    /// Embedders that are paused for one tenant, and the tenants.
    pub of_one: (Vec<String>, Vec<String>),
}

impl Pauses {
    /// Begins a pause if the error asks for one; any other error says nothing about the embedder.
    pub fn note(&mut self, embedder: &Embedder, tenant: &str, error: &Error, now: Instant) {
        let Some(wait) = error.retry_after() else { return };
        let of_tenant = matches!(error, Error::Paused { of_tenant: true, .. });
        let key = (embedder.id.clone(), of_tenant.then(|| tenant.to_string()));
        let pause =
            Pause { until: now + wait.min(LONGEST), embedder: embedder.clone(), reason: error.clone() };
        self.all.insert(key, pause);
    }

    fn of<'a>(&'a self, embedder: &str, tenant: &str) -> impl Iterator<Item = &'a Pause> {
        let find = |tenant| self.all.get(&(embedder.to_string(), tenant));
        [find(None), find(Some(tenant.to_string()))].into_iter().flatten()
    }

    /// Whether there is a pause, though it may be over, or the embedder altered since; see [`Pauses::check`].
    pub fn is_noted(&self, embedder: &str, tenant: &str) -> bool {
        self.of(embedder, tenant).next().is_some()
    }

    /// The error says why nothing is sent to this embedder now, and how long that still lasts: noted again,
    /// it does not lengthen the pause.
    pub fn check(&self, embedder: &Embedder, tenant: &str, now: Instant) -> Result<()> {
        let holds = |pause: &&Pause| pause.until > now && pause.embedder == *embedder;
        let Some(pause) = self.of(&embedder.id, tenant).find(holds) else { return Ok(()) };
        let mut reason = pause.reason.clone();
        if let Error::Paused { retry_after_ms, .. } = &mut reason {
            *retry_after_ms = pause.until.duration_since(now).as_millis() as u64;
        }
        Err(reason)
    }

    /// The pauses that last; those that are over are forgotten.
    pub fn current(&mut self, now: Instant) -> Paused {
        self.all.retain(|_, pause| pause.until > now);
        let mut paused = Paused::default();
        for (embedder, tenant) in self.all.keys() {
            match tenant {
                None => paused.of_all.push(embedder.clone()),
                Some(tenant) => {
                    paused.of_one.0.push(embedder.clone());
                    paused.of_one.1.push(tenant.clone());
                }
            }
        }
        paused
    }

    /// The embedders to be compared with what they are now: none, if that was done a moment ago.
    pub fn due_for_comparison(&mut self, now: Instant) -> BTreeSet<String> {
        let is_due = self.compared.is_none_or(|at| now.duration_since(at) >= COMPARE_EVERY);
        if self.all.is_empty() || !is_due {
            return BTreeSet::new();
        }
        self.compared = Some(now);
        self.all.keys().map(|(embedder, _)| embedder.clone()).collect()
    }

    /// Whether an embedder is another one than when it was paused; None: it was dropped.
    pub fn is_altered(&self, id: &str, embedder: Option<&Embedder>) -> bool {
        let mut pauses = self.all.iter().filter(|((of, _), _)| of == id);
        pauses.any(|(_, pause)| Some(&pause.embedder) != embedder)
    }

    /// Ends all pauses of an embedder.
    pub fn end(&mut self, embedder: &str) {
        self.all.retain(|(of, _), _| of != embedder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedder(id: &str, base_url: &str) -> Embedder {
        Embedder {
            id: id.into(),
            provider: "openai".into(),
            model: "m".into(),
            dimension: 3,
            base_url: Some(base_url.into()),
            config: kb_types::EmbedderConfig::default(),
        }
    }

    fn paused(of_tenant: bool) -> Error {
        let problem = "the budget is spent".to_string();
        Error::Paused { embedder: "e".into(), problem, retry_after_ms: 10_000, of_tenant }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_of_one_tenant_is_none_of_others() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let e = embedder("e", "https://a");
        pauses.note(&e, "one", &paused(true), now);
        assert_eq!(pauses.check(&e, "one", now), Err(paused(true)));
        assert_eq!(pauses.check(&e, "two", now), Ok(()));
        assert_eq!(pauses.current(now).of_one, (vec!["e".to_string()], vec!["one".to_string()]));
        pauses.note(&e, "two", &paused(false), now);
        assert_eq!(pauses.check(&e, "three", now), Err(paused(false)));
        assert_eq!(pauses.current(now).of_all, ["e"]);
    }

    #[test]
    fn a_pause_ends_with_its_time_and_with_another_embedder() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let (before, after) = (embedder("e", "https://a"), embedder("e", "https://b"));
        pauses.note(&before, "t", &paused(false), now);
        assert!(pauses.check(&before, "t", now + 9 * SECOND).is_err());
        assert!(pauses.check(&after, "t", now).is_ok());
        assert!(pauses.check(&before, "t", now + 10 * SECOND).is_ok());
        assert!(pauses.is_altered("e", Some(&after)) && pauses.is_altered("e", None));
        assert!(!pauses.is_altered("e", Some(&before)));
        assert_eq!(pauses.current(now + 10 * SECOND), Paused::default());
    }

    #[test]
    fn a_document_that_meets_a_pause_does_not_lengthen_it() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let e = embedder("e", "https://a");
        pauses.note(&e, "t", &paused(false), now);
        for second in 1..10 {
            let now = now + second * SECOND;
            let error = pauses.check(&e, "t", now).unwrap_err();
            pauses.note(&e, "t", &error, now);
        }
        assert_eq!(pauses.check(&e, "t", now + 10 * SECOND), Ok(()));
    }

    #[test]
    fn paused_embedders_are_compared_once_a_second() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        assert!(pauses.due_for_comparison(now).is_empty());
        pauses.note(&embedder("e", "https://a"), "t", &paused(false), now);
        assert_eq!(pauses.due_for_comparison(now).len(), 1);
        assert!(pauses.due_for_comparison(now + SECOND / 2).is_empty());
        assert_eq!(pauses.due_for_comparison(now + SECOND).len(), 1);
        pauses.end("e");
        assert!(!pauses.is_noted("e", "t"));
    }

    #[test]
    fn a_failure_is_no_pause() {
        let mut pauses = Pauses::default();
        let error = Error::Gateway { problem: "is gone".into() };
        pauses.note(&embedder("e", "https://a"), "t", &error, Instant::now());
        assert!(!pauses.is_noted("e", "t"));
    }
}
