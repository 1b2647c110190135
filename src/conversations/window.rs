//! kb.window.
//!
//! The turns are read from the newest one backwards, in parts, until one does not fit.

use crate::conversations::sql::conversations::{self, WindowEnd};
pub use crate::conversations::sql::turns::WindowTurn;
use crate::conversations::sql::turns::{self, Part};
use crate::tenants::bindings;
use kb_types::conversation::{ConversationSettings, TURN_PREFIX, WindowChoice};
use kb_types::error::{Error, Result};

/// How many turns are read at first, and at most, at once.
const FIRST: i64 = 32;
const MOST: i64 = 1024;

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
    read((branch_no, depth), budget)
}

/// The window of at most so many tokens that ends at a place on a branch.
fn read(end: (i64, i64), budget: i64) -> Result<Window> {
    let (mut choice, mut turns) = (WindowChoice::new(budget), Vec::new());
    let (mut next, mut limit) = (Some(end), FIRST);
    let mut window = Window { turns: Vec::new(), is_cut: false };
    while let Some(place) = next {
        let part = turns::backwards(place, limit, |role, tokens| choice.consider(role, tokens.into()))?;
        let Part { turns: more, rest, is_cut, is_last } = part;
        turns.extend(more);
        window.is_cut = is_cut;
        next = rest.filter(|_| !is_cut && !is_last);
        limit = (limit * 2).min(MOST);
    }
    // The last ones may be results whose call does not fit.
    turns.truncate(choice.chosen());
    turns.reverse();
    window.turns = turns;
    Ok(window)
}
