//! What comes back from the gateway: vectors are written, documents that have all of theirs end, faults are
//! sorted.

use super::embed_batch::Batch;
use crate::gateway::client;
use crate::jobs::queue::Job;
use crate::models::usage;
use crate::pg::{report, setting, txn};
use crate::work::{Destination, Event, Pauses, Target};
use crate::worker::context::Worker;
use crate::worker::finish::open_documents::{EndedDocuments, OpenDocuments};
use kb_gateway::protocol::{EmbedReply, Response, Usage};
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};
use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// How long to wait for each lock before the vectors are written by a statement that passes over locked
/// chunks.
const HARDLY_WAITING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"20ms")];

/// The documents some of whose chunks somebody has locked, and jobs that could not be released.
type Saved = (HashSet<i64>, Vec<Job>);

impl Worker {
    /// Writes the vectors that have come, and finishes documents that have all of theirs; whether anything
    /// had come.
    pub fn receive(&mut self) -> Result<bool> {
        // A batch that fails must not stop the others: they are paid for, too.
        let (received, mut first) = self.link.receive();
        let moved = !received.is_empty();
        for (batch, response) in received {
            let count = batch.texts.len();
            let answer = match response {
                Response::Embedded(embedded) => client::check(embedded, &batch.target.embedder, count),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            };
            let ended = match answer {
                Ok(embedded) => self.write(batch, embedded),
                Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => self.halve(batch),
                Err(error) => self.fail(&batch.target, &batch.holds, &error),
            };
            first = first.and(ended);
        }
        first.map(|()| moved)
    }

    /// Writes again the vectors that the database did not take last time. They are paid for, so this is
    /// repeated until it does.
    pub fn save_again(&mut self) -> Result<bool> {
        // What fails again goes to the end, and the others wait for the next time: one log line per pause.
        let mut due = self.unsaved.take_due().into_iter();
        let mut saved = Ok(false);
        while self.unsaved.is_empty() && saved.is_ok() {
            let Some(next) = due.next() else { return saved };
            saved = self.write(next.batch, next.embedded).map(|()| true);
        }
        self.unsaved.put_back(due);
        saved.map(|_| false)
    }

    /// Sends both halves of a batch that was refused for one of its texts.
    pub fn halve(&mut self, batch: Batch<Target>) -> Result<()> {
        let holds = batch.holds.clone();
        for half in batch.halves() {
            self.open.hold_again(&half.holds);
            self.queue.push_half(half);
        }
        // Each document is held by the half or halves that have its chunks, so none ends by this.
        self.end_holds(holds)
    }

    /// Writes a batch's vectors, and ends the documents that have all of theirs with it.
    fn write(&mut self, batch: Batch<Target>, embedded: EmbedReply) -> Result<()> {
        if batch.target.is_remote() && self.unsaved.is_table_locked(&batch.target) {
            // One batch after another would run into the same lock.
            self.unsaved.add(batch, embedded);
            return Ok(());
        }
        let failed: Vec<usize> = embedded.failed.iter().map(|(text, _)| *text as usize).collect();
        let (ids, numbers) = batch.spread(&embedded.vectors.numbers(), &failed);
        note_faults(&batch, &embedded, &mut self.open, &mut self.pauses);
        let tenants = tenants(&batch, &ids, &self.open);
        let ended = self.open.end_holds(batch.holds.iter().copied());
        match self.save(&batch, &embedded.usage, &ended, (&ids, &numbers), tenants.as_deref()) {
            Ok((blocked, unreleased)) => {
                self.link.in_flight_mut().note_received(&batch);
                for document_id in blocked {
                    self.open.note_busy(&batch.holds, document_id);
                }
                let grown = Event::Grown { target: Arc::clone(&batch.target), vectors: ids.len() };
                let events = [grown, Event::Unreleased(unreleased)];
                self.apply_all(events.into_iter().chain(ended.into_failures()))
            }
            // A full disk, a deadlock, a locked table: the vectors are kept until the database takes them.
            Err(error) if error.is_transient() && batch.target.is_remote() => {
                report::log(&format!("worker keeps vectors in memory that cannot be written now: {error}"));
                self.open.put_back(&batch.holds, ended);
                self.unsaved.add_refused(batch, embedded, error.is_lock());
                Ok(())
            }
            Err(error) => {
                // The request costs money even if its vectors cannot be used.
                if let Err(error) = txn::in_txn(|| book(&batch, &embedded.usage)) {
                    report::log(&format!("worker cannot record the cost of a request: {error}"));
                }
                // Undone first: `fail` ends the holds of the documents that it spares, and this would be the
                // second time.
                self.open.put_back(&batch.holds, ended);
                self.fail(&batch.target, &batch.holds, &error)
            }
        }
    }

