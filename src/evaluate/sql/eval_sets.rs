//! kb.eval_sets and kb.eval_questions: questions with the expected contents of their answers.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::pg::spi::{self, Arg, Row};
use kb_types::Json;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::judgement::{EvalQuestion, Judgement};

fn not_found(name: &str) -> Error {
    Error::NotFound { what: ObjectKind::EvalSet, id: name.into() }
}

/// Creates a set. Returns false if one of this name exists. Must run as the owner.
pub fn insert(kb: &KnowledgeBase, name: &str) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.eval_sets (kb_no, tenant_id, name) VALUES ($1, $2, $3) ON CONFLICT (kb_no, name) DO NOTHING",
        &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Text(name)],
    )?;
    Ok(inserted > 0)
}

/// The number of a set, which cannot be dropped until this transaction ends. Must run as the owner.
pub fn lock(kb_no: i64, name: &str) -> Result<i64> {
    spi::write_one(
        "SELECT s.eval_set_no FROM kb.eval_sets s WHERE s.kb_no = $1 AND s.name = $2 FOR KEY SHARE",
        &[Arg::Long(kb_no), Arg::Text(name)],
        Row::only,
    )?
    .ok_or_else(|| not_found(name))
}

/// Drops a set with its questions. Must run as the owner.
pub fn delete(kb_no: i64, name: &str) -> Result<()> {
    // The questions are deleted before their set, from which `kb._bytes_changed` learns their tenant.
    spi::execute(
        "DELETE FROM kb.eval_questions q USING kb.eval_sets s
         WHERE s.kb_no = $1 AND s.name = $2 AND q.eval_set_no = s.eval_set_no",
        &[Arg::Long(kb_no), Arg::Text(name)],
    )?;
    let deleted = spi::execute(
        "DELETE FROM kb.eval_sets WHERE kb_no = $1 AND name = $2",
        &[Arg::Long(kb_no), Arg::Text(name)],
    )?;
    if deleted > 0 { Ok(()) } else { Err(not_found(name)) }
}

/// Adds questions, each id once, and replaces those whose ids exist. Must run as the owner.
pub fn put_questions(eval_set_no: i64, tenant_id: &str, questions: &[EvalQuestion]) -> Result<()> {
    let column = |of: fn(&EvalQuestion) -> String| questions.iter().map(of).collect::<Vec<_>>();
    let filter = |question: &EvalQuestion| question.filter.as_ref().map_or(String::new(), Json::to_string);
    spi::execute(
        "INSERT INTO kb.eval_questions (eval_set_no, question_id, tenant_id, question, relevant, filter)
         SELECT $1, u.id, $2, u.question, u.relevant::jsonb, nullif(u.filter, '')::jsonb
         FROM ROWS FROM (pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::text[]), pg_catalog.unnest($5::text[]),
                         pg_catalog.unnest($6::text[])) AS u (id, question, relevant, filter)
         ON CONFLICT (eval_set_no, question_id) DO UPDATE
             SET question = EXCLUDED.question, relevant = EXCLUDED.relevant, filter = EXCLUDED.filter",
        &[
            Arg::Long(eval_set_no),
            Arg::Text(tenant_id),
            Arg::Texts(&column(|question| question.id.clone())),
            Arg::Texts(&column(|question| question.question.clone())),
            Arg::Texts(&column(|question| Judgement::all_to_json(&question.judgements).to_string())),
            Arg::Texts(&column(filter)),
        ],
    )?;
    Ok(())
}

/// Deletes a question. Returns false if there is none with this id. Must run as the owner.
pub fn delete_question(eval_set_no: i64, question_id: &str) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.eval_questions WHERE eval_set_no = $1 AND question_id = $2",
        &[Arg::Long(eval_set_no), Arg::Text(question_id)],
    )?;
    Ok(deleted > 0)
}

/// The questions of a set that the caller may read, by id. Works on a standby.
pub fn questions(kb_no: i64, name: &str) -> Result<Vec<EvalQuestion>> {
    let found = spi::read_one(
        "SELECT s.eval_set_no FROM kb.eval_sets s WHERE s.kb_no = $1 AND s.name = $2",
        &[Arg::Long(kb_no), Arg::Text(name)],
        Row::only::<i64>,
    )?;
    let eval_set_no = found.ok_or_else(|| not_found(name))?;
    spi::read(
        "SELECT q.question_id, q.question, q.relevant, q.filter FROM kb.eval_questions q
         WHERE q.eval_set_no = $1 ORDER BY q.question_id",
        &[Arg::Long(eval_set_no)],
        |row| {
            let internal = |p: Vec<String>| Error::Internal(format!("stored judgements: {}", p.join("; ")));
            Ok(EvalQuestion {
                id: row.get("question_id")?,
                question: row.get("question")?,
                judgements: Judgement::parse_all(&row.get("relevant")?).map_err(internal)?,
                filter: row.get("filter")?,
            })
        },
    )
}
