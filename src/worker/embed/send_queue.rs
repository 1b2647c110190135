//! What is to be sent to the gateway: documents whose chunks are looked through for missing vectors, and
//! batches that were refused as a whole.

use super::embed_batch::Batch;
use crate::models::{embedder_access, services};
use crate::pg::txn;
use crate::tenants::quotas;
use crate::work::{Group, Target};
use kb_gateway::protocol::Access;
use kb_types::Embedder;
use kb_types::error::Result;
use kb_types::row_states::Priority;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
pub struct SendQueue {
    groups: VecDeque<Group>,
    halves: Vec<Batch<Target>>,
    /// Embedders as they were read in this round of sending, and the right to ask them; by tenant, where that
    /// matters.
    rights: HashMap<(String, String), (Embedder, Access)>,
}

impl SendQueue {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.halves.is_empty()
    }

    pub fn clear(&mut self) {
        *self = SendQueue::default();
    }

    /// Begins a round of sending, in which embedders and rights are read again. Returns the number of groups.
    pub fn begin_round(&mut self) -> usize {
        self.rights.clear();
        let now = Instant::now();
        self.groups.iter_mut().for_each(|group| group.fresh.forget_old(now));
        self.groups.len()
    }

    /// Adds a group behind all others.
    pub fn push(&mut self, group: Group) {
        self.groups.push_back(group);
    }

    /// Adds new documents, to a group that fills no request if there is one. Live ones go before all others.
    pub fn add(&mut self, mut group: Group) {
        let place = self.groups.iter().position(|small| small.takes(&group));
        if let Some(mut small) = place.and_then(|place| self.groups.remove(place)) {
            small.documents.append(&mut group.documents);
            small.chunks += group.chunks;
            small.fresh.append(group.fresh);
            small.holds.append(&mut group.holds);
            group = small;
        }
        match (group.priority, place) {
            (Priority::Live, _) => self.groups.push_front(group),
            (Priority::Backfill, Some(place)) => self.groups.insert(place, group),
            (Priority::Backfill, None) => self.groups.push_back(group),
        }
    }

    pub fn pop(&mut self) -> Option<Group> {
        self.groups.pop_front()
    }

    /// Adds a half of a batch that was refused for one of its texts.
    pub fn push_half(&mut self, half: Batch<Target>) {
        self.halves.push(half);
    }

    pub fn pop_half(&mut self) -> Option<Batch<Target>> {
        self.halves.pop()
    }

    /// The right to ask a group's embedder, which is read again in each round of sending: a key, an address
    /// or a limit may change while a large document is under way.
    pub fn read_access(&mut self, group: &mut Group) -> Result<Access> {
        let known = &group.target.embedder;
        // What a tenant has spent matters only if a limit applies to it.
        let owner = &group.target.build.tenant_id;
        let is_bounded = known.config.remote.tenant_share.is_some()
            || txn::in_txn(|| Ok(quotas::of(owner)))?.is_some_and(|quota| quota.tokens_per_day.is_some());
        let tenant = if is_bounded { owner.clone() } else { String::new() };
        let key = (known.id.clone(), tenant);
        if let Some((embedder, access)) = self.rights.get(&key)
            && embedder == known
        {
            return Ok(access.clone());
        }
        let (embedder, access) = txn::in_txn(|| {
            let embedder = services::embedder(&known.id)?;
            let access = embedder_access(&embedder, &group.target.build.tenant_id)?;
            Ok((embedder, access))
        })?;
        self.rights.insert(key, (embedder.clone(), access.clone()));
        if embedder != *known {
            group.target = Arc::new(group.target.with(embedder));
        }
        Ok(access)
    }
}
