//! SQL functions over conversations.

use crate::conversations::alter_conversation::{self, WantedConversation};
use crate::conversations::append_turn::NewTurn;
use crate::pg::function_arguments::{json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use kb_types::Json;
use kb_types::conversation::TurnRole;
use kb_types::error::Result;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_conversation(
    id: default!(Option<&str>, "NULL"),
    title: default!(Option<&str>, "NULL"),
    settings: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| alter_conversation::create_conversation(id, wanted(title, settings, metadata)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_conversation(
    id: Option<&str>,
    title: default!(Option<&str>, "NULL"),
    settings: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        alter_conversation::alter_conversation(required("id", id)?, wanted(title, settings, metadata)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_conversation(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| alter_conversation::drop_conversation(required("id", id)?))
}

fn wanted(
    title: Option<&str>,
    settings: Option<Jsonb>,
    metadata: Option<Jsonb>,
) -> Result<WantedConversation> {
    let (title, settings) = (title.map(str::to_string), value("settings", settings)?);
    Ok(WantedConversation { title, settings, metadata: json("metadata", metadata)? })
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
fn append_turn(
    conversation_id: Option<&str>,
    role: Option<&str>,
    content: Option<&str>,
    parent_id: default!(Option<&str>, "NULL"),
    tool_calls: default!(Option<Jsonb>, "NULL"),
    tool_call_id: default!(Option<&str>, "NULL"),
    token_count: default!(Option<i32>, "NULL"),
    usage: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let (conversation_id, role) =
            (required("conversation_id", conversation_id)?, required("role", role)?);
        let content = content.map(Json::of_text);
        let tools = (tool_calls, tool_call_id);
        append(conversation_id, role, content, parent_id, tools, token_count, (usage, metadata))
    })
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe, name = "append_turn")]
fn append_turn_of_parts(
    conversation_id: Option<&str>,
    role: Option<&str>,
    parts: Option<Jsonb>,
    parent_id: default!(Option<&str>, "NULL"),
    tool_calls: default!(Option<Jsonb>, "NULL"),
    tool_call_id: default!(Option<&str>, "NULL"),
    token_count: default!(Option<i32>, "NULL"),
    usage: default!(Option<Jsonb>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let (conversation_id, role) =
            (required("conversation_id", conversation_id)?, required("role", role)?);
        let content = json("parts", parts)?;
        let tools = (tool_calls, tool_call_id);
        append(conversation_id, role, content, parent_id, tools, token_count, (usage, metadata))
    })
}

fn append(
    conversation_id: &str,
    role: &str,
    content: Option<Json>,
    parent_id: Option<&str>,
    (tool_calls, tool_call_id): (Option<Jsonb>, Option<&str>),
    token_count: Option<i32>,
    (usage, metadata): (Option<Jsonb>, Option<Jsonb>),
) -> Result<String> {
    let new = NewTurn {
        role: role.to_string(),
        content,
        parent_id: parent_id.map(str::to_string),
        tool_calls: json("tool_calls", tool_calls)?,
        tool_call_id: tool_call_id.map(str::to_string),
        token_count,
        usage: json("usage", usage)?,
        metadata: json("metadata", metadata)?,
    };
    crate::conversations::append_turn::append_turn(conversation_id, &new)
}

#[pg_extern(stable, parallel_restricted)]
fn window(
    id: Option<&str>,
    max_tokens: default!(Option<i32>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(ordinal, i32),
            name!(turn_id, String),
            name!(role, String),
            name!(content, Option<Jsonb>),
            name!(tool_calls, Option<Jsonb>),
            name!(tool_call_id, Option<String>),
            name!(token_count, i32),
            name!(is_cut, bool),
            name!(is_summary, bool),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let window = crate::conversations::window::window(required("id", id)?, max_tokens)?;
        let is_cut = window.is_cut;
        let summary = window.summary.map(|summary| {
            let content = Some(Jsonb(Json::of_text(&summary.content)));
            let (id, role) = (summary.summarized_up_to, TurnRole::System.name().to_string());
            (id, role, content, None, None, summary.token_count, is_cut, true)
        });
        let turns = window.turns.into_iter().map(move |turn| {
            let (content, tool_calls) = (turn.content.map(Jsonb), turn.tool_calls.map(Jsonb));
            let (id, role, token_count) = (turn.id, turn.role, turn.token_count);
            (id, role, content, tool_calls, turn.tool_call_id, token_count, is_cut, false)
        });
        let rows = summary.into_iter().chain(turns).zip(1..);
        Ok(TableIterator::new(rows.map(
            |((id, role, content, calls, call, tokens, is_cut, is_summary), n)| {
                (n, id, role, content, calls, call, tokens, is_cut, is_summary)
            },
        )))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn extract_memories(id: Option<&str>) -> Result<i64, ErrorReport> {
    reported(|| crate::conversations::extraction::extract_memories(required("id", id)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn wait_for_summary(id: Option<&str>, timeout: default!(Option<f64>, "NULL")) -> Result<(), ErrorReport> {
    reported(|| crate::conversations::wait_for_summary::wait_for_summary(required("id", id)?, timeout))
}
