//! To the gateway: batches of chunks that have no vector yet.

use super::embed_batch::{Batch, BatchChunk, Destination};
use super::gateway_link::GatewayLink;
use super::pauses::Pauses;
use super::send_queue::{Group, SendQueue};
use crate::documents::stored;
use crate::pg::txn;
use crate::worker::finish::open_documents::OpenDocuments;
use crate::worker::finish::under_way::Hold;
use crate::worker::finish::unsaved::UnsavedVectors;
use crate::worker::intake::target::Target;
use kb_gateway::frame;
use kb_gateway::protocol::Access;
use kb_gateway::request_memory::is_within_share;
use kb_text::batch::Batcher;
use kb_types::Missing;
use kb_types::error::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Batches of a local model at the gateway at most: one being computed, the others on their way.
const LOCAL_BATCHES: usize = 3;
/// Requests' worth of texts that one for provider hash has: what it computes is there at once, so that writing them costs more.
const OF_HASH: usize = 4;
/// Tokens of one batch for a local model at most, so that a live edit does not wait behind a long one.
const BATCH_TOKENS: usize = 8192;
/// Bytes that batches at the gateway hold there at most, by [`frame::cost`]. Each embedder has at most as much as is
/// free, so that however many are stuck another finds room.
const AT_GATEWAY: usize = 128 * 1024 * 1024;

/// Fills the gateway with batches; whether anything moved. Documents that fill no request of their own wait for others of their
/// knowledge base where more of these are `coming`, as long as their provider has a request's worth of texts of their build: so no
/// other knowledge base keeps them waiting.
pub fn send(
    queue: &mut SendQueue,
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
    unsaved: &UnsavedVectors,
    coming: &HashSet<i64>,
) -> Result<bool> {
    let mut sent = false;
    let mut left = queue.begin_round();
    while let Some(half) = queue.pop_half() {
        send_batch(half, queue, link, open, pauses)?;
        sent = true;
    }
    // Each group is looked at as long as it has something to send and its embedder has room.
    while left > 0 {
        left -= 1;
        let Some(mut group) = queue.pop() else { break };
        let more_come = coming.contains(&group.target.build.kb_no);
        if more_come && group.is_small() && has_enough(link, &group.target) {
            queue.push(group);
            continue;
        }
        let tenant = group.target.build.tenant_id.clone();
        if !pauses.is_noted(&group.target.embedder.id, &tenant) && !has_room(link, unsaved, &group.target) {
            queue.push(group);
            continue;
        }
        let access = queue.read_access(&mut group);
        let checked = access.and_then(|access| {
            pauses.check(&group.target.embedder, &tenant, Instant::now()).map(|()| access)
        });
        match checked {
            Err(error) => {
                fail_if_needed(group, &error, open, pauses)?;
                sent = true;
            }
            Ok(access) if has_room(link, unsaved, &group.target) => {
                left += usize::from(send_slice(group, access, queue, link, open, pauses)?);
                sent = true;
            }
            // A pause that is over, and no room yet: nothing has moved.
            Ok(_) => queue.push(group),
        }
    }
    Ok(sent)
}

