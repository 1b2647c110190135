//! What comes back from the gateway: vectors are written, documents that have all of theirs end, faults are sorted.

use super::embed_batch::{Batch, Destination};
use super::gateway_link::GatewayLink;
use super::pauses::Pauses;
use super::send_queue::SendQueue;
use crate::gateway::client;
use crate::jobs::queue::Job;
use crate::models::usage;
use crate::pg::{report, setting, txn};
use crate::worker::finish::open_documents::{EndedDocuments, OpenDocuments};
use crate::worker::finish::outcome;
use crate::worker::finish::unsaved::UnsavedVectors;
use crate::worker::intake::target::Target;
use crate::worker::upkeep::indexes::Indexes;
use kb_gateway::protocol::{Capability, Embedded, Response, Usage};
use kb_types::error::{Error, Result};
use std::collections::HashSet;
use std::ffi::CStr;
use std::time::Instant;
use uuid::Uuid;

/// How long each lock is waited for before vectors are written by a statement that passes over locked chunks.
const HARDLY_WAITING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"20ms")];

/// Writes the vectors that have come, and finishes documents that have all of theirs; whether anything had come.
pub fn receive(
    link: &mut GatewayLink,
    queue: &mut SendQueue,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
    unsaved: &mut UnsavedVectors,
    indexes: &mut Indexes,
) -> Result<bool> {
    // One that fails must not stop the others, which are paid for, too.
    let (received, mut first) = link.receive();
    let moved = !received.is_empty();
    for (batch, response) in received {
        let count = batch.texts.len();
        let answer = match response {
            Response::Embedded(embedded) => client::check(embedded, &batch.target.embedder, count),
            Response::Error(fault) => Err(fault.into()),
            other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
        };
        let ended = match answer {
            Ok(embedded) => write(batch, embedded, link, open, pauses, unsaved, indexes),
            Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if count > 1 => {
                queue.halve(batch, open)
            }
            Err(error) => open.fail(pauses, &batch.target, &batch.holds, &error),
        };
        first = first.and(ended);
    }
    first.map(|()| moved)
}

/// Vectors that the database did not take last time: again, until it does. They are paid for.
pub fn save_again(
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
    unsaved: &mut UnsavedVectors,
    indexes: &mut Indexes,
) -> Result<bool> {
    // What fails again goes to the end, and the others wait for the next time: one log line per pause.
    let mut due = unsaved.take_due().into_iter();
    let mut saved = Ok(false);
    while unsaved.is_empty() && saved.is_ok() {
        let Some(next) = due.next() else { return saved };
        saved = write(next.batch, next.embedded, link, open, pauses, unsaved, indexes).map(|()| true);
    }
    unsaved.put_back(due);
    saved.map(|_| false)
}

/// Writes a batch's vectors, and ends the documents that have all of theirs with it.
fn write(
    batch: Batch<Target>,
    embedded: Embedded,
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
    unsaved: &mut UnsavedVectors,
    indexes: &mut Indexes,
) -> Result<()> {
    if batch.target.is_remote() && unsaved.is_table_locked(&batch.target) {
        // It is not tried again for each batch.
        unsaved.add(batch, embedded);
        return Ok(());
    }
    let failed: Vec<usize> = embedded.failed.iter().map(|(text, _)| *text as usize).collect();
    let (ids, numbers) = batch.spread(&embedded.vectors.numbers(), &failed);
    note_faults(&batch, &embedded, open, pauses);
    let tenants = tenants(&batch, &ids, open);
    let ended = open.take_ended(batch.holds.iter().copied());
    let result = save(&batch, &embedded.usage, &ended, (&ids, &numbers), tenants.as_deref(), open);
    match result {
        Ok((blocked, unreleased)) => {
            indexes.note_vectors(&batch.target, ids.len());
            open.outcomes().release_later(unreleased);
            link.in_flight_mut().note_received(&batch);
            for document_id in blocked {
                open.note_busy(&batch.holds, document_id);
            }
            open.fail_broken(ended)
        }
        // A full disk, a deadlock, a locked table: the vectors are kept until the database takes them.
        Err(error) if error.is_transient() && batch.target.is_remote() => {
            report::log(&format!("worker keeps vectors that cannot be written now: {error}"));
            open.put_back(&batch.holds, ended);
            unsaved.add_refused(batch, embedded, error.is_lock());
            Ok(())
        }
        Err(error) => {
            // The request is to be paid for, even if its vectors are of no use.
            if let Err(error) = txn::in_txn(|| book(&batch, &embedded.usage)) {
                report::log(&format!("worker cannot book what a request cost: {error}"));
            }
            // Undone first: `fail` lets go of the documents that it spares, and this would be the second time.
            open.put_back(&batch.holds, ended);
            open.fail(pauses, &batch.target, &batch.holds, &error)
        }
    }
}

/// The documents some of whose chunks somebody has locked, and jobs that could not be released.
type Saved = (HashSet<i64>, Vec<Job>);

/// Writes vectors of chunks and ends documents, in a transaction. As a rule all chunks are there and have no vector; where that is not
/// so, or it is not known of which `tenants` they are, those are written that are there.
fn save(
    batch: &Batch<Target>,
    usage: &Usage,
    ended: &EndedDocuments,
    (ids, numbers): (&[Uuid], &[f32]),
    tenants: Option<&[String]>,
    open: &mut OpenDocuments,
) -> Result<Saved> {
    let (build, vectors) = (&batch.target.build, batch.target.vectors());
    let finish = |blocked: HashSet<i64>| {
        book(batch, usage)?;
        let unreleased = outcome::finish(&ended.done, &blocked)?;
        Ok((blocked, unreleased))
    };
    // Nothing here waits for a document, or long for any one chunk, so the order of locks does not matter.
    if let Some(tenants) = tenants {
        let chunks: Vec<(Uuid, &str)> = ids.iter().copied().zip(tenants.iter().map(String::as_str)).collect();
        let write = || vectors.write_all(build.build_no, build.kb_no, build.fingerprint, &chunks, numbers);
        let written = txn::in_txn(|| match setting::with(HARDLY_WAITING, write)? {
            true => finish(HashSet::new()).map(Some),
            false => Ok(None),
        });
        match written {
            // A full disk, a shutdown: that would be so again.
            Err(error) if !error.is_of_the_work() && !error.is_lock() => return Err(error),
            Err(error) if !error.is_of_rows() => {
                open.outcomes().log("worker writes vectors by a statement", &error)
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

/// Whose each of these chunks is; None: that of some is not known any more.
fn tenants(batch: &Batch<Target>, ids: &[Uuid], open: &OpenDocuments) -> Option<Vec<String>> {
    let documents: foldhash::HashMap<Uuid, i64> =
        batch.chunks.iter().map(|chunk| (chunk.chunk_id, chunk.document_id)).collect();
    let tenant = |id: &Uuid| documents.get(id).and_then(|document_id| open.tenant(*document_id));
    ids.iter().map(|id| tenant(id).map(str::to_string)).collect()
}

/// Remembers of a text's documents what is wrong with it; their other chunks go on.
fn note_faults(batch: &Batch<Target>, embedded: &Embedded, open: &mut OpenDocuments, pauses: &mut Pauses) {
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
    usage::add(Capability::Embed, &embedder.id, build.kb_no, &build.tenant_id, spent, price)
}
