//! kb.summaries.

use super::turns::PATH;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow};
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_types::error::Result;

from_row! {
    /// A summary of all turns up to one.
    pub struct Summary {
        pub summarized_up_to: String,
        pub depth: i64,
        pub content: String,
        pub token_count: i32,
        /// The tokens of the turns that it covers.
        pub total_tokens: i64,
    }
}

/// The newest summary of turns up to a place on a branch that the caller may read. Works on a standby.
pub fn newest((branch_no, depth): (i64, i64)) -> Result<Option<Summary>> {
    let sql = format!(
        "{PATH} SELECT s.summarized_up_to, s.depth, s.content, s.token_count, t.total_tokens FROM path
         CROSS JOIN LATERAL (
             SELECT s.summarized_up_to, s.tenant_id, s.depth, s.content, s.token_count FROM kb.summaries s
             WHERE s.branch_no = path.branch_no AND s.depth <= path.depth ORDER BY s.depth DESC LIMIT 1) s
         CROSS JOIN LATERAL (
             SELECT t.total_tokens FROM kb.turns t
             WHERE t.tenant_id = s.tenant_id AND t.id = s.summarized_up_to LIMIT 1) t
         LIMIT 1"
    );
    let args = [Arg::Long(branch_no), Arg::Long(depth)];
    setting::with(IN_ORDER, || spi::read_one(&sql, &args, Summary::from_row))
}

/// A summary to be stored.
pub struct NewSummary<'a> {
    pub tenant_id: &'a str,
    pub summarized_up_to: &'a str,
    pub content: &'a str,
    pub token_count: i32,
    pub llm: &'a str,
}

/// Adds a summary, unless the turn has one or no longer exists. For the worker.
pub fn insert(new: &NewSummary) -> Result<()> {
    setting::with(BY_INDEX_UNPLANNED, || {
        spi::execute(
            "INSERT INTO kb.summaries (tenant_id, summarized_up_to, conversation_id, branch_no, depth, content, token_count, llm)
             SELECT t.tenant_id, t.id, t.conversation_id, t.branch_no, t.depth, $3, $4, $5 FROM kb.turns t
             WHERE t.tenant_id = $1 AND t.id = $2 ON CONFLICT DO NOTHING",
            &[
                Arg::Text(new.tenant_id),
                Arg::Text(new.summarized_up_to),
                Arg::Text(new.content),
                Arg::Int(new.token_count),
                Arg::Text(new.llm),
            ],
        )
    })?;
    Ok(())
}
