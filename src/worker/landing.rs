//! What comes back from the gateway: vectors are written, documents that have all of theirs end, faults are sorted.

use super::document::Target;
use super::flights::{Flight, Holder, Open, Unsaved};
use super::outcome::{RETRY, fail, finish, finish_all};
use super::runner::Runner;
use crate::error::{Error, Result};
use crate::gateway::client;
use crate::gateway::protocol::{Embedded, Request, Response, Usage};
use crate::pg::{report, txn};
use crate::store::{usage, vectors};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A gateway that says nothing for so long is asked whether it lives, and given up on after as long again.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause before vectors are written that the database did not take.
const SAVE_PAUSE: Duration = Duration::from_secs(2);

impl Runner {
    /// Writes the vectors that have come, and finishes documents that have all of theirs.
    pub(super) fn receive(&mut self) -> Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut arrived = Vec::new();
        // What has come is written though the gateway is gone by now: it is paid for.
        let lost = loop {
            match connection.receive() {
                Ok(Some((id, response))) => {
                    self.heard = Instant::now();
                    self.asked = false;
                    if let Some(flight) = self.flights.sent.remove(&id) {
                        arrived.push((flight, response));
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if arrived.is_empty() {
            // A gateway closes what is idle where it has many connections; the next batch opens another.
            if lost.is_err() && self.flights.sent.is_empty() {
                self.connection = None;
                return Ok(false);
            }
            lost?;
            self.check_gateway()?;
            return Ok(false);
        }
        // One that fails does not take along the others, which are paid for, too.
        let mut first = lost;
        for (flight, response) in arrived {
            let (embedder, count) = (&flight.target.embedder, flight.texts.len());
            let answer = match response {
                Response::Embedded(embedded) => client::check(embedded, embedder, count),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            };
            let landed = match answer {
                Ok(embedded) => self.store(flight, embedded),
                Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => {
                    self.halve(flight);
                    Ok(())
                }
                Err(error) => self.fail_flight(&flight, &error),
            };
            first = first.and(landed);
        }
        first.map(|()| true)
    }

    /// Vectors that the database did not take last time: again, until it does. They are paid for.
    pub(super) fn save_again(&mut self) -> Result<bool> {
        if self.unsaved.is_empty() || self.save_at > Instant::now() {
            return Ok(false);
        }
        // What fails again goes to the end, and the others with it wait for the next time: one line of log a pause.
        let mut kept = std::mem::take(&mut self.unsaved).into_iter();
        let mut saved = Ok(true);
        while self.unsaved.is_empty() && saved.is_ok() {
            let Some(next) = kept.next() else { return saved };
            saved = self.store(next.flight, next.embedded).map(|()| true);
        }
        self.unsaved.splice(..0, kept);
        saved.map(|_| false)
    }

    /// A provider may take its time, but the gateway itself answers at once: one that does not is given up on.
    fn check_gateway(&mut self) -> Result<()> {
        if self.flights.sent.is_empty() || self.heard.elapsed() < SILENCE {
            return Ok(());
        }
        if !self.asked {
            self.asked = true;
            self.heard = Instant::now();
            if let Some(connection) = &mut self.connection {
                connection.send(&Request::Health)?;
            }
            return Ok(());
        }
        Err(Error::Gateway { problem: "does not answer".into() })
    }

    fn store(&mut self, flight: Flight, embedded: Embedded) -> Result<()> {
        if flight.target.is_remote() && self.is_table_locked(&flight.target) {
            // Not once more for each batch.
            self.unsaved.push(Unsaved { flight, embedded, is_of_table: true });
            return Ok(());
        }
        let (build, embedder) = (&flight.target.build, &flight.target.embedder);
        let failed: Vec<usize> = embedded.failed.iter().map(|(text, _)| *text as usize).collect();
        let numbers = embedded.vectors.numbers();
        let (ids, numbers) = flight.spread(&numbers, &failed, embedder.dimension);
        self.note_failures(&flight, &embedded);
        let ended = self.flights.let_go(flight.holders.iter().copied());
        let (done, broken): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(_, open)| open.error.is_none());
        let result = txn::in_txn(|| {
            // Nothing here waits for a document or a chunk, so the order of locks does not matter.
            let mut blocked = HashSet::new();
            if !ids.is_empty() {
                let kept = vectors::insert(&build.table, build.build_no, build.fingerprint, &ids, &numbers)?;
                if kept.len() < ids.len() {
                    let wanted: HashSet<Uuid> = ids.iter().filter(|id| !kept.contains(id)).copied().collect();
                    let left_out = flight.chunks.iter().filter(|chunk| wanted.contains(&chunk.chunk_id));
                    blocked.extend(left_out.map(|chunk| chunk.document_id));
                }
            }
            book(&flight, &embedded.usage)?;
            finish(&done, &blocked)?;
            Ok(blocked)
        });
        self.index_due = true;
        match result {
            Ok(blocked) => {
                self.flights.note_landed(&flight);
                for document in blocked {
                    if let Some(open) = self.flights.held(&flight.holders, document) {
                        open.error.get_or_insert_with(Error::busy);
                    }
                }
                self.fail_broken(broken)
            }
            // A full disk, a deadlock, a locked table: the vectors are kept until the database takes them.
            Err(error) if error.is_transient() && flight.target.is_remote() => {
                report::log(&format!("worker keeps vectors that cannot be written now: {error}"));
                self.flights.put_back(&flight.holders, done.into_iter().chain(broken));
                self.unsaved.push(Unsaved { flight, embedded, is_of_table: error.is_lock() });
                self.save_at = Instant::now() + SAVE_PAUSE;
                Ok(())
            }
            Err(error) => {
                // What was asked is to be paid, whatever became of it.
                if let Err(error) = txn::in_txn(|| book(&flight, &embedded.usage)) {
                    report::log(&format!("worker cannot book what a request cost: {error}"));
                }
                for (_, open) in done {
                    fail(&open.job, &error)?;
                }
                self.fail_broken(broken)?;
                self.fail_flight(&flight, &error)
            }
        }
    }

    /// Remembers of a text's document what is wrong with it; its other chunks go on.
    fn note_failures(&mut self, flight: &Flight, embedded: &Embedded) {
        let is_live = flight.target.build.state == "live";
        for (text, fault) in &embedded.failed {
            let error: Error = fault.clone().into();
            self.note_pause(&flight.target, &error);
            for chunk in flight.chunks.iter().filter(|chunk| chunk.text == *text as usize) {
                let Some(open) = self.flights.held(&flight.holders, chunk.document_id) else { continue };
                // What the old embedder cannot do must not keep the next build from being made.
                if is_live && open.in_next {
                    continue;
                }
                // Of several the one that passes by itself counts: then all are tried again.
                if open.error.as_ref().is_none_or(|before| !before.is_transient()) {
                    open.error = Some(error.clone().of_chunk(chunk.ordinal));
                }
            }
        }
    }

    /// Ends documents that wait for nothing more, well or not.
    pub(super) fn finish(&mut self, done: Vec<(i64, Open)>) -> Result<()> {
        if done.is_empty() {
            return Ok(());
        }
        let (done, broken): (Vec<_>, Vec<_>) = done.into_iter().partition(|(_, open)| open.error.is_none());
        finish_all(&done)?;
        self.fail_broken(broken)
    }

    fn fail_broken(&mut self, broken: Vec<(i64, Open)>) -> Result<()> {
        for (_, open) in broken {
            if let Some(error) = &open.error {
                fail(&open.job, error)?;
            }
        }
        Ok(())
    }

    pub(super) fn halve(&mut self, flight: Flight) {
        let holders = flight.holders.clone();
        for half in flight.halves() {
            self.flights.hold_again(&half.holders);
            self.flights.halved.push(half);
        }
        // Each document is held by the half or halves that have its chunks, so none is done by this.
        self.flights.let_go(holders);
    }

    pub(super) fn fail_flight(&mut self, flight: &Flight, error: &Error) -> Result<()> {
        let (target, is_live) = (&flight.target, flight.target.build.state == "live");
        self.note_pause(target, error);
        let mut spared: Vec<Holder> = Vec::new();
        for holder in &flight.holders {
            match self.flights.open.get(&holder.0) {
                // What yesterday's settings cannot take must not keep the next build from being made.
                Some(open) if is_live && open.in_next => spared.push(*holder),
                _ => {
                    if let Some(open) = self.flights.take(*holder) {
                        self.fail_for(target, &open, error)?;
                    }
                }
            }
        }
        let done = self.flights.let_go(spared);
        self.finish(done)
    }

    pub(super) fn fail_for(&mut self, target: &Target, open: &Open, error: &Error) -> Result<()> {
        self.note_pause(target, error);
        fail(&open.job, error)
    }

    /// An embedder that is paused, for one tenant perhaps, is not asked until the pause is over.
    fn note_pause(&mut self, target: &Target, error: &Error) {
        let Some(wait) = error.retry_after() else { return };
        let of_tenant = matches!(error, Error::Paused { of_tenant: true, .. });
        let tenant = of_tenant.then(|| target.build.tenant_id.clone());
        let (until, embedder) = (Instant::now() + wait.min(RETRY.1), target.embedder.clone());
        self.paused.insert((embedder.id.clone(), tenant), (until, embedder, error.clone()));
    }
}

/// Adds to kb.usage what a flight's request cost.
fn book(flight: &Flight, spent: &Usage) -> Result<()> {
    let Target { build, embedder } = &*flight.target;
    if !flight.target.is_remote() || *spent == Usage::default() {
        return Ok(());
    }
    usage::add(&embedder.id, build.kb_no, &build.tenant_id, spent, embedder.config.remote.price_micros)
}
