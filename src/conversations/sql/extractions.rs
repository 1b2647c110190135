//! kb.extractions.

use super::turns::PATH;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_types::error::Result;

/// The depth up to which facts were extracted from the turns that lead to a place on a branch; 0: none were.
pub fn covered((branch_no, depth): (i64, i64)) -> Result<i64> {
    let sql = format!(
        "{PATH} SELECT e.depth FROM path
         CROSS JOIN LATERAL (
             SELECT e.depth FROM kb.extractions e
             WHERE e.branch_no = path.branch_no AND e.depth <= path.depth ORDER BY e.depth DESC LIMIT 1) e
         LIMIT 1"
    );
    let args = [Arg::Long(branch_no), Arg::Long(depth)];
    let found = setting::with(IN_ORDER, || spi::read_one(&sql, &args, Row::only))?;
    Ok(found.unwrap_or(0))
}

/// Notes that facts were extracted from all turns up to one, unless it no longer exists. Returns false if
/// that was noted already. For the worker.
pub fn insert(tenant_id: &str, turn_id: &str, facts: usize, llm: &str) -> Result<bool> {
    let inserted = setting::with(BY_INDEX_UNPLANNED, || {
        spi::execute(
            "INSERT INTO kb.extractions (tenant_id, extracted_up_to, conversation_id, branch_no, depth, facts, llm)
             SELECT t.tenant_id, t.id, t.conversation_id, t.branch_no, t.depth, $3, $4 FROM kb.turns t
             WHERE t.tenant_id = $1 AND t.id = $2 ON CONFLICT DO NOTHING",
            &[
                Arg::Text(tenant_id),
                Arg::Text(turn_id),
                Arg::Int(i32::try_from(facts).unwrap_or(i32::MAX)),
                Arg::Text(llm),
            ],
        )
    })?;
    Ok(inserted > 0)
}
