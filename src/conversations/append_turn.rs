//! kb.append_turn.
//!
//! Appending locks the conversation until the transaction ends. So of two transactions that append to it at
//! the same time, the second waits, and its turn follows the turn of the first.

use crate::conversations::extraction;
use crate::conversations::sql::conversations;
use crate::conversations::sql::turns::{self, StoredTurn};
use crate::conversations::summary;
use crate::pg::report;
use crate::pg::role::as_owner;
use crate::tenants::bindings;
use kb_text::tokenizer::Tokenizer;
use kb_types::conversation::{
    SummaryStrategy, TURN_PREFIX, TurnRole, estimated_tokens, read_content, tokens_of_parts,
    tool_calls_problem,
};
use kb_types::error::{Error, Result};
use kb_types::named::Named;
use kb_types::{Bounds, Json, Limits, id, sizes};
use serde_json::Value;
use uuid::Uuid;

/// A turn as it is given.
#[derive(Debug, Default)]
pub struct NewTurn {
    pub role: String,
    pub content: Option<Json>,
    /// None: the turn that was appended last.
    pub parent_id: Option<String>,
    pub tool_calls: Option<Json>,
    pub tool_call_id: Option<String>,
    /// None: the tokens are counted.
    pub token_count: Option<i32>,
    pub usage: Option<Json>,
    pub metadata: Option<Json>,
}

/// Appends a turn to a conversation of the session's tenant. Returns its id.
pub fn append_turn(conversation_id: &str, new: &NewTurn) -> Result<String> {
    let tenant_id = &bindings::current()?;
    let role = TurnRole::one_of(sizes::cut(&new.role, id::MAX_BYTES)).map_err(|p| refused("role", p))?;
    check_sizes(new)?;
    let content = new.content.as_ref().map(|content| parsed("content", content)).transpose()?;
    let (mut texts, others) = match &content {
        Some(content) => read_content(content).map_err(|p| refused("content", p))?,
        None if new.tool_calls.is_some() => Default::default(),
        None => return Err(Error::Null { argument: "content" }),
    };
    check_tools(role, new)?;
    texts.extend(new.tool_calls.as_ref().map(Json::as_str));
    let turn_id = format!("{TURN_PREFIX}{}", Uuid::now_v7().simple());
    as_owner(|| {
        let settings = conversations::lock(tenant_id, conversation_id)?;
        let parent_id = match &new.parent_id {
            Some(parent_id) => Some(parent_id.clone()),
            None => turns::last(tenant_id, conversation_id)?,
        };
        let parent_id = parent_id.as_deref();
        let parent = match parent_id {
            Some(parent_id) => {
                let found = turns::parent(tenant_id, conversation_id, parent_id)?;
                Some(found.ok_or_else(|| {
                    let parent_id = sizes::cut(parent_id, id::MAX_BYTES);
                    let problem = format!("conversation \"{conversation_id}\" has no turn \"{parent_id}\"");
                    refused("parent_id", problem)
                })?)
            }
            None => None,
        };
        check_answer(tenant_id, parent_id, new)?;
        let token_count = match new.token_count {
            Some(given) => given,
            None => count(settings.tokenizer.as_deref(), &texts, others)?,
        };
        let total_tokens = parent.as_ref().map_or(0, |parent| parent.total_tokens) + i64::from(token_count);
        let depth = parent.as_ref().map_or(1, |parent| parent.depth + 1);
        let branch_no = turns::insert(&StoredTurn {
            tenant_id,
            id: &turn_id,
            conversation_id,
            parent_id,
            branch_no: parent.as_ref().filter(|parent| !parent.has_next).map(|parent| parent.branch_no),
            depth,
            role,
            content: new.content.as_ref(),
            tool_calls: new.tool_calls.as_ref(),
            tool_call_id: new.tool_call_id.as_deref(),
            token_count,
            total_tokens,
            usage: new.usage.as_ref(),
            metadata: new.metadata.as_ref(),
        })?;
        let end = summary::End { conversation_id, branch_no, depth, total_tokens, is_last: true };
        if settings.summary.strategy == SummaryStrategy::Eager && total_tokens > settings.token_threshold {
            let before = parent.as_ref().map(|parent| (parent.branch_no, parent.depth));
            summary::make_after_turn(tenant_id, &settings, &end, before)?;
        }
        extraction::make_after_turn(tenant_id, &settings, &end, role)
    })?;
    Ok(turn_id)
}

