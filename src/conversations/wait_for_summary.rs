//! kb.wait_for_summary.

use crate::chat_requests::requests;
use crate::conversations::sql::turns;
use crate::conversations::summary;
use crate::conversations::window::{self, Ending};
use crate::pg::{latch, report, snapshot, txn, wake};
use crate::tenants::bindings;
use kb_types::conversation::SummaryStrategy;
use kb_types::error::{Error, Result};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
/// How often the worker is told that the summary is wanted: the gateway may have started since.
const WANT_EVERY: Duration = Duration::from_millis(500);

/// Waits until a window has the summary that it needs.
pub fn wait_for_summary(id: &str, timeout: Option<f64>) -> Result<()> {
    if report::in_recovery() {
        return Err(Error::ReadOnly { what: "kb.wait_for_summary" });
    }
    let tenant = bindings::current()?;
    let limit = match timeout {
        Some(seconds) if !(0.0..=1e9).contains(&seconds) => {
            let problem = format!("{seconds} is not between 0 and 1e9 seconds");
            return Err(Error::Argument { argument: "timeout", problem });
        }
        other => other.map(Duration::from_secs_f64),
    };
    let begun = Instant::now();
    let mut wanted_at: Option<Instant> = None;
    snapshot::without(c"wait_for_summary", || {
        loop {
            let is_first = wanted_at.is_none();
            let is_time = wanted_at.is_none_or(|at| at.elapsed() >= WANT_EVERY);
            let Some(ending) = wanted(&tenant, id, is_first)? else { return Ok(()) };
            if is_time {
                wanted_at = Some(Instant::now());
                window::want(&tenant, &ending);
            }
            if let Some(limit) = limit.filter(|limit| begun.elapsed() >= *limit) {
                let what = format!("the summary of \"{id}\"");
                return Err(Error::Timeout { what, seconds: limit.as_secs_f64() });
            }
            wake::ensure_worker();
            report::check_interrupts();
            snapshot::forget_catalogs();
            latch::wait(PAUSE);
        }
    })
}

/// Where the window ends, if it lacks a summary that can come.
fn wanted(tenant: &str, id: &str, is_first: bool) -> Result<Option<Ending>> {
    txn::with_latest_snapshot(|| {
        let Some(ending) = window::ending(tenant, id)? else { return Ok(None) };
        let (settings, end) = (&ending.settings, ending.end());
        let newest = end.newest_summary()?;
        if settings.summary.strategy == SummaryStrategy::Off && end.total_tokens > settings.token_threshold {
            return Err(Error::State {
                problem: format!("conversation \"{}\" has no summaries", end.conversation_id),
                hint: "Set summary.strategy and summary.llm in its settings (kb.alter_conversation).".into(),
            });
        }
        if summary::wanted(settings, &end, newest.as_ref())?.is_none() {
            return Ok(None);
        }
        if is_first && turns::is_uncommitted(end.place())? {
            return Err(Error::State {
                problem: format!("\"{id}\" ends with a turn that this transaction has not committed"),
                hint: "Commit first; the worker sees only committed turns.".into(),
            });
        }
        let failure = requests::failure(tenant, summary::KIND, &end.subject())?;
        if let Some(failure) = failure.filter(|failure| failure.failed_version >= end.depth) {
            return Err(Error::State {
                problem: format!("the summary of \"{id}\" could not be made: {}", failure.error),
                hint: "Fix the cause. It is tried again after the next turn, or when the settings of the conversation are set \
                       again (kb.alter_conversation)."
                    .into(),
            });
        }
        Ok(Some(ending))
    })
}
