//! Between the worker and the gateway: sends batches of chunks without vectors, writes what comes back.

use super::document::Target;
use super::flights::{Flight, Group, Holder, Open};
use super::outcome::{RETRY, fail, finish};
use super::runner::Runner;
use crate::catalog::access::access;
use crate::error::{Error, Result};
use crate::gateway::client::{self, Connection};
use crate::gateway::protocol::{Access, Embedded, Request, Response, Urgency, Usage};
use crate::ingest::batch::Batcher;
use crate::model::{Embedder, Kind};
use crate::pg::{report, txn};
use crate::store::{documents, embedders, usage, vectors};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches of a local model at the gateway at most: one being computed, the others on their way.
const FLIGHTS: usize = 3;
/// Tokens of one batch for a local model at most, so that a live edit is not stuck behind a long one.
const BATCH_TOKENS: usize = 8192;
/// A gateway that says nothing for so long is asked whether it lives, and given up on after as long again.
const SILENCE: Duration = Duration::from_secs(60);
/// Pause before vectors are written that the database did not take.
const SAVE_PAUSE: Duration = Duration::from_secs(2);
const GATEWAY_START: Duration = Duration::from_secs(10);

impl Runner {
    /// Fills the gateway with batches.
    pub(super) fn send(&mut self) -> Result<bool> {
        let mut sent = false;
        while let Some(flight) = self.flights.halved.pop() {
            self.dispatch(flight)?;
            sent = true;
        }
        // Each group is looked at as long as it has something to send and its embedder has room.
        let mut left = self.flights.groups.len();
        while left > 0 {
            left -= 1;
            let Some(mut group) = self.flights.groups.pop_front() else { break };
            if let Some(error) = self.is_paused(&group.target.embedder) {
                self.set_aside_if_needed(group, &error)?;
                sent = true;
            } else if self.has_room(&group.target) {
                sent = true;
                match ask_anew(&mut group) {
                    Ok(access) => left += usize::from(self.send_slice(group, access)?),
                    Err(error) => self.set_aside_if_needed(group, &error)?,
                }
            } else {
                self.flights.groups.push_back(group);
            }
        }
        Ok(sent)
    }

    fn has_room(&self, target: &Target) -> bool {
        if !target.is_remote() {
            return self.flights.sent.values().filter(|f| !f.target.is_remote()).count() < FLIGHTS;
        }
        let embedder = &target.embedder;
        // Twice what can be under way at the provider: the next batches wait at the gateway.
        let most = 2 * embedder.config.remote.max_concurrency * embedder.config.batch_size;
        self.flights.texts_out(&embedder.id) < most
    }

    /// Why nothing is sent to an embedder now.
    fn is_paused(&self, embedder: &Embedder) -> Option<Error> {
        let (until, paused, error) = self.paused.get(&embedder.id)?;
        (*until > Instant::now() && paused == embedder).then(|| error.clone())
    }

    /// Documents of an embedder that cannot be asked; those that want nothing of it are done.
    fn set_aside_if_needed(&mut self, group: Group, error: &Error) -> Result<()> {
        let build = &group.target.build;
        let missing =
            txn::in_txn(|| vectors::missing(&build.table, build.build_no, &group.documents, group.after, 1));
        match missing {
            Ok(missing) if missing.is_empty() => {
                let done = self.flights.let_go(group.holders);
                self.finish(done)
            }
            Ok(_) => self.set_aside(group, error),
            Err(error) => self.set_aside(group, &error),
        }
    }

    /// Documents whose chunks are written and that get no vectors now.
    fn set_aside(&mut self, group: Group, error: &Error) -> Result<()> {
        let is_live = group.target.build.state == "live";
        let mut spared = Vec::new();
        for holder in group.holders {
            // What the old embedder cannot do must not keep the next build from being made.
            if is_live && self.flights.open.get(&holder.0).is_some_and(|open| open.in_next) {
                spared.push(holder);
            } else if let Some(open) = self.flights.take(holder) {
                self.fail_for(&group.target.embedder, &open, error)?;
            }
        }
        let done = self.flights.let_go(spared);
        self.finish(done)
    }

