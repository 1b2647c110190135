//! Adds documents within a tenant's quota (kb.set_quota).
//!
//! A transaction that adds documents first locks the tenant's row of kb.quotas, so that no other adds at the
//! same time, and appends a row of counts. A transaction that deletes documents appends negative counts by a
//! trigger, and waits for nothing. For a tenant without a quota, the check is a look into a list that the
//! process keeps.

use crate::pg::{advisory, txn};
use crate::settings;
use crate::tenants::sql::quotas;
use crate::tenants::sql::quotas::StoredSize;
use kb_types::error::{Error, Result};
use kb_types::quota::{Quota, Shortage, Thing, Volume};
use kb_types::tenancy::SHARED;
use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// What the tenant has as far as this transaction knows. The transaction has locked the tenant's quota,
    /// so no other can add to it.
    static KNOWN: RefCell<Option<LockedVolume>> = const { RefCell::new(None) };
    /// The number of things of which this transaction has added some, in the same way.
    static COUNTED: RefCell<Option<CountedThings>> = const { RefCell::new(None) };
}

#[derive(Debug, Clone, PartialEq)]
struct CountedThings {
    epoch: u64,
    tenant_id: String,
    thing: Thing,
    used: i64,
}

#[derive(Debug, Clone, PartialEq)]
struct LockedVolume {
    /// This changes once the transaction, or a part of it, has ended.
    epoch: u64,
    owner: String,
    kb_no: i64,
    used: Volume,
}

/// The documents that are being added to a knowledge base whose owner has a quota.
pub struct Charge {
    owner: String,
    kb_no: i64,
    quota: Quota,
    used: Volume,
    more: Volume,
    /// The sizes of stored documents, by external_id.
    sizes: HashMap<String, StoredSize>,
}

impl Charge {
    /// Begins to add documents to a knowledge base, which are charged to `owner`, the tenant that owns it.
    /// Returns None if there is no limit to observe. Waits for other transactions that add documents of this
    /// owner; if `waits` is false, returns an error (55P03) instead. Must run as the owner of the extension.
    pub fn begin(owner: &str, kb_no: i64, waits: bool) -> Result<Option<Charge>> {
        // The transaction id comes first: a session that sets a quota waits for all transactions that have an
        // id and may not know of the quota.
        txn::take_number();
        let Some(quota) = quotas::of(owner) else { return Ok(None) };
        if !quota.bounds_documents() && quota.document_bytes.is_none() {
            return Ok(None);
        }
        let used = if quota.bounds_documents() { used(owner, kb_no, waits)? } else { Volume::default() };
        let (owner, more, sizes) = (owner.to_string(), Volume::default(), HashMap::new());
        Ok(Some(Charge { owner, kb_no, quota, used, more, sizes }))
    }

    /// Reads the stored state of these documents, which are locked by now.
    pub fn look(&mut self, tenant_id: &str, external_ids: &[String]) -> Result<()> {
        self.sizes.extend(quotas::sizes(self.kb_no, tenant_id, external_ids)?);
        Ok(())
    }

    /// Counts a document before it is put, and returns an error if it exceeds the quota. `size` is computed
    /// from the bytes of the new content and of what remains of the document that is stored under this
    /// external_id. `has_text` is false for a placeholder of a row that could not be read, which is not
    /// counted as a document.
    pub fn add(
        &mut self,
        external_id: &str,
        has_text: bool,
        size: impl FnOnce(&StoredSize) -> i64,
    ) -> Result<()> {
        let error = |shortage| Err(Error::Quota { tenant: self.owner.clone(), shortage });
        let before = self.sizes.remove(external_id).unwrap_or_default();
        let size = size(&before);
        let is_larger = size > before.bytes;
        if let Some(allowed) = self.quota.document_bytes.filter(|allowed| size > *allowed && is_larger) {
            let what = "bytes in one document";
            return error(Shortage { what, allowed, used: 0, needed: size });
        }
        let is_new = has_text && !before.has_text;
        let more = Volume { documents: i64::from(is_new), bytes: size - before.bytes };
        if let Some(shortage) = self.quota.shortage(self.used.plus(self.more), more) {
            return error(shortage);
        }
        self.more = self.more.plus(more);
        Ok(())
    }

    /// Records what was added.
    pub fn book(self) -> Result<()> {
        if !self.quota.bounds_documents() || self.more == Volume::default() {
            return Ok(());
        }
        quotas::add(&self.owner, self.kb_no, self.more)?;
        let used = self.used.plus(self.more);
        KNOWN.set(Some(LockedVolume { epoch: txn::epoch(), owner: self.owner, kb_no: self.kb_no, used }));
        Ok(())
    }
}

/// Discards what is known, because a deletion by this transaction makes room.
pub fn forget() {
    KNOWN.set(None);
}

fn used(owner: &str, kb_no: i64, waits: bool) -> Result<Volume> {
    let epoch = txn::epoch();
    let known = KNOWN.with_borrow(|known| {
        let is_same =
            |known: &&LockedVolume| known.epoch == epoch && known.owner == owner && known.kb_no == kb_no;
        known.as_ref().filter(is_same).map(|known| known.used)
    });
    if let Some(used) = known {
        return Ok(used);
    }
    quotas::lock(owner, waits)?;
    quotas::used(owner, kb_no)
}

