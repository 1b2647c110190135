//! kb.window.
//!
//! The turns are read from the newest one backwards, in parts, until one does not fit. If some do not fit and
//! there is a summary, those after it are read, and at least as many as the window has by its settings.

use crate::conversations::sql::conversations::{self, WindowEnd};
use crate::conversations::sql::summaries::Summary;
pub use crate::conversations::sql::turns::WindowTurn;
use crate::conversations::sql::turns::{self, Part};
use crate::conversations::summary::{self, End};
use crate::gateway::client;
use crate::pg::{report, wake};
use crate::tenants::bindings;
use kb_gateway::protocol::WantedSummary;
use kb_types::conversation::{ConversationSettings, SummaryStrategy, TURN_PREFIX, WindowChoice};
use kb_types::error::{Error, Result};

/// How many turns are read at first, and at most, at once.
const FIRST: i64 = 32;
const MOST: i64 = 1024;

pub struct Window {
    /// Of turns before those of the window.
    pub summary: Option<Summary>,
    /// In their order.
    pub turns: Vec<WindowTurn>,
    /// Whether turns were left out that the summary does not cover.
    pub is_cut: bool,
}

/// Where a window ends, and the settings of its conversation.
pub struct Ending {
    pub settings: ConversationSettings,
    conversation_id: String,
    branch_no: i64,
    depth: i64,
    total_tokens: i64,
    is_last: bool,
}

impl Ending {
    pub fn end(&self) -> End<'_> {
        let Ending { branch_no, depth, total_tokens, is_last, .. } = *self;
        End { conversation_id: &self.conversation_id, branch_no, depth, total_tokens, is_last }
    }
}

/// Where the window of a conversation, or of what a turn ends, ends. None: the conversation has no turns.
pub fn ending(tenant: &str, id: &str) -> Result<Option<Ending>> {
    let end = match id.starts_with(TURN_PREFIX) {
        true => conversations::end_at(tenant, id)?,
        false => conversations::end(tenant, id)?,
    };
    let settings = conversations::parsed(&end.settings)?;
    let WindowEnd { conversation_id, branch_no, depth, total_tokens, is_last, .. } = end;
    let (Some(branch_no), Some(depth), Some(total_tokens)) = (branch_no, depth, total_tokens) else {
        return Ok(None);
    };
    Ok(Some(Ending { settings, conversation_id, branch_no, depth, total_tokens, is_last }))
}

/// The window of a conversation, or of what a turn ends.
pub fn window(id: &str, max_tokens: Option<i32>) -> Result<Window> {
    let tenant = bindings::current()?;
    if max_tokens.is_some_and(|most| most < 1) {
        return Err(Error::Argument { argument: "max_tokens", problem: "must be at least 1".into() });
    }
    let Some(ending) = ending(&tenant, id)? else {
        return Ok(Window { summary: None, turns: Vec::new(), is_cut: false });
    };
    let (settings, end) = (&ending.settings, ending.end());
    let budget = max_tokens.map_or(settings.token_threshold, i64::from);
    if end.total_tokens > budget && settings.summary.strategy != SummaryStrategy::Off {
        let newest = end.newest_summary()?;
        if summary::wanted(settings, &end, newest.as_ref())?.is_some() {
            want(&tenant, &ending);
        }
        if let Some(newest) = newest
            && let Some(window) = summarized(&ending, newest, budget)?
        {
            return Ok(window);
        }
    }
    let mut choice = WindowChoice::new(budget);
    let (turns, is_cut) = read(end.place(), &mut choice)?;
    Ok(Window { summary: None, turns, is_cut })
}

/// The window that begins with a summary. None: the newest turn does not fit beside it.
fn summarized(ending: &Ending, summary: Summary, budget: i64) -> Result<Option<Window>> {
    let left = budget - i64::from(summary.token_count);
    if left < 1 {
        return Ok(None);
    }
    let size = i64::try_from(ending.settings.window_size).unwrap_or(i64::MAX);
    let enough = (ending.depth - summary.depth).max(size);
    let mut choice = WindowChoice::of_turns(left, usize::try_from(enough).unwrap_or(usize::MAX));
    let (turns, _) = read(ending.end().place(), &mut choice)?;
    let is_cut = ending.depth - turns.len() as i64 > summary.depth;
    Ok((choice.tokens() <= left).then_some(Window { summary: Some(summary), turns, is_cut }))
}

/// Reads the turns of a window that ends at a place on a branch. Returns them and whether others were left
/// out.
fn read(end: (i64, i64), choice: &mut WindowChoice) -> Result<(Vec<WindowTurn>, bool)> {
    let (mut turns, mut is_cut) = (Vec::new(), false);
    let (mut next, mut limit) = (Some(end), FIRST);
    while let Some(place) = next {
        let part = turns::backwards(place, limit, |role, tokens| choice.consider(role, tokens.into()))?;
        turns.extend(part.turns);
        let Part { rest, is_last, .. } = part;
        is_cut = part.is_cut;
        next = rest.filter(|_| !is_cut && !is_last);
        limit = (limit * 2).min(MOST);
    }
    // The last ones may be results whose call does not fit.
    turns.truncate(choice.chosen());
    turns.reverse();
    Ok((turns, is_cut))
}

/// Tells the worker, by the gateway, that a summary is wanted: a window is read where nothing can be written.
/// Never fails and never waits; a standby tells nobody.
pub fn want(tenant: &str, ending: &Ending) {
    if report::in_recovery() {
        return;
    }
    let end = ending.end();
    let is_told = client::want_summary(WantedSummary {
        tenant: tenant.to_string(),
        conversation_id: end.conversation_id.to_string(),
        subject: end.subject(),
        version: end.depth,
    });
    if is_told {
        wake::ensure_worker();
    }
}
