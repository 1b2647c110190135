//! Adding documents within what a tenant may have (kb.set_quota).

use crate::error::{Error, Result};
use crate::model::quota::{Quota, Shortage, Volume};
use crate::pg::txn;
use crate::store::new_documents::NewDocument;
use crate::store::quotas;
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
    /// Bytes of the documents that there are, by external_id.
    sizes: HashMap<String, i64>,
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

    /// Takes a document into account before it is put. An error if that is too much.
    pub fn add(&mut self, document: &NewDocument) -> Result<()> {
        let size = document.size();
        let error = |shortage| Err(Error::Quota { tenant: self.owner.clone(), shortage });
        // What stands for a row that could not be read has no bytes, and does not count.
        let before = self.sizes.insert(document.external_id.clone(), size).filter(|before| *before > 0);
        let is_larger = before.is_none_or(|before| size > before);
        if let Some(allowed) = self.quota.document_bytes.filter(|allowed| size > *allowed && is_larger) {
            let what = "bytes in one document";
            return error(Shortage { what, allowed, used: 0, needed: size });
        }
        let more =
            Volume { documents: i64::from(before.is_none() && size > 0), bytes: size - before.unwrap_or(0) };
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

/// An error where a tenant has as many knowledge bases as it may. As the owner.
pub fn check_knowledge_bases(tenant_id: &str) -> Result<()> {
    let Some(allowed) = quotas::of(tenant_id).and_then(|quota| quota.knowledge_bases) else { return Ok(()) };
    quotas::lock(tenant_id, true)?;
    let used = quotas::knowledge_bases(tenant_id, allowed.saturating_add(1))?;
    match used < allowed {
        true => Ok(()),
        false => Err(Error::Quota {
            tenant: tenant_id.to_string(),
            shortage: Shortage { what: "knowledge bases", allowed, used, needed: 1 },
        }),
    }
}