    /// Writes vectors of chunks and ends documents, in a transaction. As a rule all chunks are there and have
    /// no vector; where that is not so, or it is not known of which `tenants` they are, those are written
    /// that are there.
    fn save(
        &mut self,
        batch: &Batch<Target>,
        usage: &Usage,
        ended: &EndedDocuments,
        (ids, numbers): (&[Uuid], &[f32]),
        tenants: Option<&[String]>,
    ) -> Result<Saved> {
        let (build, vectors) = (&batch.target.build, batch.target.vectors());
        let (works, done): (_, Vec<_>) = (&self.works, ended.done().collect());
        let finish = |blocked: HashSet<i64>| {
            book(batch, usage)?;
            let unreleased = works.finish(&done, &blocked)?;
            Ok((blocked, unreleased))
        };
        // Nothing here waits for a document, or long for any one chunk, so the order of locks does not
        // matter.
        if let Some(tenants) = tenants {
            let chunks: Vec<(Uuid, &str)> =
                ids.iter().copied().zip(tenants.iter().map(String::as_str)).collect();
            let write =
                || vectors.write_all(build.build_no, build.kb_no, build.fingerprint, &chunks, numbers);
            let written = txn::in_txn(|| match setting::with(HARDLY_WAITING, write)? {
                true => finish(HashSet::new()).map(Some),
                false => Ok(None),
            });
            match written {
                // A full disk or a shutdown: the other statement would fail, too.
                Err(error) if !error.is_of_the_work() && !error.is_lock() => return Err(error),
                Err(error) if !error.is_of_rows() => {
                    self.outcomes.log("worker writes vectors by a statement", &error)
                }
                Err(_) | Ok(None) => {}
                Ok(Some(saved)) => return Ok(saved),
            }
        }
        txn::in_txn(|| {
            let mut blocked = HashSet::new();
            if !ids.is_empty() {
                let kept = vectors.write(build.build_no, build.fingerprint, ids, numbers)?;
                let left_out: HashSet<&Uuid> = ids.iter().filter(|id| !kept.contains(id)).collect();
                let chunks = batch.chunks.iter().filter(|chunk| left_out.contains(&chunk.chunk_id));
                blocked.extend(chunks.map(|chunk| chunk.document_id));
            }
            finish(blocked)
        })
    }
}

/// The tenant of each of these chunks; None if one of them is not known any more.
fn tenants(batch: &Batch<Target>, ids: &[Uuid], open: &OpenDocuments) -> Option<Vec<String>> {
    let documents: foldhash::HashMap<Uuid, i64> =
        batch.chunks.iter().map(|chunk| (chunk.chunk_id, chunk.document_id)).collect();
    let tenant = |id: &Uuid| documents.get(id).and_then(|document_id| open.tenant(*document_id));
    ids.iter().map(|id| tenant(id).map(str::to_string)).collect()
}

/// Notes at the documents of each failed text what is wrong with it; their other chunks go on. Pauses the
/// embedder if an error says so.
fn note_faults(batch: &Batch<Target>, embedded: &EmbedReply, open: &mut OpenDocuments, pauses: &mut Pauses) {
    let target = &batch.target;
    for (text, fault) in &embedded.failed {
        let error: Error = fault.clone().into();
        pauses.note(&target.embedder, &target.build.tenant_id, &error, Instant::now());
        for chunk in batch.chunks.iter().filter(|chunk| chunk.text == *text as usize) {
            open.note_fault(target, &batch.holds, chunk.document_id, error.clone().of_chunk(chunk.ordinal));
        }
    }
}

/// Adds to kb.usage what a batch's request cost.
fn book(batch: &Batch<Target>, spent: &Usage) -> Result<()> {
    let Target { build, embedder, .. } = &*batch.target;
    if !batch.target.is_remote() || *spent == Usage::default() {
        return Ok(());
    }
    let price = embedder.config.remote.price_micros;
    usage::add(ServiceKind::Embedder, &embedder.id, build.kb_no, &build.tenant_id, spent, price)
}
