//! The one context of the worker: it owns the parts, and applies what they report.

use super::embed::gateway_link::GatewayLink;
use super::embed::send_queue::SendQueue;
use super::embed::unsaved::UnsavedVectors;
use super::finish::leases::Leases;
use super::finish::open_documents::OpenDocuments;
use super::finish::outcome::Outcomes;
use super::intake::claims::Claims;
use super::kinds::{self, Upkeeps};
use super::runner::Clock;
use super::works::Works;
use crate::jobs::queue::Job;
use crate::upkeep::Log;
use crate::work::{Event, Hold, Pauses, Target, Work};
use crate::worker::fault_pause::Backoff;
use kb_types::error::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

pub struct Worker {
    pub clock: Clock,
    pub leases: Leases,
    pub backoff: Backoff,
    pub claims: Claims,
    pub works: Works,
    pub open: OpenDocuments,
    pub outcomes: Outcomes,
    pub queue: SendQueue,
    pub link: GatewayLink,
    pub pauses: Pauses,
    pub unsaved: UnsavedVectors,
    pub upkeeps: Upkeeps,
    /// When upkeeps were last run.
    pub kept_up: Instant,
    pub log: Log,
}

impl Worker {
    pub fn new(died_at: Vec<i64>) -> Worker {
        Worker {
            clock: Clock::new(),
            leases: Leases::new(died_at),
            backoff: Backoff::default(),
            claims: Claims::default(),
            works: Works::new(kinds::works()),
            open: OpenDocuments::default(),
            outcomes: Outcomes::default(),
            queue: SendQueue::default(),
            link: GatewayLink::new(),
            pauses: Pauses::default(),
            unsaved: UnsavedVectors::default(),
            upkeeps: Upkeeps::default(),
            kept_up: Instant::now(),
            log: Log::default(),
        }
    }

    /// Lets a kind of work act, and applies what it reports, also what it reported before an error. The
    /// error of an event counts first: a lock in the kind's way costs this round only, but an event that
    /// could not be applied is lost, so that the worker must start over.
    pub fn act<T>(
        &mut self,
        kind: &str,
        act: impl FnOnce(&mut dyn Work, &Pauses, &mut Vec<Event>) -> Result<T>,
    ) -> Result<T> {
        let mut events = Vec::new();
        let result = self.works.of_mut(kind).and_then(|work| act(work, &self.pauses, &mut events));
        self.apply_all(events).and(result)
    }

    /// Applies all of these; the first error, if any meets one.
    pub fn apply_all(&mut self, events: impl IntoIterator<Item = Event>) -> Result<()> {
        let mut applied = Ok(());
        for event in events {
            applied = applied.and(self.apply(event));
        }
        applied
    }

    fn apply(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Written { documents, groups } => {
                documents.into_iter().for_each(|document| self.open.open(document));
                for mut group in groups {
                    group.holds = self.open.hold(group.documents.iter().copied());
                    self.queue.add(group);
                }
            }
            Event::Done(documents) => {
                return self.outcomes.finish(&self.works, &documents.iter().collect::<Vec<_>>());
            }
            Event::Failed { job, error, embedder } => {
                let work = self.works.of(&job.kind)?;
                return self.outcomes.fail(work, &job, &error, embedder.as_deref());
            }
            Event::GivenBack { jobs, delay } => return self.outcomes.give_back(&jobs, delay),
            Event::Unreleased(jobs) => self.outcomes.release_later(jobs),
            Event::Refused { target, error } => {
                self.pauses.note(&target.embedder, &target.build.tenant_id, &error, Instant::now());
            }
            Event::Grown { target, vectors } => self.upkeeps.note_vectors(&target.grown(), vectors),
        }
        Ok(())
    }

    /// Documents wait for one thing less; those that wait for nothing any more end, ready or not.
    pub fn end_holds(&mut self, holds: impl IntoIterator<Item = Hold>) -> Result<()> {
        let ended = self.open.end_holds(holds);
        self.apply_all(ended.into_events())
    }

    /// Ends documents that get no more vectors in a build, and pauses its embedder if the error says so.
    pub fn fail(&mut self, target: &Arc<Target>, holds: &[Hold], error: &Error) -> Result<()> {
        let events = self.open.fail(target, holds, error);
        self.apply_all(events)
    }

    /// The jobs that this worker has leases on.
    pub fn jobs(&self) -> Vec<Job> {
        self.open.jobs().chain(self.works.jobs()).collect()
    }
}
