//! kb.load_eval.

use crate::builds::knowledge_bases;
use crate::evaluate::sql::eval_sets;
use crate::pg::report;
use crate::pg::role::as_owner;
use crate::tenants::quota;
use kb_search::beir;
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::judgement::Question;

/// Puts those questions of a data set in BEIR's format that have judgements into an evaluation set, and
/// creates the set if it does not exist. Returns the number of questions.
pub fn load_eval(kb_id: &str, eval_set: &str, queries: &str, qrels: &str) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    if let Some(problem) = id::problem(eval_set, id::MAX_BYTES) {
        return Err(Error::Argument { argument: "eval_set", problem });
    }
    let (questions, unjudged) = beir::parse(queries, qrels)
        .map_err(|problems| Error::configuration(format!("evaluation set \"{eval_set}\""), problems))?;
    questions.iter().try_for_each(Question::check)?;
    as_owner(|| {
        knowledge_bases::lock(&kb)?;
        quota::within(&kb.tenant_id, || {
            eval_sets::insert(&kb, eval_set)?;
            let set = eval_sets::lock(kb.kb_no, eval_set)?;
            eval_sets::put_questions(set, &kb.tenant_id, &questions)
        })
    })?;
    if unjudged > 0 {
        report::notice(&format!("{unjudged} queries without judgements were left out"));
    }
    Ok(questions.len() as i64)
}