fn refused(argument: &'static str, problem: impl Into<String>) -> Error {
    Error::Argument { argument, problem: problem.into() }
}

/// Numbers that double precision cannot represent are stored as they are written, so they are allowed here.
fn parsed(argument: &'static str, json: &Json) -> Result<Value> {
    serde_json::from_str(json.as_str()).map_err(|error| refused(argument, error.to_string()))
}

fn check_sizes(new: &NewTurn) -> Result<()> {
    let length = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_str().len());
    for (argument, size, most) in [
        ("content", length(&new.content), sizes::TURN),
        ("tool_calls", length(&new.tool_calls), sizes::TURN),
        ("usage", length(&new.usage), sizes::USAGE),
        ("metadata", length(&new.metadata), sizes::METADATA),
    ] {
        if let Some(problem) = sizes::problem(size, most) {
            return Err(refused(argument, problem));
        }
    }
    for (argument, json) in [("usage", &new.usage), ("metadata", &new.metadata)] {
        if json.as_ref().is_some_and(|json| !json.is_object()) {
            return Err(refused(argument, "must be a JSON object"));
        }
    }
    match new.token_count {
        Some(count) if count < 0 => Err(refused("token_count", "must not be negative")),
        _ => Ok(()),
    }
}

/// Checks that a turn of this role may have the tool calls, or be the result of one.
fn check_tools(role: TurnRole, new: &NewTurn) -> Result<()> {
    if let Some(tool_calls) = &new.tool_calls {
        if role != TurnRole::Assistant {
            return Err(refused("tool_calls", "only a turn of role assistant has tool calls"));
        }
        if let Some(problem) = tool_calls_problem(&parsed("tool_calls", tool_calls)?) {
            return Err(refused("tool_calls", problem));
        }
    }
    match (&new.tool_call_id, role) {
        (None, TurnRole::Tool) => Err(refused(
            "tool_call_id",
            "a turn of role tool is the result of a tool call, whose id must be given",
        )),
        (Some(_), TurnRole::User | TurnRole::Assistant | TurnRole::System) => {
            Err(refused("tool_call_id", "only a turn of role tool is the result of a tool call"))
        }
        _ => Ok(()),
    }
}

/// Checks that a result follows its call.
fn check_answer(tenant_id: &str, parent_id: Option<&str>, new: &NewTurn) -> Result<()> {
    let Some(tool_call_id) = new.tool_call_id.as_deref() else { return Ok(()) };
    let call = parent_id.map(|parent_id| turns::tool_call(tenant_id, parent_id, tool_call_id)).transpose()?;
    let shown = sizes::cut(tool_call_id, id::MAX_BYTES);
    match call {
        Some(call) if call.is_answered => {
            Err(refused("tool_call_id", format!("tool call \"{shown}\" has a result already")))
        }
        Some(call) if call.is_made => Ok(()),
        _ => Err(refused(
            "tool_call_id",
            format!("the result must follow the turn with tool call \"{shown}\", or another result of it"),
        )),
    }
}

/// The tokens of a turn.
pub fn count(tokenizer: Option<&str>, texts: &[&str], others: usize) -> Result<i32> {
    let tokens = match tokenizer {
        None => estimated_tokens(texts, others),
        Some(name) => {
            let tokenizer = Tokenizer::of_openai(name)?;
            let bounds = Bounds::begin(Limits { interrupt: report::check_interrupts, ..Limits::none() });
            let mut tokens = tokens_of_parts(others);
            for text in texts {
                tokens = tokens.saturating_add(tokenizer.count(text, &bounds)?);
            }
            tokens
        }
    };
    Ok(i32::try_from(tokens).unwrap_or(i32::MAX))
}
