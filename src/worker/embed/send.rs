//! To the gateway: batches of chunks that have no vector yet.

use super::embed_batch::{Batch, BatchChunk};
use super::gateway_link::GatewayLink;
use crate::pg::txn;
use crate::work::{Destination, Group, Hold, Target};
use crate::worker::context::Worker;
use crate::worker::finish::open_documents::OpenDocuments;
use crate::worker::works::Works;
use kb_gateway::frame;
use kb_gateway::protocol::Access;
use kb_gateway::request_memory::is_within_share;
use kb_text::batch::Batcher;
use kb_types::Missing;
use kb_types::error::{Error, Result};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Batches of a local model at the gateway at most: one being computed, the others on their way.
const LOCAL_BATCHES: usize = 3;
/// Requests' worth of texts that one for provider hash has: what it computes is there at once, so that
/// writing them costs more.
const OF_HASH: usize = 4;
/// Tokens of one batch for a local model at most, so that a live edit does not wait behind a long one.
const BATCH_TOKENS: usize = 8192;
/// Bytes that batches at the gateway hold there at most, by [`frame::cost`]. Each embedder has at most as
/// much as is free, so that however many are stuck another finds room.
const AT_GATEWAY: usize = 128 * 1024 * 1024;

impl Worker {
    /// Fills the gateway with batches; whether anything moved. Documents that fill no request of their own
    /// wait for others of their knowledge base where more of these are coming, as long as their provider has
    /// a request's worth of texts of their build: so no other knowledge base keeps them waiting.
    pub fn send(&mut self) -> Result<bool> {
        let coming = self.works.coming();
        let mut sent = false;
        let mut left = self.queue.begin_round();
        while let Some(half) = self.queue.pop_half() {
            self.send_batch(half)?;
            sent = true;
        }
        // Each group is looked at as long as it has something to send and its embedder has room.
        while left > 0 {
            left -= 1;
            let Some(mut group) = self.queue.pop() else { break };
            let more_come = coming.contains(&group.target.build.kb_no);
            if more_come && group.is_small() && self.has_enough(&group.target) {
                self.queue.push(group);
                continue;
            }
            let tenant = group.target.build.tenant_id.clone();
            if !self.pauses.is_noted(&group.target.embedder.id, &tenant) && !self.has_room(&group.target) {
                self.queue.push(group);
                continue;
            }
            let access = self.queue.read_access(&mut group);
            let checked = access.and_then(|access| {
                self.pauses.check(&group.target.embedder, &tenant, Instant::now()).map(|()| access)
            });
            match checked {
                Err(error) => {
                    self.fail_if_needed(group, &error)?;
                    sent = true;
                }
                Ok(access) if self.has_room(&group.target) => {
                    left += usize::from(self.send_slice(group, access)?);
                    sent = true;
                }
                // A pause that is over, and no room yet: nothing has moved.
                Ok(_) => self.queue.push(group),
            }
        }
        Ok(sent)
    }

    fn has_room(&self, target: &Target) -> bool {
        // Nothing more is sent for a table that takes no vectors.
        if self.unsaved.is_table_locked(target) {
            return false;
        }
        let in_flight = self.link.in_flight();
        if !target.is_remote() {
            return in_flight.local_batches() < LOCAL_BATCHES;
        }
        let embedder = &target.embedder;
        let (own, all) = in_flight.cost(&embedder.id);
        // Twice what can be under way at the provider: the next batches wait at the gateway.
        let most = 2 * embedder.config.remote.max_concurrency * embedder.config.batch_size;
        in_flight.texts_of(&embedder.id) < most && is_within_share(own, 1, all, AT_GATEWAY)
    }

    /// Whether as many texts of a build are under way as a request takes.
    fn has_enough(&self, target: &Target) -> bool {
        self.link.in_flight().texts_of_build(target.build_no()) >= target.embedder.config.batch_size
    }

    /// Documents of an embedder that cannot be asked fail; those that want nothing of it are done.
    fn fail_if_needed(&mut self, group: Group, error: &Error) -> Result<()> {
        let build = &group.target.build;
        let missing =
            txn::in_txn(|| group.target.vectors().missing(build.build_no, &group.documents, group.after, 1));
        match missing {
            Ok(missing) if missing.is_empty() => self.end_holds(group.holds),
            Ok(_) => self.fail(&group.target, &group.holds, error),
            Err(error) => self.fail(&group.target, &group.holds, &error),
        }
    }

    /// Sends the next slice of a group; whether the group has more.
    fn send_slice(&mut self, mut group: Group, access: Access) -> Result<bool> {
        let embedder = &group.target.embedder;
        let is_hash = embedder.provider == "hash";
        let texts = embedder.config.batch_size * if is_hash { OF_HASH } else { 1 };
        let limit = texts.min(frame::max_texts(embedder.dimension));
        let slice = txn::in_txn(|| next_slice(&mut group, limit, &self.link, &self.open, &self.works));
        let (mut slice, mut exhausted) = match slice {
            Ok(found) => found,
            // Its knowledge base was dropped meanwhile, for example: other documents go on.
            Err(error) => {
                self.fail(&group.target, &group.holds, &error)?;
                return Ok(false);
            }
        };
        let is_model = !group.target.is_remote() && !is_hash;
        let rest = slice.split_off(first_batch(&slice, limit, is_model));
        group.chunks = group.chunks.saturating_sub(slice.len());
        exhausted &= rest.is_empty();
        group.fresh.put_back(rest);
        if let Some(last) = slice.last() {
            group.after = (last.document_id, last.ordinal);
        }
        let mut batch = Batch::new(Arc::clone(&group.target), access);
        batch.fill(join_sent(&group.target, slice, &mut self.link, &mut self.open));
        if !batch.chunks.is_empty() {
            batch.holds = self.open.hold(batch.documents());
            self.send_batch(batch)?;
        }
        // Documents before the end of this slice wait only for their batches.
        let after = if exhausted { i64::MAX } else { group.after.0 };
        let (passed, left): (Vec<Hold>, Vec<Hold>) =
            group.holds.into_iter().partition(|hold| hold.document_id < after);
        group.holds = left;
        self.end_holds(passed)?;
        if !exhausted {
            self.queue.push(group);
        }
        Ok(!exhausted)
    }

