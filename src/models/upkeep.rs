//! Books what questions spent at providers. Queries cannot write, so it is fetched from the gateway now and
//! then.

use super::{services, usage};
use crate::gateway::client;
use crate::pg::{txn, wake};
use crate::upkeep::{Log, Upkeep};
use kb_gateway::protocol::UsageRow;
use kb_types::ServiceKind;
use kb_types::error::Result;
use std::time::{Duration, Instant};

/// How often usage by queries is asked for.
const BOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the gateway's answer is waited for: what does not come now comes the next time.
const BOOK_WITHIN: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct QueryUsage {
    asked_at: Option<Instant>,
    /// The last part of it that was written, as the gateway numbers them; 0: none.
    booked: u64,
}

impl Upkeep for QueryUsage {
    fn run(&mut self, _log: &mut Log) -> Result<()> {
        if self.asked_at.is_some_and(|at| at.elapsed() < BOOK_EVERY) || !wake::gateway_runs() {
            return Ok(());
        }
        self.asked_at = Some(Instant::now());
        loop {
            // This also says that the part before is booked, at once: another worker would get it again.
            let part = client::take_usage(self.booked, BOOK_WITHIN)?;
            if part.rows.is_empty() {
                return Ok(());
            }
            txn::in_txn(|| {
                for UsageRow { kind, endpoint, kb_no, tenant, usage } in &part.rows {
                    let price = price(*kind, endpoint)?;
                    usage::add(*kind, endpoint, *kb_no, tenant, usage, price)?;
                }
                Ok(())
            })?;
            self.booked = part.number;
        }
    }
}

/// As `price_per_million_tokens` says, in millionths; None: it says nothing, or the row is gone.
fn price(kind: ServiceKind, endpoint: &str) -> Result<Option<u64>> {
    Ok(services::find(kind, endpoint)?.and_then(|row| row.remote().price_micros))
}
