//! Evaluation sets and their questions.

use crate::builds::knowledge_bases;
use crate::evaluate::sql::eval_sets;
use crate::pg::report;
use crate::pg::role::as_owner;
use crate::tenants::quota;
use kb_search::beir;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::judgement::{EvalQuestion, Judgement};
use kb_types::{Filter, Json, id};
use serde_json::Value;

/// Creates an evaluation set, without questions, for a knowledge base of the caller's tenant.
pub fn create_eval_set(kb_id: &str, name: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    check_name(name)?;
    let is_new = as_owner(|| {
        knowledge_bases::lock(&kb)?;
        quota::within(&kb.tenant_id, || eval_sets::insert(&kb, name))
    })?;
    if is_new { Ok(()) } else { Err(Error::AlreadyExists { what: ObjectKind::EvalSet, id: name.into() }) }
}

/// Drops an evaluation set with its questions.
pub fn drop_eval_set(kb_id: &str, name: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| eval_sets::delete(kb.kb_no, name))
}

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
        EvalQuestion { id: question_id.to_string(), question: question.to_string(), judgements, filter };
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

/// Puts those questions of a data set in BEIR's format that have judgements into an evaluation set, and
/// creates the set if it does not exist. Returns the number of questions.
pub fn load_eval(kb_id: &str, eval_set: &str, queries: &str, qrels: &str) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    check_name(eval_set)?;
    let (questions, unjudged) = beir::parse(queries, qrels)
        .map_err(|problems| Error::configuration(format!("evaluation set \"{eval_set}\""), problems))?;
    questions.iter().try_for_each(EvalQuestion::check)?;
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

fn check_name(name: &str) -> Result<()> {
    match id::problem(name, id::MAX_BYTES) {
        Some(problem) => Err(Error::Argument { argument: "eval_set", problem }),
        None => Ok(()),
    }
}
