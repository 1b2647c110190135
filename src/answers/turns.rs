//! The conversation around an answer: the turns before it, and the two that it adds.

use super::answer::{Answered, Wanted};
use super::token_counter::TokenCounter;
use crate::conversations::append_turn::{NewTurn, append_turn};
use crate::conversations::window::{WindowTurn, window};
use crate::pg::{report, role};
use kb_search::answer_prompt;
use kb_types::conversation::{TURN_PREFIX, TurnRole, read_content};
use kb_types::error::{Error, Result};
use kb_types::{Json, Message, sizes};
use serde_json::{Value, json};

/// The most bytes of the annotations that are stored with a turn.
const ANNOTATIONS: usize = sizes::METADATA / 2;

/// Checks that the caller may append to the conversation, before anything is paid for.
pub fn check(conversation: &str, question: &str) -> Result<()> {
    if report::in_recovery() {
        return Err(Error::ReadOnly { what: "kb.answer with a conversation" });
    }
    if !role::caller_is("kb_writer") {
        let problem = "appending an answer to a conversation requires kb_writer".to_string();
        return Err(Error::Permission { problem });
    }
    let refused = |argument, problem: String| Err(Error::Argument { argument, problem });
    if conversation.starts_with(TURN_PREFIX) {
        return refused("conversation", "it is the id of a turn".into());
    }
    // Quotation marks and escapes count, too.
    match sizes::problem(Json::of_text(question).as_str().len(), sizes::TURN) {
        Some(problem) => refused("question", problem),
        None => Ok(()),
    }
}

/// The summary of a conversation, if its window has one, and its last turns as messages, in their order, of
/// at most so many tokens.
pub fn messages(conversation: &str, most: usize, counter: &TokenCounter) -> Result<Vec<Message>> {
    if most == 0 {
        return Ok(Vec::new());
    }
    // The window counts tokens in its own way, and has the last turn whatever it counts.
    let window = window(conversation, Some(i32::try_from(most).unwrap_or(i32::MAX)))?;
    let mut summary = window.summary.map(|summary| answer_prompt::summary(&summary.content));
    let mut tokens = summary.as_ref().map_or(Ok(0), |summary| counter.count(&summary.text))?;
    if tokens > most {
        (summary, tokens) = (None, 0);
    }
    let messages: Vec<(bool, Option<Message>)> = window.turns.iter().map(message).collect();
    let mut fitting = messages.len();
    for (place, (_, message)) in messages.iter().enumerate().rev() {
        let text = message.as_ref().map_or("", |message| message.text.as_str());
        tokens = tokens.saturating_add(counter.count(text)?);
        if tokens > most {
            break;
        }
        fitting = place;
    }
    // A result is not separated from its call.
    let fitting = messages.into_iter().skip(fitting).skip_while(|(is_result, _)| *is_result);
    Ok(summary.into_iter().chain(fitting.filter_map(|(_, message)| message)).collect())
}

/// Whether a turn is the result of a tool call, and its message.
fn message(turn: &WindowTurn) -> (bool, Option<Message>) {
    let content = turn.content.as_ref().and_then(|content| serde_json::from_str(content.as_str()).ok());
    let texts = content.as_ref().and_then(|content: &Value| Some(read_content(content).ok()?.0.join("\n")));
    let calls = turn.tool_calls.as_ref().map(Json::as_str);
    let call_id = turn.tool_call_id.as_deref();
    let message = answer_prompt::message(&turn.role, &texts.unwrap_or_default(), calls, call_id);
    (turn.role == TurnRole::Tool.name(), message)
}

/// Appends the question and the answer. Returns the id of the turn with the answer.
pub fn append(conversation: &str, wanted: &Wanted, answered: &Answered) -> Result<String> {
    let question =
        NewTurn { role: "user".into(), content: Some(Json::of_text(&wanted.question)), ..NewTurn::default() };
    append_turn(conversation, &question)?;
    let (annotations, is_cut) = stored(&answered.annotations);
    let metadata = json!({
        "llm": wanted.llm,
        "finish_reason": answered.finish_reason,
        "refused": answered.refused,
        "annotations": annotations,
        "annotations_cut": is_cut.then_some(true),
    });
    let answer = NewTurn {
        role: "assistant".into(),
        content: Some(Json::of_text(&answered.text)),
        usage: Some(Json::new(answered.usage.to_string())),
        metadata: Some(Json::new(without_nulls(metadata).to_string())),
        ..NewTurn::default()
    };
    append_turn(conversation, &answer)
}

/// The first annotations, as many as are stored, and whether there are more.
fn stored(annotations: &[Value]) -> (&[Value], bool) {
    let mut size = 0;
    let fits = |annotation: &&Value| {
        size += annotation.to_string().len() + 2;
        size <= ANNOTATIONS
    };
    let count = annotations.iter().take_while(fits).count();
    (&annotations[..count], count < annotations.len())
}

fn without_nulls(object: Value) -> Value {
    match object {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}
