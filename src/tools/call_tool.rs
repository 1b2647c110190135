//! kb.call_tool: runs a tool with the arguments that a model wrote.
//!
//! A mistake in the arguments is a result with the member `error`, which the model reads and corrects. What
//! the application decides, or what happens meanwhile, raises an error.

use super::arguments::{Arguments, has_string};
use super::definitions::Tool;
use super::options::ToolOptions;
use crate::memory::recall::{Recall, recall};
use crate::memory::remember::{remember, subject_of};
use crate::pg::role;
use crate::query::query_several::query_several;
use kb_search::Request;
use kb_types::error::{Error, Result};
use kb_types::memory::Fact;
use kb_types::named::Named;
use kb_types::row_states::PutStatus;
use kb_types::{Hit, Json, id, sizes};
use serde_json::json;

/// The results of memory_search by default, and at most.
const RESULTS: i32 = 5;
const MOST_RESULTS: i32 = 100;

/// The result of a call, an object.
pub fn call_tool(name: &str, arguments: Option<Json>, options: &ToolOptions) -> Result<Json> {
    let tool = Tool::one_of(sizes::cut(name, id::MAX_BYTES))
        .map_err(|problem| Error::Argument { argument: "name", problem })?;
    if !tool.is_available(options) {
        let needed = match tool {
            Tool::MemoryStore | Tool::MemorySearch => "memory",
            Tool::FileSearch | Tool::SearchSemanticKnowledge => "knowledge_bases",
        };
        let problem = format!("options.{needed}: it is missing, and tool \"{}\" needs it", tool.name());
        return Err(Error::Argument { argument: "options", problem });
    }
    let called = match Arguments::new(arguments) {
        Err(problem) => Called::Mistake(problem),
        Ok(arguments) => match tool {
            Tool::MemoryStore => memory_store(arguments, options)?,
            Tool::MemorySearch => memory_search(arguments, options)?,
            Tool::FileSearch | Tool::SearchSemanticKnowledge => search(tool, arguments, options)?,
        },
    };
    Ok(match called {
        Called::Result(result) => result,
        Called::Mistake(problem) => Json::object(&[("error", Json::of_text(&format!("{name}: {problem}")))]),
    })
}

enum Called {
    Result(Json),
    /// The model has made a mistake.
    Mistake(String),
}

fn memory_store(mut arguments: Arguments, options: &ToolOptions) -> Result<Called> {
    let text = arguments.required_text("text");
    let metadata = arguments.strings("metadata", &options.allowed_metadata_keys);
    let given_id = arguments.text("id").filter(|id| !id.is_empty());
    if let Err(problem) = arguments.finish() {
        return Ok(Called::Mistake(problem));
    }
    // Everybody may call tools, but this one writes.
    if !role::caller_is("kb_writer") {
        return Err(Error::Permission {
            problem: "tool \"memory_store\" requires the rights of kb_writer".into(),
        });
    }
    let memory = options.memory.as_deref().unwrap_or_default();
    let members: Vec<(String, Json)> =
        metadata.into_iter().map(|(key, text)| (key, Json::of_text(&text))).collect();
    let fact = Fact {
        fact: text,
        subject: options.subject.clone().unwrap_or_default(),
        metadata: (!members.is_empty() || given_id.is_some()).then(|| Json::object(&members)),
        id: given_id.clone(),
        ..Fact::default()
    };
    if let Some(problem) =
        sizes::problem(fact.metadata.as_ref().map_or(0, |json| json.as_str().len()), sizes::METADATA)
    {
        return Ok(Called::Mistake(format!("metadata: {problem}")));
    }
    let problems = fact.problems();
    if !problems.is_empty() {
        return Ok(Called::Mistake(problems.join("; ").replace("fact: ", "text: ")));
    }
    // A model that speaks about one subject replaces nothing of another.
    let known = given_id.as_deref().map(|id| subject_of(memory, id)).transpose()?.flatten();
    if known.as_ref().is_some_and(|subject| *subject != fact.subject) {
        return Ok(Called::Mistake("id: another memory has it, choose another one".into()));
    }
    let stored = remember(memory, vec![(String::new(), fact)])?;
    let (stored_id, status) = stored.into_iter().next().ok_or_else(|| Error::Internal("no id".into()))?;
    if given_id.is_some() && known.is_none() && status != PutStatus::Added {
        return Err(Error::State {
            problem: format!("another session has stored a memory with id \"{stored_id}\" at the same time"),
            hint: "Call the tool again.".into(),
        });
    }
    let message = match given_id {
        Some(_) => "Successfully upserted in memory",
        None => "Successfully stored in memory",
    };
    Ok(Called::Result(Json::object(&[
        ("id", Json::of_text(&stored_id)),
        ("message", Json::of_text(message)),
    ])))
}

