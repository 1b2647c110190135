//! The query log. A logged question is sent to the gateway, from where the worker writes it, because queries
//! cannot write.
//!
//! The gateway holds questions in bounded memory until the worker has written them, so a question is kept
//! even if its transaction rolls back. kb.feedback is accepted only for a question of the session's tenant
//! that the log or the gateway has, and for a row of its answer, so that no reader can fill the disk.

use crate::gateway::client;
use crate::pg::{report, wake};
use crate::query::sql::search::SearchTarget;
use crate::tenants::bindings;
use kb_gateway::protocol::LoggedQuestion;
use kb_search::Request;
use kb_search::shape;
use kb_types::{Hit, Mode};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The most characters of a question that are kept.
const MAX_CHARACTERS: usize = 1000;
const MAX_FILTER_BYTES: usize = 4000;
const MAX_CHUNK_IDS: usize = 100;

/// Logs the share of questions that the knowledge base specifies, and marks their rows as logged. Never fails
/// and never waits; a standby logs nothing.
pub fn log(target: &SearchTarget, request: &Request, question: &str, took: Duration, hits: &mut [Hit]) {
    let share = target.retrieval.log;
    if share <= 0.0 || report::in_recovery() || !is_chosen(share) {
        return;
    }
    let Ok(tenant) = bindings::current() else { return };
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mode = match target.retrieval.mode {
        Mode::Dense => "dense",
        Mode::Keyword => "keyword",
        Mode::Hybrid => "hybrid",
    };
    let filter = request.filter_text.as_ref().map(|filter| filter.as_str());
    let query_id = Uuid::new_v4();
    let is_given = client::log_question(LoggedQuestion {
        query_id,
        kb_no: target.kb_no,
        tenant,
        asked_at: i64::try_from(age.saturating_sub(took).as_micros()).unwrap_or_default(),
        query: question.chars().take(MAX_CHARACTERS).collect(),
        mode: mode.into(),
        filter: filter.map(|filter| match filter.len() {
            0..=MAX_FILTER_BYTES => filter.to_string(),
            // This is not a filter, but JSON that says that there was one.
            bytes => format!("\"a filter of {bytes} bytes\""),
        }),
        top_k: i32::try_from(target.retrieval.top_k).unwrap_or(i32::MAX),
        row_count: i32::try_from(hits.len()).unwrap_or(i32::MAX),
        score: hits.first().and_then(|hit| hit.score),
        chunk_ids: hits.iter().take(MAX_CHUNK_IDS).map(|hit| hit.chunk_id).collect(),
        duration_ms: took.as_secs_f64() * 1000.0,
    });
    if is_given {
        shape::mark_logged(hits, query_id);
        wake::ensure_worker();
    }
}

/// Chooses at random.
fn is_chosen(share: f64) -> bool {
    let random = Uuid::new_v4().as_u128() as u32;
    f64::from(random) < share * (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_questions_is_logged() {
        let chosen = |share| (0..4000).filter(|_| is_chosen(share)).count();
        assert_eq!((chosen(0.0), chosen(1.0)), (0, 4000));
        let quarter = chosen(0.25);
        assert!((800..1200).contains(&quarter), "{quarter}");
    }
}