    /// Sends the next slice of a group; whether the group has more.
    fn send_slice(&mut self, mut group: Group, access: Access) -> Result<bool> {
        let (build, embedder) = (&group.target.build, &group.target.embedder);
        let limit = embedder.config.batch_size;
        let slice = txn::in_txn(|| {
            vectors::missing(&build.table, build.build_no, &group.documents, group.after, limit as i64)
        });
        let mut slice = match slice {
            Ok(slice) => slice,
            // Its knowledge base was dropped meanwhile, say: nobody else's documents have to do with it.
            Err(error) => {
                self.set_aside(group, &error)?;
                return Ok(false);
            }
        };
        let mut exhausted = slice.len() < limit;
        if !group.target.is_remote() {
            let mut batcher = Batcher::new(limit, BATCH_TOKENS);
            let mut first = None;
            let total = slice.len();
            for chunk in slice {
                let tokens = chunk.token_count.max(0) as usize;
                first = batcher.push(chunk, tokens);
                if first.is_some() {
                    break;
                }
            }
            slice = first.or_else(|| batcher.flush()).unwrap_or_default();
            exhausted &= slice.len() == total;
        }
        if let Some(last) = slice.last() {
            group.after = (last.document_id, last.ordinal);
        }
        let slice = self.flights.join(group.target.build.build_no, slice);
        if !slice.is_empty() {
            let mut flight = Flight::new(group.target.clone(), access, slice);
            let mut documents: Vec<i64> = flight.chunks.iter().map(|chunk| chunk.document_id).collect();
            documents.dedup();
            flight.holders = self.flights.hold(documents);
            self.dispatch(flight)?;
        }
        // Documents that the slices have passed wait for nothing but their flights.
        let after = if exhausted { i64::MAX } else { group.after.0 };
        let (passed, left): (Vec<Holder>, Vec<Holder>) =
            group.holders.into_iter().partition(|(document, _)| *document < after);
        group.holders = left;
        let done = self.flights.let_go(passed);
        self.finish(done)?;
        if !exhausted {
            self.flights.groups.push_back(group);
        }
        Ok(!exhausted)
    }

