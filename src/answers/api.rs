//! kb.answer.

use super::answer::{Answered, Wanted};
use super::found::Asked;
use crate::pg::function_arguments::{elements, json, required};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use kb_types::Json;
use kb_types::answer_options::AnswerOptions;
use kb_types::error::{Error, Result as KbResult};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::Value;

/// Declares a function that answers. Its columns are defined here and nowhere else; the body returns the
/// arguments. This is a macro, because pgrx reads the columns from the signature and does not look through a
/// type alias.
macro_rules! answers {
    ($(#[$($attribute:tt)*])* fn $name:ident($($arguments:tt)*) { $($body:tt)* }) => {
        $(#[$($attribute)*])*
        #[allow(clippy::too_many_arguments)]
        fn $name($($arguments)*) -> Result<
            TableIterator<
                'static,
                (
                    name!(answer, String),
                    name!(annotations, Jsonb),
                    name!(chunks, Jsonb),
                    name!(memories, Jsonb),
                    name!(usage, Jsonb),
                    name!(cost, Option<f64>),
                    name!(finish_reason, String),
                    name!(refused, bool),
                    name!(invalid_citations, Vec<i32>),
                    name!(turn_id, Option<String>),
                ),
            >,
            ErrorReport,
        > {
            reported(|| {
                let wanted = { $($body)* };
                let Answered {
                    text, annotations, chunks, memories, usage, cost, finish_reason, refused, invalid_citations, turn_id
                } = super::answer::answer(&wanted)?;
                let annotations = Jsonb(Json::new(Value::Array(annotations).to_string()));
                let (chunks, memories, usage) = (Jsonb(chunks), Jsonb(memories), Jsonb(Json::new(usage.to_string())));
                Ok(TableIterator::once((
                    text, annotations, chunks, memories, usage, cost, finish_reason.to_string(), refused,
                    invalid_citations, turn_id,
                )))
            })
        }
    };
}

answers! {
    #[pg_extern(volatile, parallel_unsafe)]
    fn answer(
        kb_id: Option<&str>,
        question: Option<&str>,
        llm: Option<&str>,
        conversation: default!(Option<&str>, "NULL"),
        memory: default!(Option<&str>, "NULL"),
        max_tokens: default!(Option<i32>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
    ) {
        let asked = Asked::One(required("kb_id", kb_id)?.to_string());
        wanted(asked, question, llm, conversation, memory, max_tokens, options)?
    }
}

answers! {
    #[pg_extern(name = "answer", volatile, parallel_unsafe)]
    fn answer_of_several(
        kb_ids: Option<Vec<Option<String>>>,
        question: Option<&str>,
        llm: Option<&str>,
        conversation: default!(Option<&str>, "NULL"),
        memory: default!(Option<&str>, "NULL"),
        max_tokens: default!(Option<i32>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
    ) {
        let asked = Asked::Several(elements("kb_ids", required("kb_ids", kb_ids)?)?);
        wanted(asked, question, llm, conversation, memory, max_tokens, options)?
    }
}

fn wanted(
    asked: Asked,
    question: Option<&str>,
    llm: Option<&str>,
    conversation: Option<&str>,
    memory: Option<&str>,
    max_tokens: Option<i32>,
    options: Option<Jsonb>,
) -> KbResult<Wanted> {
    let options = AnswerOptions::parse(json("options", options)?);
    Ok(Wanted {
        asked,
        question: required("question", question)?.to_string(),
        llm: required("llm", llm)?.to_string(),
        conversation: conversation.map(str::to_string),
        memory: memory.map(str::to_string),
        max_tokens,
        options: options
            .map_err(|problems| Error::Argument { argument: "options", problem: problems.join("; ") })?,
    })
}