/// The number of things of a kind that a tenant may have, or None for no limit. The tenants '' and 'shared'
/// belong to the sole user of a database and to kb_admin, so the default limits do not apply to them.
pub fn allowed(tenant_id: &str, thing: Thing) -> Option<i64> {
    let own = quotas::of(tenant_id).and_then(|quota| quota.of(thing));
    let by_default =
        || (!tenant_id.is_empty() && tenant_id != SHARED).then(|| settings::tenants::quota(thing)).flatten();
    own.or_else(by_default)
}

fn lock_name(tenant_id: &str) -> String {
    format!("quota of {tenant_id}")
}

/// Returns an error if a tenant has as many things of a kind as it may. Waits for other transactions that do
/// the same check. Must run as the owner.
pub fn check(tenant_id: &str, thing: Thing) -> Result<()> {
    let Some(allowed) = allowed(tenant_id, thing) else { return Ok(()) };
    advisory::lock(&lock_name(tenant_id));
    let used = quotas::count(tenant_id, thing, allowed.saturating_add(1))?;
    match used < allowed {
        true => Ok(()),
        false => Err(Error::Quota {
            tenant: tenant_id.to_string(),
            shortage: Shortage { what: thing.name(), allowed, used, needed: 1 },
        }),
    }
}

/// The things of a kind that a tenant may add. Until the transaction ends, no other adds any.
pub struct Room {
    tenant_id: String,
    thing: Thing,
    allowed: i64,
}

impl Room {
    /// Returns None if there is no limit to observe. Waits for other transactions that add things of this
    /// tenant.
    pub fn begin(tenant_id: &str, thing: Thing) -> Option<Room> {
        let allowed = allowed(tenant_id, thing)?;
        advisory::lock(&lock_name(tenant_id));
        Some(Room { tenant_id: tenant_id.to_string(), thing, allowed })
    }

    /// Returns an error if the tenant has too many now that this many were added; the transaction must be
    /// aborted in that case. A transaction that adds some again and again counts once. Must run as the owner.
    pub fn take(self, added: i64) -> Result<()> {
        if added == 0 {
            return Ok(());
        }
        let Room { tenant_id, thing, allowed } = self;
        let epoch = txn::epoch();
        let known = COUNTED.with_borrow(|counted| {
            let is_same =
                |c: &&CountedThings| c.epoch == epoch && c.tenant_id == tenant_id && c.thing == thing;
            counted.as_ref().filter(is_same).map(|counted| counted.used.saturating_add(added))
        });
        let used = match known {
            Some(known) if known <= allowed => known,
            // Some may have been deleted since.
            _ => quotas::count(&tenant_id, thing, allowed.saturating_add(added).saturating_add(1))?,
        };
        if used > allowed {
            let shortage = Shortage { what: thing.name(), allowed, used: used - added, needed: added };
            return Err(Error::Quota { tenant: tenant_id, shortage });
        }
        COUNTED.set(Some(CountedThings { epoch, tenant_id, thing, used }));
        Ok(())
    }
}

/// Moves a knowledge base from one tenant to another. Returns an error if the new owner exceeds its quota
/// then; the transaction must be aborted in that case. Must run as the owner.
pub fn moving(from: &str, to: &str, kb_no: i64, work: impl FnOnce() -> Result<()>) -> Result<()> {
    txn::take_number();
    let mut both = [from, to];
    // The order keeps two moves from waiting for each other.
    both.sort_unstable();
    for tenant_id in both {
        advisory::lock(&lock_name(tenant_id));
        quotas::lock(tenant_id, true)?;
    }
    let before = quotas::used(to, kb_no)?;
    work()?;
    for tenant_id in both {
        if quotas::of(tenant_id).is_some() {
            quotas::count_again(tenant_id)?;
        }
    }
    forget();
    let error = |shortage| Err(Error::Quota { tenant: to.to_string(), shortage });
    let after = quotas::used(to, kb_no)?;
    let more = Volume { documents: after.documents - before.documents, bytes: after.bytes - before.bytes };
    if let Some(shortage) = quotas::of(to).and_then(|quota| quota.shortage(before, more)) {
        return error(shortage);
    }
    for thing in [Thing::KnowledgeBases, Thing::AttachedTables, Thing::MetadataIndexes, Thing::MemoryEntries]
    {
        let Some(allowed) = allowed(to, thing) else { continue };
        let used = quotas::count(to, thing, allowed.saturating_add(1))?;
        if used > allowed {
            return error(Shortage { what: thing.name(), allowed, used: allowed, needed: used - allowed });
        }
    }
    Ok(())
}

/// Does work that may store more data of a tenant, other than documents. Returns an error if the tenant
/// exceeds its quota then; the transaction must be aborted in that case. Must run as the owner.
pub fn within<T>(tenant_id: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // As in [`Charge::begin`].
    txn::take_number();
    let Some(allowed) = quotas::of(tenant_id).and_then(|quota| quota.bytes) else { return work() };
    quotas::lock(tenant_id, true)?;
    let before = quotas::used(tenant_id, 0)?.bytes;
    let done = work()?;
    let after = quotas::used(tenant_id, 0)?.bytes;
    forget();
    if after > allowed && after > before {
        let shortage = Shortage { what: "bytes", allowed, used: before, needed: after - before };
        return Err(Error::Quota { tenant: tenant_id.to_string(), shortage });
    }
    Ok(done)
}
