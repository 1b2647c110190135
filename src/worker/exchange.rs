//! To the gateway: batches of chunks that have no vector yet.

use super::document::Target;
use super::flights::{Flight, Group, Holder, Unsaved};
use super::runner::Runner;
use crate::catalog::access::access;
use crate::error::{Error, Result};
use crate::gateway::client::{self, Connection};
use crate::gateway::frame;
use crate::gateway::memory::is_within_share;
use crate::gateway::protocol::{Access, Request, Urgency};
use crate::ingest::batch::Batcher;
use crate::model::{Embedder, Kind};
use crate::pg::txn;
use crate::store::vectors::Missing;
use crate::store::{documents, embedders, vectors};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Batches of a local model at the gateway at most: one being computed, the others on their way.
const FLIGHTS: usize = 3;
/// Tokens of one batch for a local model at most, so that a live edit is not stuck behind a long one.
const BATCH_TOKENS: usize = 8192;
/// Bytes that batches at the gateway hold there at most, by [`frame::cost`]. Each embedder has at most as much as is
/// free, so that however many are stuck another finds room.
const AT_GATEWAY: usize = 128 * 1024 * 1024;
const GATEWAY_START: Duration = Duration::from_secs(10);

impl Runner {
    /// Fills the gateway with batches.
    pub(super) fn send(&mut self) -> Result<bool> {
        let mut sent = false;
        self.asked_anew.clear();
        while let Some(flight) = self.flights.halved.pop() {
            self.dispatch(flight)?;
            sent = true;
        }
        // Each group is looked at as long as it has something to send and its embedder has room.
        let mut left = self.flights.groups.len();
        while left > 0 {
            left -= 1;
            let Some(mut group) = self.flights.groups.pop_front() else { break };
            if !self.is_paused(&group.target) && !self.has_room(&group.target) {
                self.flights.groups.push_back(group);
                continue;
            }
            match self.ask_anew(&mut group).and_then(|access| self.not_paused(&group.target).map(|()| access))
            {
                Err(error) => {
                    self.set_aside_if_needed(group, &error)?;
                    sent = true;
                }
                Ok(access) if self.has_room(&group.target) => {
                    left += usize::from(self.send_slice(group, access)?);
                    sent = true;
                }
                // A pause that is over, and no room yet: nothing has moved.
                Ok(_) => self.flights.groups.push_back(group),
            }
        }
        Ok(sent)
    }

    fn has_room(&self, target: &Target) -> bool {
        // Nothing more is bought for a table that takes nothing.
        if self.is_table_locked(target) {
            return false;
        }
        if !target.is_remote() {
            return self.flights.sent.values().filter(|f| !f.target.is_remote()).count() < FLIGHTS;
        }
        let embedder = &target.embedder;
        let (own, all) = self.flights.cost(&embedder.id);
        // Twice what can be under way at the provider: the next batches wait at the gateway.
        let most = 2 * embedder.config.remote.max_concurrency * embedder.config.batch_size;
        self.flights.texts_out(&embedder.id) < most && is_within_share(own, 1, all, AT_GATEWAY)
    }

    /// Whether vectors wait for the lock of a build's table.
    pub(super) fn is_table_locked(&self, target: &Target) -> bool {
        let table = &target.build.table.table_name;
        let is_of_it = |unsaved: &Unsaved| unsaved.flight.target.build.table.table_name == *table;
        self.unsaved.iter().any(|unsaved| unsaved.is_of_table && is_of_it(unsaved))
    }

