//! kb.feedback: records whether a row of an answer was what the question wanted.

use crate::gateway::client;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::query::sql::query_log;
use crate::tenants::bindings;
use kb_types::error::{Error, Result};
use std::time::Duration;
use uuid::Uuid;

/// How long the call waits for the gateway.
const WITHIN: Duration = Duration::from_secs(2);

/// Records the last judgement on a row of an answer; None removes it. It is accepted only for a logged
/// question of the session's tenant, whether the worker has written it yet or not, and for a row of its
/// answer, so nobody can write more than was asked.
pub fn feedback(query_id: Uuid, chunk_id: Uuid, relevant: Option<bool>) -> Result<()> {
    let tenant = bindings::current()?;
    let written = || as_owner(|| query_log::find(query_id, &tenant));
    let answer = match written()? {
        Some(answer) => Some(answer),
        None => match waiting(query_id, &tenant) {
            Some(answer) => Some(answer),
            // The worker may have written it in between.
            None => written()?,
        },
    };
    let Some((kb_no, chunk_ids)) = answer else {
        let problem = format!("the log has no question {query_id} of tenant \"{tenant}\"");
        return Err(Error::Argument { argument: "query_id", problem });
    };
    if !chunk_ids.contains(&chunk_id) {
        let problem = format!("{chunk_id} is not in the answer to question {query_id} (its first 100 rows)");
        return Err(Error::Argument { argument: "chunk_id", problem });
    }
    as_owner(|| match relevant {
        Some(relevant) => query_log::put_feedback(query_id, chunk_id, kb_no, &tenant, relevant),
        None => query_log::delete_feedback(query_id, chunk_id),
    })
}

/// The knowledge base and the answer of a question that the gateway still holds.
fn waiting(query_id: Uuid, tenant: &str) -> Option<(i64, Vec<Uuid>)> {
    if !wake::gateway_runs() {
        return None;
    }
    let question = client::find_question(query_id, WITHIN).ok()??;
    (question.tenant == tenant).then_some((question.kb_no, question.chunk_ids))
}
