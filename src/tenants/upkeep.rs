//! Counts what tenants have whose quota was set a while ago, now that whoever did not know of it has ended.

use super::quotas;
use crate::pg::txn;
use crate::upkeep::{Log, Upkeep};
use kb_types::error::Result;

#[derive(Default)]
pub struct Quotas;

impl Upkeep for Quotas {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        if !txn::in_txn(quotas::any_unsettled)? {
            return Ok(());
        }
        txn::in_txn(quotas::note_new)?;
        for tenant in txn::in_txn(quotas::to_settle)? {
            let settled = txn::in_txn(|| {
                if quotas::lock(&tenant, false)? {
                    quotas::count_again(&tenant)?;
                    quotas::settle(&tenant)?;
                }
                Ok(())
            });
            if let Err(error) = settled {
                log.write("worker cannot count what a tenant with a quota stores", &error);
            }
        }
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(!quotas::any_unsettled()?)
    }
}
