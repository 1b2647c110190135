//! kb.wait, for a knowledge base or a run.

use crate::builds::{knowledge_bases, runs};
use crate::jobs::queue;
use crate::pg::role::{as_owner, bypasses_policies};
use crate::pg::{latch, report, snapshot, txn, wake};
use crate::tables::changes;
use crate::tenants::bindings;
use kb_types::error::{Error, ObjectKind, Result};
use std::time::{Duration, Instant};

/// The shortest and the longest pause between two checks. In between, the pause is a fraction of the time
/// waited so far, so that a short wait ends soon and a long one costs little.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
const PART: u32 = 32;

/// Waits until no committed document of a knowledge base is waiting.
pub fn wait_for_knowledge_base(kb_id: &str, timeout: Option<f64>) -> Result<()> {
    let kb = knowledge_bases::get(kb_id)?;
    wait_for(&format!("knowledge base \"{kb_id}\""), kb.kb_no, Some(kb.tenant_id), None, timeout)
}

/// Waits until a run has ended.
pub fn wait_for_run(run_no: i64, timeout: Option<f64>) -> Result<()> {
    let kb_no = runs::knowledge_base(run_no)?
        .ok_or_else(|| Error::NotFound { what: ObjectKind::Run, id: run_no.to_string() })?;
    wait_for(&format!("run {run_no}"), kb_no, None, Some(run_no), timeout)
}

fn wait_for(
    what: &str,
    kb_no: i64,
    owner: Option<String>,
    run_no: Option<i64>,
    timeout: Option<f64>,
) -> Result<()> {
    if report::in_recovery() {
        return Err(Error::ReadOnly { what: "kb.wait" });
    }
    if wake::enqueued_here(kb_no)
        && (queue::any_uncommitted(kb_no)? || as_owner(|| changes::any_uncommitted(kb_no))?)
    {
        return Err(Error::State {
            problem: format!("{what} waits for work that this transaction has not committed"),
            hint: "Commit first; the worker sees only committed documents.".into(),
        });
    }
    let limit = match timeout {
        Some(seconds) if !(0.0..=1e9).contains(&seconds) => {
            return Err(Error::Argument {
                argument: "timeout",
                problem: format!("{seconds} is not between 0 and 1e9 seconds"),
            });
        }
        other => other.map(Duration::from_secs_f64),
    };
    // The tenants whose jobs the policies on jobs let the caller see.
    let tenants = match bypasses_policies() {
        true => None,
        false => Some(bindings::visible()?.into_iter().chain(owner).collect::<Vec<_>>()),
    };
    let begun = Instant::now();
    let mut warned = false;
    snapshot::without(c"wait", || {
        loop {
            let over = txn::with_latest_snapshot(|| match run_no {
                None => Ok(queue::waiting(kb_no)? == 0
                    && !runs::is_running(kb_no)?
                    && !as_owner(|| changes::waiting(kb_no, tenants.as_deref()))?),
                // The end of the run itself, because a replacing run ends with the switch.
                Some(run_no) => runs::is_over(run_no),
            })?;
            if over {
                return Ok(());
            }
            if let Some(limit) = limit
                && begun.elapsed() >= limit
            {
                return Err(Error::Timeout { what: what.to_string(), seconds: limit.as_secs_f64() });
            }
            if !wake::ensure_worker() && !std::mem::replace(&mut warned, true) {
                report::warning("no background worker slot is free (max_worker_processes); waiting for one");
            }
            report::check_interrupts();
            snapshot::forget_catalogs();
            latch::wait((begun.elapsed() / PART).clamp(PAUSES.0, PAUSES.1));
        }
    })
}