fn has_room(link: &GatewayLink, unsaved: &UnsavedVectors, target: &Target) -> bool {
    // Nothing more is sent for a table that takes no vectors.
    if unsaved.is_table_locked(target) {
        return false;
    }
    let in_flight = link.in_flight();
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
fn has_enough(link: &GatewayLink, target: &Target) -> bool {
    link.in_flight().texts_of_build(target.build_no()) >= target.embedder.config.batch_size
}

/// Documents of an embedder that cannot be asked fail; those that want nothing of it are done.
fn fail_if_needed(group: Group, error: &Error, open: &mut OpenDocuments, pauses: &mut Pauses) -> Result<()> {
    let build = &group.target.build;
    let missing =
        txn::in_txn(|| group.target.vectors().missing(build.build_no, &group.documents, group.after, 1));
    match missing {
        Ok(missing) if missing.is_empty() => open.let_go(group.holds),
        Ok(_) => open.fail(pauses, &group.target, &group.holds, error),
        Err(error) => open.fail(pauses, &group.target, &group.holds, &error),
    }
}

/// The next chunks of a group without a vector, and whether there are no more. Those whose text has got one elsewhere
/// by now are given it.
fn next_slice(
    group: &mut Group,
    limit: usize,
    link: &GatewayLink,
    open: &OpenDocuments,
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
        let generation = |id: &i64| open.generation(*id).map(|generation| (*id, generation));
        // Documents before chunks: the one order of locks.
        let current = stored::lock_current(&ids.iter().filter_map(generation).collect::<Vec<_>>())?.current;
        ids.retain(|id| current.contains(id));
        vectors.reuse(build.build_no, build.fingerprint, &ids, None)?;
        // The chunk with an equal text may have been deleted in between.
        let given = vectors.among_those_with_vectors(build.build_no, &with_equal_text)?;
        slice.retain(|chunk| !(current.contains(&chunk.document_id) && given.contains(&chunk.chunk_id)));
    }
    Ok((slice, exhausted))
}

/// Sends the next slice of a group; whether the group has more.
fn send_slice(
    mut group: Group,
    access: Access,
    queue: &mut SendQueue,
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
) -> Result<bool> {
    let embedder = &group.target.embedder;
    let is_hash = embedder.provider == "hash";
    let texts = embedder.config.batch_size * if is_hash { OF_HASH } else { 1 };
    let limit = texts.min(frame::max_texts(embedder.dimension));
    let (mut slice, mut exhausted) = match txn::in_txn(|| next_slice(&mut group, limit, link, open)) {
        Ok(found) => found,
        // Its knowledge base was dropped meanwhile, say: that is no fault of other documents.
        Err(error) => {
            open.fail(pauses, &group.target, &group.holds, &error)?;
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
    batch.fill(join_sent(&group.target, slice, link, open));
    if !batch.chunks.is_empty() {
        batch.holds = open.hold(batch.documents());
        send_batch(batch, queue, link, open, pauses)?;
    }
    // Documents that the slices have passed wait for nothing but their batches.
    let after = if exhausted { i64::MAX } else { group.after.0 };
    let (passed, left): (Vec<Hold>, Vec<Hold>) =
        group.holds.into_iter().partition(|hold| hold.document_id < after);
    group.holds = left;
    open.let_go(passed)?;
    if !exhausted {
        queue.push(group);
    }
    Ok(!exhausted)
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

/// Has chunks whose texts are at the gateway already wait for those, so that nothing is paid for twice; the others,
/// each with its text and tokens.
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
        // Of another tenant's batch its errors may tell.
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

/// Whose the documents of a batch are; None: several tenants', or that is not known.
fn tenant_of<'a>(batch: &Batch<Target>, open: &'a OpenDocuments) -> Option<&'a str> {
    let mut tenants = batch.chunks.iter().map(|chunk| open.tenant(chunk.document_id));
    let first = tenants.next()??;
    tenants.all(|tenant| tenant == Some(first)).then_some(first)
}

fn send_batch(
    batch: Batch<Target>,
    queue: &mut SendQueue,
    link: &mut GatewayLink,
    open: &mut OpenDocuments,
    pauses: &mut Pauses,
) -> Result<()> {
    // One that is too large for a request is alone in its batch.
    let Some(text) = batch.texts.iter().find(|text| text.len() > frame::MAX_TEXT) else {
        let (target, holds) = (Arc::clone(&batch.target), batch.holds.clone());
        let batch = Batch { tenant: tenant_of(&batch, open).map(str::to_string), ..batch };
        return match link.send(batch) {
            // Of the tenant's name, say: a fault of these documents only.
            Err(error @ Error::TooLarge { .. }) => open.fail(pauses, &target, &holds, &error),
            sent => sent,
        };
    };
    if batch.texts.len() > 1 {
        return queue.halve(batch, open);
    }
    let what = "a text to be embedded".to_string();
    let error = Error::TooLarge { what, size: text.len(), limit: frame::MAX_TEXT };
    open.fail(pauses, &batch.target, &batch.holds, &error)
}