    fn send_batch(&mut self, batch: Batch<Target>) -> Result<()> {
        // A text that is too large for a request is alone in its batch.
        let Some(text) = batch.texts.iter().find(|text| text.len() > frame::MAX_TEXT) else {
            let (target, holds) = (Arc::clone(&batch.target), batch.holds.clone());
            let batch = Batch { tenant: tenant_of(&batch, &self.open).map(str::to_string), ..batch };
            return match self.link.send(batch) {
                // The tenant's name is too long, for example: only these documents fail.
                Err(error @ Error::TooLarge { .. }) => self.fail(&target, &holds, &error),
                sent => sent,
            };
        };
        if batch.texts.len() > 1 {
            return self.halve(batch);
        }
        let what = "a text to be embedded".to_string();
        let error = Error::TooLarge { what, size: text.len(), limit: frame::MAX_TEXT };
        self.fail(&batch.target, &batch.holds, &error)
    }
}

/// The next chunks of a group without a vector, and whether there are no more. Those whose text has got one
/// elsewhere by now are given it.
fn next_slice(
    group: &mut Group,
    limit: usize,
    link: &GatewayLink,
    open: &OpenDocuments,
    works: &Works,
) -> Result<(Vec<Missing>, bool)> {
    let build = &group.target.build;
    let vectors = group.target.vectors();
    let (mut slice, exhausted) = match group.fresh.take(limit) {
        Some((slice, is_all)) => (slice, is_all),
        None => {
            let slice = vectors.missing(build.build_no, &group.documents, group.after, limit as i64)?;
            let exhausted = slice.len() < limit;
            (slice, exhausted)
        }
    };
    if !slice.iter().any(|chunk| link.in_flight().was_received(build.build_no, &chunk.content)) {
        return Ok((slice, exhausted));
    }
    let chunk_ids: Vec<Uuid> = slice.iter().map(|chunk| chunk.chunk_id).collect();
    let with_equal_text = vectors.with_equal_text(build.build_no, build.fingerprint, &chunk_ids)?;
    if !with_equal_text.is_empty() {
        let mut ids: Vec<i64> = slice.iter().map(|chunk| chunk.document_id).collect();
        ids.dedup();
        let job = |id: &i64| open.job(*id).map(|job| (*id, job));
        // Documents before chunks: the one order of locks.
        let current = works.lock_current(&ids.iter().filter_map(job).collect::<Vec<_>>())?;
        ids.retain(|id| current.contains(id));
        vectors.reuse(build.build_no, build.fingerprint, &ids, None)?;
        // The chunk with an equal text may have been deleted in between.
        let given = vectors.among_those_with_vectors(build.build_no, &with_equal_text)?;
        slice.retain(|chunk| !(current.contains(&chunk.document_id) && given.contains(&chunk.chunk_id)));
    }
    Ok((slice, exhausted))
}

/// How many of the chunks a request takes, by their bytes, and a local model by their tokens.
fn first_batch(chunks: &[Missing], limit: usize, is_local_model: bool) -> usize {
    let mut batcher = Batcher::new(limit, frame::MAX_TEXTS);
    for chunk in chunks {
        let tokens = chunk.token_count.max(0) as usize;
        let weight = match is_local_model {
            false => chunk.content.len(),
            true => chunk.content.len().max(tokens * (frame::MAX_TEXTS / BATCH_TOKENS)),
        };
        if let Some(full) = batcher.push((), weight) {
            return full.len();
        }
    }
    chunks.len()
}

/// Has chunks whose texts are at the gateway already wait for those, so that nothing is paid for twice; the
/// others, each with its text and tokens.
fn join_sent(
    target: &Target,
    chunks: Vec<Missing>,
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
) -> Vec<(BatchChunk, String, u32)> {
    let in_flight = link.in_flight_mut();
    let mut others = Vec::new();
    for Missing { document_id, ordinal, chunk_id, content, token_count } in chunks {
        let chunk = BatchChunk { chunk_id, document_id, ordinal, text: 0 };
        // Errors of another tenant's batch could tell of its texts.
        let place = in_flight.find(target.build_no(), chunk_id, &content).filter(|place| {
            let sent = in_flight.batch(*place).and_then(|batch| batch.tenant.as_deref());
            sent.is_none_or(|tenant| open.tenant(document_id) == Some(tenant))
        });
        match place {
            Some(place) => in_flight.join(place, chunk, open.hold([document_id])),
            None => others.push((chunk, content, u32::try_from(token_count).unwrap_or(0))),
        }
    }
    others
}

/// The tenant of a batch's documents; None if they are of several tenants, or that is not known.
fn tenant_of<'a>(batch: &Batch<Target>, open: &'a OpenDocuments) -> Option<&'a str> {
    let mut tenants = batch.chunks.iter().map(|chunk| open.tenant(chunk.document_id));
    let first = tenants.next()??;
    tenants.all(|tenant| tenant == Some(first)).then_some(first)
}
