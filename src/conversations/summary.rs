//! Whether a summary is wanted, and up to which turn.
//!
//! It is wanted when the newest summary and the turns after it have more tokens than the threshold. It covers
//! all turns but the last ones: as many as the window has, if they fit beside the summary.

use crate::chat_requests::requests::{self, NewRequest, Of};
use crate::conversations::sql::summaries::{self, Summary};
use crate::conversations::sql::turns;
use kb_types::conversation::{ConversationSettings, MAX_TOOL_CALLS, SummaryStrategy, WindowChoice};
use kb_types::error::Result;
use std::time::Duration;

/// The name of the kind of request.
pub const KIND: &str = "summary";

/// Where a window ends.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    pub conversation_id: &'a str,
    pub branch_no: i64,
    pub depth: i64,
    pub total_tokens: i64,
    /// Whether no turn follows in the branch.
    pub is_last: bool,
}

impl End<'_> {
    pub fn place(&self) -> (i64, i64) {
        (self.branch_no, self.depth)
    }

    /// The subject of the request for a summary.
    pub fn subject(&self) -> String {
        match self.is_last {
            true => self.branch_no.to_string(),
            false => format!("{}:{}", self.branch_no, self.depth),
        }
    }

    /// The newest summary of turns before the end.
    pub fn newest_summary(&self) -> Result<Option<Summary>> {
        summaries::newest((self.branch_no, self.depth - 1))
    }
}

/// The branch of a subject, and the depth at which the window ends at most.
pub fn read_subject(subject: &str) -> Option<(i64, i64)> {
    match subject.split_once(':') {
        None => Some((subject.parse().ok()?, i64::MAX)),
        Some((branch_no, depth)) => Some((branch_no.parse().ok()?, depth.parse().ok()?)),
    }
}

/// Whether a summary and the turns after it are more than the threshold.
pub fn is_beyond(settings: &ConversationSettings, total_tokens: i64, newest: Option<&Summary>) -> bool {
    let (tokens, covered) =
        newest.map_or((0, 0), |newest| (i64::from(newest.token_count), newest.total_tokens));
    tokens + total_tokens - covered > settings.token_threshold
}

/// The depth of the last turn that a summary is to cover; 0: none. Never between a tool call and its results.
pub fn boundary(settings: &ConversationSettings, end: &End) -> Result<i64> {
    let budget = settings.token_threshold - settings.summary.max_tokens;
    let mut kept = WindowChoice::of_turns(budget, settings.window_size);
    let most = settings.window_size + MAX_TOOL_CALLS + 1;
    let outline = turns::outline(end.place(), most as i64)?;
    let _ = outline.into_iter().all(|(role, tokens)| kept.consider(role, tokens.into()));
    Ok(end.depth - kept.chosen() as i64)
}

/// Up to which depth a summary is wanted, if one is.
pub fn wanted(settings: &ConversationSettings, end: &End, newest: Option<&Summary>) -> Result<Option<i64>> {
    let is_off = settings.summary.strategy == SummaryStrategy::Off;
    if is_off || !is_beyond(settings, end.total_tokens, newest) {
        return Ok(None);
    }
    let boundary = boundary(settings, end)?;
    Ok(Some(boundary).filter(|boundary| *boundary > newest.map_or(0, |newest| newest.depth)))
}

/// Requests a summary after a turn, if the turns are beyond the threshold. `before` is the place of the turn
/// before. Must run as the owner.
pub fn make_after_turn(
    tenant_id: &str,
    settings: &ConversationSettings,
    end: &End,
    before: Option<(i64, i64)>,
) -> Result<()> {
    // In the snapshot of this statement, the turn itself does not exist.
    let newest = match before {
        Some(place) => crate::pg::txn::with_latest_snapshot(|| summaries::newest(place))?,
        None => None,
    };
    match is_beyond(settings, end.total_tokens, newest.as_ref()) {
        true => make(tenant_id, end.conversation_id, &end.subject(), end.depth),
        false => Ok(()),
    }
}

/// Requests a summary. `version` is the depth of the last turn.
pub fn make(tenant_id: &str, conversation_id: &str, subject: &str, version: i64) -> Result<()> {
    let (of, delay) = (Of::Conversation(conversation_id), Duration::ZERO);
    requests::make(&NewRequest { tenant_id, kind: KIND, subject, of, version, delay })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(is_last: bool) -> End<'static> {
        End { conversation_id: "c", branch_no: 7, depth: 3, total_tokens: 0, is_last }
    }

    #[test]
    fn a_subject_names_the_branch_and_a_place_before_its_end() {
        assert_eq!(read_subject(&end(true).subject()), Some((7, i64::MAX)));
        assert_eq!(read_subject(&end(false).subject()), Some((7, 3)));
        for wrong in ["", "x", "7:", ":3", "7:3:1"] {
            assert_eq!(read_subject(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn turns_that_a_summary_covers_count_only_as_the_summary() {
        let settings = ConversationSettings { token_threshold: 100, ..ConversationSettings::default() };
        assert!(!is_beyond(&settings, 100, None) && is_beyond(&settings, 101, None));
        let (summarized_up_to, content) = (String::new(), String::new());
        let newest = Summary { summarized_up_to, depth: 1, content, token_count: 10, total_tokens: 500 };
        assert!(!is_beyond(&settings, 590, Some(&newest)) && is_beyond(&settings, 591, Some(&newest)));
    }
}
