//! kb.window.
//!
//! The turns are chosen by their outlines, from the newest one backwards, so that only the contents of those
//! that the window has are read.

use crate::conversations::sql::conversations::{self, WindowEnd};
use crate::conversations::sql::turns::{self, Outline, WindowTurn};
use crate::tenants::bindings;
use kb_types::conversation::{ConversationSettings, TURN_PREFIX, WindowChoice};
use kb_types::error::{Error, Result};

/// How many outlines are read at first, and at most, at once.
const FIRST: i64 = 64;
const MOST: i64 = 4096;

pub struct Window {
    /// In their order.
    pub turns: Vec<WindowTurn>,
    /// Whether older turns were left out.
    pub is_cut: bool,
}

/// The window of a conversation, or of what a turn ends.
pub fn window(id: &str, max_tokens: Option<i32>) -> Result<Window> {
    let tenant = bindings::current()?;
    if max_tokens.is_some_and(|most| most < 1) {
        return Err(Error::Argument { argument: "max_tokens", problem: "must be at least 1".into() });
    }
    let end = match id.starts_with(TURN_PREFIX) {
        true => conversations::end_at(&tenant, id)?,
        false => conversations::end(&tenant, id)?,
    };
    let WindowEnd { settings, branch_no: Some(branch_no), depth: Some(depth) } = end else {
        return Ok(Window { turns: Vec::new(), is_cut: false });
    };
    let settings = ConversationSettings::parse(&settings)
        .map_err(|problems| Error::Internal(format!("stored settings: {}", problems.join("; "))))?;
    let budget = max_tokens.map_or(settings.token_threshold, i64::from);
    let (ids, is_cut) = choose(branch_no, depth, budget)?;
    Ok(Window { turns: turns::get(&tenant, &ids)?, is_cut })
}

/// The ids of the turns of a window that ends here, in their order, and whether older ones are left out.
fn choose(branch_no: i64, depth: i64, budget: i64) -> Result<(Vec<String>, bool)> {
    let (mut choice, mut ids) = (WindowChoice::new(budget), Vec::new());
    let (mut at, mut limit, mut is_cut) = ((branch_no, depth), FIRST, false);
    'walk: loop {
        let outlines = turns::backwards(at.0, at.1, limit)?;
        let is_last = (outlines.len() as i64) < limit;
        for Outline { id, branch_no, depth, role, token_count } in outlines {
            if !choice.consider(role, token_count.into()) {
                is_cut = true;
                break 'walk;
            }
            ids.push(id);
            at = (branch_no, depth - 1);
        }
        if is_last {
            break;
        }
        limit = (limit * 2).min(MOST);
    }
    ids.truncate(choice.chosen());
    ids.reverse();
    Ok((ids, is_cut))
}