    fn dispatch(&mut self, mut flight: Flight) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(GATEWAY_START)?),
        };
        let target = &flight.target;
        let id = connection.send(&Request::Embed {
            embedder: target.embedder.clone(),
            access: flight.access.clone(),
            kind: Kind::Document,
            urgency: Urgency::Ingest,
            texts: flight.texts.clone(),
            tokens: flight.tokens.clone(),
            client: client::this_client(target.build.kb_no),
        })?;
        flight.sent = Instant::now();
        if self.flights.sent.is_empty() {
            self.heard = Instant::now();
        }
        self.flights.sent.insert(id, flight);
        Ok(())
    }

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
            lost?;
            self.check_gateway()?;
            return Ok(false);
        }
        for (flight, response) in arrived {
            let (embedder, count) = (&flight.target.embedder, flight.texts.len());
            let answer = match response {
                Response::Embedded(embedded) => client::check(embedded, embedder, count),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            };
            match answer {
                Ok(embedded) => self.store(flight, embedded)?,
                Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => self.halve(flight),
                Err(error) => self.fail_flight(&flight, &error)?,
            }
        }
        lost.map(|()| true)
    }

    /// Vectors that the database did not take last time: again, until it does. They are paid for.
    pub(super) fn save_again(&mut self) -> Result<bool> {
        if self.unsaved.is_empty() || self.save_at > Instant::now() {
            return Ok(false);
        }
        for (flight, embedded) in std::mem::take(&mut self.unsaved) {
            self.store(flight, embedded)?;
        }
        Ok(self.unsaved.is_empty())
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
        let (build, embedder) = (&flight.target.build, &flight.target.embedder);
        let failed: Vec<usize> = embedded.failed.iter().map(|(text, _)| *text as usize).collect();
        let numbers = embedded.vectors.numbers();
        let (ids, numbers) = flight.spread(&numbers, &failed, embedder.dimension);
        self.note_failures(&flight, &embedded);
        let ended = self.flights.let_go(flight.holders.iter().copied());
        let (done, broken): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(_, open)| open.error.is_none());
        let result = txn::in_txn(|| {
            // Documents before chunks: the one order of locks.
            documents::lock_current(
                &done.iter().map(|(id, open)| (*id, open.job.generation)).collect::<Vec<_>>(),
            )?;
            if !ids.is_empty() {
                vectors::insert(&build.table, build.build_no, build.fingerprint, &ids, &numbers)?;
            }
            if flight.target.is_remote() && embedded.usage != Usage::default() {
                let price = embedder.config.remote.price_micros;
                usage::add(&embedder.id, build.kb_no, &embedded.usage, price)?;
            }
            finish(&done)
        });
        self.index_due = true;
        match result {
            Ok(()) => self.fail_broken(broken),
            // A full disk, a deadlock: the vectors are kept until the database takes them.
            Err(error) if error.is_transient() && flight.target.is_remote() => {
                report::log(&format!("worker keeps vectors that cannot be written now: {error}"));
                self.flights.put_back(&flight.holders, done.into_iter().chain(broken));
                self.unsaved.push((flight, embedded));
                self.save_at = Instant::now() + SAVE_PAUSE;
                Ok(())
            }
            Err(error) => {
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
            self.note_pause(&flight.target.embedder, &error);
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
    fn finish(&mut self, done: Vec<(i64, Open)>) -> Result<()> {
        if done.is_empty() {
            return Ok(());
        }
        let (done, broken): (Vec<_>, Vec<_>) = done.into_iter().partition(|(_, open)| open.error.is_none());
        txn::in_txn(|| finish(&done))?;
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

    fn halve(&mut self, flight: Flight) {
        let holders = flight.holders.clone();
        for half in flight.halves() {
            self.flights.hold_again(&half.holders);
            self.flights.halved.push(half);
        }
        // Each document is held by the half or halves that have its chunks, so none is done by this.
        self.flights.let_go(holders);
    }

    fn fail_flight(&mut self, flight: &Flight, error: &Error) -> Result<()> {
        let (embedder, is_live) = (&flight.target.embedder, flight.target.build.state == "live");
        self.note_pause(embedder, error);
        let mut spared: Vec<Holder> = Vec::new();
        for holder in &flight.holders {
            match self.flights.open.get(&holder.0) {
                // What yesterday's settings cannot take must not keep the next build from being made.
                Some(open) if is_live && open.in_next => spared.push(*holder),
                _ => {
                    if let Some(open) = self.flights.take(*holder) {
                        self.fail_for(embedder, &open, error)?;
                    }
                }
            }
        }
        let done = self.flights.let_go(spared);
        self.finish(done)
    }

    fn fail_for(&mut self, embedder: &Embedder, open: &Open, error: &Error) -> Result<()> {
        self.note_pause(embedder, error);
        fail(&open.job, error)
    }

    /// An embedder that is paused is not asked until the pause is over.
    fn note_pause(&mut self, embedder: &Embedder, error: &Error) {
        if let Some(wait) = error.retry_after() {
            let until = Instant::now() + wait.min(RETRY.1);
            self.paused.insert(embedder.id.clone(), (until, embedder.clone(), error.clone()));
        }
    }
}

/// The right to ask a group's embedder, which is read anew for each slice: a key, an address, a limit may be changed
/// while a large document is under way.
fn ask_anew(group: &mut Group) -> Result<Access> {
    let known = &group.target.embedder;
    let (embedder, access) = txn::in_txn(|| {
        let embedder = embedders::get(&known.id)?;
        let access = access(&embedder)?;
        Ok((embedder, access))
    })?;
    if embedder != *known {
        group.target = Arc::new(Target { build: group.target.build.clone(), embedder });
    }
    Ok(access)
}
