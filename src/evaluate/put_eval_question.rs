//! kb.put_eval_question and kb.delete_eval_question.

use crate::builds::knowledge_bases;
use crate::evaluate::sql::eval_sets;
use crate::pg::role::as_owner;
use crate::tenants::quota;
use kb_types::error::{Error, Result};
use kb_types::judgement::{Judgement, Question};
use kb_types::{Filter, Json, id};
use serde_json::Value;

/// Adds a question with the expected contents of its answer, or replaces the one with its id.
pub fn put_eval_question(
    kb_id: &str,
    eval_set: &str,
    question_id: &str,
    question: &str,
    relevant: &Value,
    filter: Option<Json>,
) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let refused = |argument, problem| Err(Error::Argument { argument, problem });
    if let Some(problem) = id::problem(question_id, id::MAX_EXTERNAL_BYTES) {
        return refused("question_id", problem);
    }
    if question.trim().is_empty() {
        return refused("question", "it is empty".into());
    }
    let judgements = match Judgement::parse_all(relevant) {
        Ok(judgements) => judgements,
        Err(problems) => return refused("relevant", problems.join("; ")),
    };
    if let Some(Err(problem)) = filter.as_ref().map(Filter::parse) {
        return refused("filter", problem);
    }
    let question =
        Question { id: question_id.to_string(), question: question.to_string(), judgements, filter };
    question.check()?;
    as_owner(|| {
        let set = eval_sets::lock(kb.kb_no, eval_set)?;
        quota::within(&kb.tenant_id, || eval_sets::put_questions(set, &kb.tenant_id, &[question]))
    })
}

/// Deletes a question. Returns false if there is none with this id.
pub fn delete_eval_question(kb_id: &str, eval_set: &str, question_id: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| {
        let set = eval_sets::lock(kb.kb_no, eval_set)?;
        quota::forget();
        eval_sets::delete_question(set, question_id)
    })
}
