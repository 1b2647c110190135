//! Asks a chat model to reword a question.

use crate::models::ask::chat;
use kb_search::question_rewording::{passage_prompt, questions_prompt, read_passage, read_questions};
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};
use kb_types::retrieval::Retrieval;
use std::time::Duration;

/// What to search for in addition to the question.
#[derive(Debug, Default)]
pub struct Reworded {
    pub questions: Vec<String>,
    /// A text that a document with the answer might contain.
    pub passage: Option<String>,
    /// Why some of it is missing.
    pub problem: Option<String>,
}

/// The rewordings that the knowledge base or the call requests, or nothing if neither does. Failures are left
/// out. A passage is useful only if vectors are compared.
pub fn reworded(retrieval: &Retrieval, kb_no: i64, question: &str, has_vector: bool) -> Reworded {
    let mut reworded = Reworded::default();
    let Some(wanted) = &retrieval.transform else { return reworded };
    let timeout = Duration::from_millis(wanted.timeout_ms);
    let of_llm =
        |problem| Error::Service { kind: ServiceKind::Llm, id: wanted.llm.clone(), problem, passing: true };
    if wanted.multi_query > 0 {
        let asked: Result<Vec<String>> =
            chat(&wanted.llm, questions_prompt(question, wanted.multi_query), kb_no, timeout)
                .and_then(|answer| read_questions(&answer, question, wanted.multi_query).map_err(of_llm));
        match asked {
            Ok(questions) => reworded.questions = questions,
            Err(error) => reworded.problem = Some(error.to_string()),
        }
    }
    if wanted.hyde && has_vector && reworded.problem.is_none() {
        let asked = chat(&wanted.llm, passage_prompt(question), kb_no, timeout)
            .and_then(|answer| read_passage(&answer).map_err(of_llm));
        match asked {
            Ok(passage) => reworded.passage = Some(passage),
            Err(error) => reworded.problem = Some(error.to_string()),
        }
    }
    reworded
}
