//! Adding documents within what a tenant may have (kb.set_quota).
//!
//! Who adds documents locks the tenant's row of kb.quotas first, so that nobody else adds, and appends a row
//! of counts. Who deletes appends a negative one by a trigger, and waits for nobody. A tenant without a quota
//! costs a look into a list that the process keeps.

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
    /// What this transaction knows that a tenant has, which it has locked: nobody else adds to it.
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

#[derive(Debug, Clone, PartialEq)]
struct Known {
    /// Another one once this transaction, or a part of it, has ended.
    epoch: u64,
    owner: String,
    kb_no: i64,
    used: Volume,
}

/// Documents that are being added to a knowledge base whose owner has a quota.
pub struct Charge {
    owner: String,
    kb_no: i64,
    quota: Quota,
    used: Volume,
    more: Volume,
    /// Of the documents that there are, by external_id.
    sizes: HashMap<String, StoredSize>,
}

impl Charge {
    /// Begins to add documents to a knowledge base; `owner` is charged, who owns that. None: there is nothing to keep to. Waits
    /// for other transactions that add documents of the owner, or with `waits` false is an error (55P03). As the owner of
    /// the extension.
    pub fn begin(owner: &str, kb_no: i64, waits: bool) -> Result<Option<Charge>> {
        // Before the look: who sets a quota waits for all with a number who may not know of it.
        txn::take_number();
        let Some(quota) = quotas::of(owner) else { return Ok(None) };
        if !quota.bounds_documents() && quota.document_bytes.is_none() {
            return Ok(None);
        }
        let used = if quota.bounds_documents() { used(owner, kb_no, waits)? } else { Volume::default() };
        let (owner, more, sizes) = (owner.to_string(), Volume::default(), HashMap::new());
        Ok(Some(Charge { owner, kb_no, quota, used, more, sizes }))
    }

    /// Sees what there is of these documents of a tenant, which are locked by now.
    pub fn look(&mut self, tenant_id: &str, external_ids: &[String]) -> Result<()> {
        self.sizes.extend(quotas::sizes(self.kb_no, tenant_id, external_ids)?);
        Ok(())
    }

    /// Takes a document into account before it is put. An error if that is too much. `size` gives its bytes, of what is put and of
    /// what stays of the document that is stored under this external_id. `has_text` is false for what stands for a row that
    /// could not be read, which is no document.
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

    /// Books what was added.
    pub fn book(self) -> Result<()> {
        if !self.quota.bounds_documents() || self.more == Volume::default() {
            return Ok(());
        }
        quotas::add(&self.owner, self.kb_no, self.more)?;
        let used = self.used.plus(self.more);
        KNOWN.set(Some(Known { epoch: txn::epoch(), owner: self.owner, kb_no: self.kb_no, used }));
        Ok(())
    }
}

/// What this transaction has deleted makes room.
pub fn forget() {
    KNOWN.set(None);
}

fn used(owner: &str, kb_no: i64, waits: bool) -> Result<Volume> {
    let epoch = txn::epoch();
    let known = KNOWN.with_borrow(|known| {
        let is_same = |known: &&Known| known.epoch == epoch && known.owner == owner && known.kb_no == kb_no;
        known.as_ref().filter(is_same).map(|known| known.used)
    });
    if let Some(used) = known {
        return Ok(used);
    }
    quotas::lock(owner, waits)?;
    quotas::used(owner, kb_no)
}

/// How many things of a kind a tenant may have; None: as many as it likes. Tenants '' and 'shared' are those of who has the database to
/// themselves, and of kb_admin: they have no limit that nobody has set.
pub fn allowed(tenant_id: &str, thing: Thing) -> Option<i64> {
    let own = quotas::of(tenant_id).and_then(|quota| quota.of(thing));
    let by_default =
        || (!tenant_id.is_empty() && tenant_id != SHARED).then(|| settings::tenants::quota(thing)).flatten();
    own.or_else(by_default)
}

fn lock_name(tenant_id: &str) -> String {
    format!("quota of {tenant_id}")
}

/// An error where a tenant has as many things of a kind as it may. Waits for other transactions that look so, too. As the owner.
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

/// Moves a knowledge base from a tenant to another. An error, after which the transaction is to be ended, where the other one has more
/// then than its quota. As the owner.
pub fn moving(from: &str, to: &str, kb_no: i64, work: impl FnOnce() -> Result<()>) -> Result<()> {
    txn::take_number();
    let mut both = [from, to];
    // Two that move at once do not wait for each other.
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
    for thing in [Thing::KnowledgeBases, Thing::AttachedTables, Thing::MetadataIndexes] {
        let Some(allowed) = allowed(to, thing) else { continue };
        let used = quotas::count(to, thing, allowed.saturating_add(1))?;
        if used > allowed {
            return error(Shortage { what: thing.name(), allowed, used: allowed, needed: used - allowed });
        }
    }
    Ok(())
}

/// Does something that may store more of a tenant than documents. An error, after which the transaction is to be ended, where that is
/// more than its quota. As the owner.
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
