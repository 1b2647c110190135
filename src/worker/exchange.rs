//! Between the worker and the gateway: sends batches of chunks without vectors, writes what comes back.

use super::flights::Flight;
use super::outcome::{fail, finish};
use super::runner::Runner;
use crate::error::{Error, Result};
use crate::gateway::client::{self, Connection};
use crate::gateway::protocol::{Request, Response, Urgency};
use crate::ingest::batch::Batcher;
use crate::model::Kind;
use crate::pg::txn;
use crate::store::{documents, vectors};
use std::time::{Duration, Instant};

/// Batches at the gateway at most: one being computed, the others on their way.
const FLIGHTS: usize = 3;
/// Tokens of one batch for a local model at most, so that a live edit is not stuck behind a long one.
const BATCH_TOKENS: usize = 8192;
/// The gateway is given up on after this long without an answer.
const FLIGHT_TIMEOUT: Duration = Duration::from_secs(300);
const GATEWAY_START: Duration = Duration::from_secs(10);

impl Runner {
    /// Fills the gateway with batches.
    pub(super) fn send(&mut self) -> Result<bool> {
        let mut sent = false;
        while self.flights.sent.len() < FLIGHTS {
            if let Some(flight) = self.flights.halved.pop() {
                self.dispatch(flight)?;
                sent = true;
                continue;
            }
            let Some(mut group) = self.flights.groups.pop_front() else { break };
            sent = true;
            let (build, embedder) = (&group.target.0, &group.target.1);
            let limit = embedder.config.batch_size;
            let mut slice = txn::in_txn(|| {
                vectors::missing(&build.table, build.build_no, &group.documents, group.after, limit as i64)
            })?;
            let mut exhausted = slice.len() < limit;
            if embedder.provider == "local" {
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
                let flight = Flight::new(group.target.clone(), slice);
                self.flights.hold(flight.documents());
                self.dispatch(flight)?;
            }
            if exhausted {
                let done = self.flights.let_go(group.documents);
                txn::in_txn(|| finish(&done))?;
            } else {
                self.flights.groups.push_back(group);
            }
        }
        Ok(sent)
    }

    fn dispatch(&mut self, mut flight: Flight) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(GATEWAY_START)?),
        };
        let id = connection.send(&Request::Embed {
            embedder: flight.target.1.clone(),
            kind: Kind::Document,
            urgency: Urgency::Ingest,
            texts: flight.texts.clone(),
        })?;
        flight.sent = Instant::now();
        self.flights.sent.insert(id, flight);
        Ok(())
    }

    /// Writes the vectors that have come, and finishes documents that have all of theirs.
    pub(super) fn receive(&mut self) -> Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut arrived = Vec::new();
        while let Some((id, response)) = connection.receive()? {
            if let Some(flight) = self.flights.sent.remove(&id) {
                arrived.push((flight, response));
            }
        }
        if arrived.is_empty() {
            return match self.flights.sent.values().any(|f| f.sent.elapsed() > FLIGHT_TIMEOUT) {
                true => Err(Error::Gateway { problem: "does not answer".into() }),
                false => Ok(false),
            };
        }
        for (flight, response) in arrived {
            let (embedder, count) = (&flight.target.1, flight.texts.len());
            let answer = match response {
                Response::Vectors(vectors) => client::check(vectors, embedder, count),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            };
            match answer {
                Ok(vectors) => self.store(flight, &vectors.numbers())?,
                Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => self.halve(flight),
                Err(error) => self.fail_flight(&flight, &error)?,
            }
        }
        Ok(true)
    }

    fn store(&mut self, flight: Flight, numbers: &[f32]) -> Result<()> {
        let (build, embedder) = (&flight.target.0, &flight.target.1);
        let numbers = flight.spread(numbers, embedder.dimension);
        let ids: Vec<uuid::Uuid> = flight.chunks.iter().map(|(id, ..)| *id).collect();
        let done = self.flights.let_go(flight.documents());
        let result = txn::in_txn(|| {
            // Documents before chunks: the one order of locks.
            documents::lock_current(
                &done.iter().map(|(id, open)| (*id, open.job.generation)).collect::<Vec<_>>(),
            )?;
            vectors::insert(&build.table, build.build_no, build.fingerprint, &ids, &numbers)?;
            finish(&done)
        });
        self.index_due = true;
        if let Err(error) = result {
            for (_, open) in done {
                fail(&open.job, &error)?;
            }
            self.fail_flight(&flight, &error)?;
        }
        Ok(())
    }

    fn halve(&mut self, flight: Flight) {
        let documents = flight.documents();
        for half in flight.halves() {
            self.flights.hold(half.documents());
            self.flights.halved.push(half);
        }
        // Each half holds its documents, so none is done by this.
        self.flights.let_go(documents);
    }

    fn fail_flight(&mut self, flight: &Flight, error: &Error) -> Result<()> {
        let is_live = flight.target.0.state == "live";
        let mut spared = Vec::new();
        for document in flight.documents() {
            match self.flights.open.get(&document) {
                // What yesterday's settings cannot take must not keep the next build from being made.
                Some(open) if is_live && open.in_next && !error.is_transient() => spared.push(document),
                Some(_) => {
                    if let Some(open) = self.flights.open.remove(&document) {
                        fail(&open.job, error)?;
                    }
                }
                None => {}
            }
        }
        let done = self.flights.let_go(spared);
        txn::in_txn(|| finish(&done))
    }
}