fn memory_search(mut arguments: Arguments, options: &ToolOptions) -> Result<Called> {
    let query = arguments.required_text("query");
    let limit = arguments.integer("limit", 0, MOST_RESULTS).filter(|limit| *limit > 0).unwrap_or(RESULTS);
    let filter = arguments.strings("filter", &options.allowed_metadata_keys);
    if let Err(problem) = arguments.finish() {
        return Ok(Called::Mistake(problem));
    }
    let wanted = Recall {
        max_results: Some(limit),
        subject: options.subject.clone(),
        conditions: filter.into_iter().map(|(key, text)| has_string(key, &text)).collect(),
        ..Recall::default()
    };
    let recalled = match recall(options.memory.as_deref().unwrap_or_default(), &query, wanted) {
        Ok(recalled) => recalled,
        Err(error) => return of_question(error),
    };
    let result = |recalled: crate::memory::recall::Recalled| {
        Json::object(&[
            ("content", Json::of_text(&recalled.entry.fact)),
            ("metadata", recalled.entry.metadata),
            ("similarity", number(recalled.score)),
        ])
    };
    Ok(results(recalled.into_iter().map(result).collect()))
}

fn search(tool: Tool, mut arguments: Arguments, options: &ToolOptions) -> Result<Called> {
    let query = arguments.required_text("query");
    if let Err(problem) = arguments.finish() {
        return Ok(Called::Mistake(problem));
    }
    let (rows, tokens) = (Some(options.max_results), Some(options.max_tokens));
    // What a model asks is plain text. If an embedder cannot be asked, words answer.
    let settings = json!({"on_error": "keyword", "syntax": "plain"});
    let request = Request::new("", rows, Some(options.min_score), None, tokens, None, Some(settings))?;
    let hits = match query_several(&options.knowledge_bases, &request, &query, None) {
        Ok(hits) => hits,
        Err(error) => return of_question(error),
    };
    let result = |hit: Hit| {
        let Hit { kb_id, score, row, .. } = hit;
        let file_id = Json::of_text(&row.external_id);
        let title = row.title.unwrap_or_else(|| row.external_id.clone());
        let content = Json::of_text(&row.content);
        match tool {
            Tool::FileSearch => Json::object(&[
                ("file_id", file_id),
                ("filename", Json::of_text(&title)),
                ("score", number(score)),
                ("content", content),
            ]),
            _ => Json::object(&[
                ("knowledge_base", Json::of_text(&kb_id)),
                ("document", file_id),
                ("title", Json::of_text(&title)),
                ("content", content),
                ("score", number(score)),
                ("metadata", row.metadata),
            ]),
        }
    };
    Ok(results(hits.into_iter().map(result).collect()))
}

/// A question that cannot be asked is the model's mistake. Nothing has been written.
fn of_question(error: Error) -> Result<Called> {
    match error {
        Error::Argument { argument: "query", problem } => Ok(Called::Mistake(format!("query: {problem}"))),
        Error::TooLarge { .. } | Error::InputTooLong { .. } => Ok(Called::Mistake(format!("query: {error}"))),
        error => Err(error),
    }
}

fn number(score: Option<f64>) -> Json {
    Json::new(json!(score).to_string())
}

fn results(results: Vec<Json>) -> Called {
    let count = Json::new(results.len().to_string());
    Called::Result(Json::object(&[("results", Json::array(&results)), ("count", count)]))
}
