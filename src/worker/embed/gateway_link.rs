//! The worker's connection to the gateway, and the batches that were sent over it.
//!
//! **Invariant:** a provider's slowness is no fault of the gateway. A gateway that says nothing for
//! [`SILENCE`] is asked whether it lives, which it answers at once. The worker gives up on it only after as
//! long again.

use super::embed_batch::Batch;
use super::in_flight::InFlight;
use crate::gateway::client::{self, Connection};
use crate::gateway::pump::SILENCE;
use crate::work::Target;
use kb_gateway::protocol::{Client, Request, Response, Urgency};
use kb_types::Kind;
use kb_types::error::{Error, Result};
use std::time::{Duration, Instant};

/// How long to wait for a gateway to start.
const START: Duration = Duration::from_secs(10);

pub struct GatewayLink {
    connection: Option<Connection>,
    in_flight: InFlight<Target>,
    /// When the gateway last said something, and whether it has been asked since if it lives.
    last_answer: Instant,
    is_health_asked: bool,
}

impl GatewayLink {
    pub fn new() -> GatewayLink {
        GatewayLink {
            connection: None,
            in_flight: InFlight::default(),
            last_answer: Instant::now(),
            is_health_asked: false,
        }
    }

    pub fn in_flight(&self) -> &InFlight<Target> {
        &self.in_flight
    }

    pub fn in_flight_mut(&mut self) -> &mut InFlight<Target> {
        &mut self.in_flight
    }

    /// Closes the connection; what was sent over it is forgotten.
    pub fn close(&mut self) {
        self.connection = None;
        self.is_health_asked = false;
        self.in_flight.clear();
    }

    pub fn send(&mut self, batch: Batch<Target>) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(START)?),
        };
        let Target { build, embedder, .. } = &*batch.target;
        let id = connection.send(&Request::Embed {
            embedder: embedder.clone(),
            access: batch.access.clone(),
            kind: Kind::Document,
            urgency: Urgency::Ingest,
            texts: batch.texts.clone(),
            tokens: batch.tokens.clone(),
            client: Client {
                is_shared: batch.tenant.is_none(),
                ..client::this_client(&build.tenant_id, build.kb_no)
            },
            patience_ms: None,
        })?;
        if self.in_flight.is_empty() {
            self.last_answer = Instant::now();
        }
        self.in_flight.add(id, batch);
        Ok(())
    }

    /// The batches that have come back, and the fault that the connection met after them, if any: the batches
    /// are paid for all the same.
    pub fn receive(&mut self) -> (Vec<(Batch<Target>, Response)>, Result<()>) {
        let mut received = Vec::new();
        let Some(connection) = &mut self.connection else { return (received, Ok(())) };
        let lost = loop {
            match connection.receive() {
                Ok(Some((id, response))) => {
                    self.last_answer = Instant::now();
                    self.is_health_asked = false;
                    if let Some(batch) = self.in_flight.remove(id) {
                        received.push((batch, response));
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !received.is_empty() {
            return (received, lost);
        }
        // A gateway closes what is idle where it has many connections; the next batch opens another.
        if lost.is_err() && self.in_flight.is_empty() {
            self.connection = None;
            return (received, Ok(()));
        }
        let lost = lost.and_then(|()| self.check_silence());
        (received, lost)
    }

    /// A provider may take its time, but the gateway itself answers at once: one that does not is given up
    /// on.
    fn check_silence(&mut self) -> Result<()> {
        if self.in_flight.is_empty() || self.last_answer.elapsed() < SILENCE {
            return Ok(());
        }
        if self.is_health_asked {
            return Err(Error::Gateway { problem: "does not answer".into() });
        }
        self.is_health_asked = true;
        self.last_answer = Instant::now();
        if let Some(connection) = &mut self.connection {
            connection.send(&Request::Health)?;
        }
        Ok(())
    }

    /// Waits for an answer at most `timeout`; false, at once, if none is to come.
    pub fn wait(&self, timeout: Duration) -> bool {
        match &self.connection {
            Some(connection) if !self.in_flight.is_empty() => {
                connection.wait(timeout);
                true
            }
            _ => false,
        }
    }
}