    fn pauses<'a>(&'a self, target: &Target) -> impl Iterator<Item = &'a (Instant, Embedder, Error)> {
        let of = |tenant| self.paused.get(&(target.embedder.id.clone(), tenant));
        [of(None), of(Some(target.build.tenant_id.clone()))].into_iter().flatten()
    }

    fn is_paused(&self, target: &Target) -> bool {
        self.pauses(target).next().is_some()
    }

    /// The error says why nothing is sent to an embedder now.
    fn not_paused(&self, target: &Target) -> Result<()> {
        let holds =
            |until: &Instant, paused: &Embedder| *until > Instant::now() && *paused == target.embedder;
        match self.pauses(target).find(|(until, paused, _)| holds(until, paused)) {
            Some((_, _, error)) => Err(error.clone()),
            None => Ok(()),
        }
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
                self.fail_for(&group.target, &open, error)?;
            }
        }
        let done = self.flights.let_go(spared);
        self.finish(done)
    }

    /// The next chunks of a group without a vector, and whether there are no more. Those whose text has got one elsewhere
    /// by now are given it.
    fn next_slice(&self, group: &Group, limit: usize) -> Result<(Vec<Missing>, bool)> {
        let build = &group.target.build;
        let mut slice =
            vectors::missing(&build.table, build.build_no, &group.documents, group.after, limit as i64)?;
        let exhausted = slice.len() < limit;
        if !self.flights.any_landed(build.build_no, &slice) {
            return Ok((slice, exhausted));
        }
        let chunk_ids: Vec<Uuid> = slice.iter().map(|chunk| chunk.chunk_id).collect();
        let twins = vectors::twins(&build.table, build.build_no, build.fingerprint, &chunk_ids)?;
        if !twins.is_empty() {
            let mut ids: Vec<i64> = slice.iter().map(|chunk| chunk.document_id).collect();
            ids.dedup();
            let generation = |id: &i64| self.flights.open.get(id).map(|open| (*id, open.job.generation));
            // Documents before chunks: the one order of locks.
            let current =
                documents::lock_current(&ids.iter().filter_map(generation).collect::<Vec<_>>())?.current;
            ids.retain(|id| current.contains(id));
            vectors::reuse(&build.table, build.build_no, build.fingerprint, &ids, None)?;
            slice.retain(|chunk| !(current.contains(&chunk.document_id) && twins.contains(&chunk.chunk_id)));
        }
        Ok((slice, exhausted))
    }

    /// Sends the next slice of a group; whether the group has more.
    fn send_slice(&mut self, mut group: Group, access: Access) -> Result<bool> {
        let embedder = &group.target.embedder;
        let limit = embedder.config.batch_size.min(frame::max_texts(embedder.dimension));
        let (mut slice, mut exhausted) = match txn::in_txn(|| self.next_slice(&group, limit)) {
            Ok(found) => found,
            // Its knowledge base was dropped meanwhile, say: nobody else's documents have to do with it.
            Err(error) => {
                self.set_aside(group, &error)?;
                return Ok(false);
            }
        };
        // As many as a request takes bytes, and a local model tokens.
        let is_remote = group.target.is_remote();
        let weight = |chunk: &Missing| match is_remote {
            true => chunk.content.len(),
            false => {
                let tokens = chunk.token_count.max(0) as usize;
                chunk.content.len().max(tokens * (frame::MAX_TEXTS / BATCH_TOKENS))
            }
        };
        let mut batcher = Batcher::new(limit, frame::MAX_TEXTS);
        let mut first = None;
        let total = slice.len();
        for chunk in slice {
            let weight = weight(&chunk);
            first = batcher.push(chunk, weight);
            if first.is_some() {
                break;
            }
        }
        slice = first.or_else(|| batcher.flush()).unwrap_or_default();
        exhausted &= slice.len() == total;
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
        // One that is too large for a request is alone in its batch.
        if let Some(text) = flight.texts.iter().find(|text| text.len() > frame::MAX_TEXT) {
            let what = "a text to be embedded".to_string();
            let error = Error::TooLarge { what, size: text.len(), limit: frame::MAX_TEXT };
            return match flight.texts.len() {
                1 => self.fail_flight(&flight, &error),
                _ => {
                    self.halve(flight);
                    Ok(())
                }
            };
        }
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
            client: client::this_client(&target.build.tenant_id, target.build.kb_no),
            patience_ms: None,
        })?;
        flight.sent = Instant::now();
        if self.flights.sent.is_empty() {
            self.heard = Instant::now();
        }
        self.flights.sent.insert(id, flight);
        Ok(())
    }

    /// The right to ask a group's embedder, which is read anew in each round of sending: a key, an address, a limit may be changed
    /// while a large document is under way.
    fn ask_anew(&mut self, group: &mut Group) -> Result<Access> {
        let known = &group.target.embedder;
        // What a tenant spent counts only where it is bounded.
        let tenant = match known.config.remote.tenant_share {
            Some(_) => group.target.build.tenant_id.clone(),
            None => String::new(),
        };
        let key = (known.id.clone(), tenant);
        if let Some((embedder, access)) = self.asked_anew.get(&key)
            && embedder == known
        {
            return Ok(access.clone());
        }
        let (embedder, access) = txn::in_txn(|| {
            let embedder = embedders::get(&known.id)?;
            let access = access(&embedder, &group.target.build.tenant_id)?;
            Ok((embedder, access))
        })?;
        self.asked_anew.insert(key, (embedder.clone(), access.clone()));
        if embedder != *known {
            group.target = Arc::new(Target { build: group.target.build.clone(), embedder });
        }
        Ok(access)
    }
}
