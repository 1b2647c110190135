//! SQL functions over memories.

use super::forget::Forgotten;
use super::recall::{Recall, Recalled};
use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::pg::function_arguments::{elements, json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use kb_types::error::{Error, Result as KbResult};
use kb_types::memory::{Fact, Source};
use pgrx::JsonB;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn create_memory(
    id: Option<&str>,
    embedder: default!(Option<&str>, "NULL"),
    settings: default!(Option<Jsonb>, "NULL"),
    description: default!(Option<&str>, "NULL"),
    vector_db: default!(Option<&str>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let settings = value("settings", settings)?.unwrap_or_default();
        let wanted = WantedKnowledgeBase {
            embedder: embedder.map(str::to_string),
            description: description.map(str::to_string),
            vector_db: vector_db.map(str::to_string),
            // The title of a fact's document is its context.
            chunking: Some(serde_json::json!({"context": "title"})),
            // Facts are short: words say more of them than vectors, and lengths say little
            // (bench/driver/locomo.py).
            retrieval: Some(serde_json::json!({"hybrid": {"alpha": 0.3}, "bm25": {"k1": 0.9, "b": 0.4}})),
            // Two subjects can have the same fact.
            preprocess: Some(serde_json::json!({"dedupe": false})),
            ..WantedKnowledgeBase::default()
        };
        super::create_memory::create_memory(required("id", id)?, &settings, wanted)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn alter_memory(id: Option<&str>, settings: Option<Jsonb>) -> Result<(), ErrorReport> {
    reported(|| {
        let settings = required("settings", value("settings", settings)?)?;
        super::create_memory::alter_memory(required("id", id)?, &settings)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_memory(id: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| super::create_memory::drop_memory(required("id", id)?))
}

#[pg_extern(volatile, parallel_unsafe)]
#[allow(clippy::too_many_arguments)]
fn remember(
    memory: Option<&str>,
    fact: Option<&str>,
    subject: default!(Option<&str>, "NULL"),
    tags: default!(Option<Vec<Option<String>>>, "NULL"),
    confidence: default!(Option<f64>, "NULL"),
    metadata: default!(Option<Jsonb>, "NULL"),
    valid_from: default!(Option<TimestampWithTimeZone>, "NULL"),
    valid_to: default!(Option<TimestampWithTimeZone>, "NULL"),
    expires_at: default!(Option<TimestampWithTimeZone>, "NULL"),
    supersedes: default!(Option<&str>, "NULL"),
    id: default!(Option<&str>, "NULL"),
    source_conversation_id: default!(Option<&str>, "NULL"),
    source_turn_id: default!(Option<&str>, "NULL"),
    source_start: default!(Option<i32>, "NULL"),
    source_end: default!(Option<i32>, "NULL"),
    context: default!(Option<&str>, "NULL"),
) -> Result<String, ErrorReport> {
    reported(|| {
        let fact = Fact {
            fact: required("fact", fact)?.to_string(),
            subject: subject.unwrap_or_default().to_string(),
            tags: elements("tags", tags.unwrap_or_default())?,
            confidence,
            metadata: json("metadata", metadata)?,
            valid_from: microseconds("valid_from", valid_from)?,
            valid_to: microseconds("valid_to", valid_to)?,
            expires_at: microseconds("expires_at", expires_at)?,
            supersedes: supersedes.map(str::to_string),
            id: id.map(str::to_string),
            source: Source {
                conversation_id: source_conversation_id.map(str::to_string),
                turn_id: source_turn_id.map(str::to_string),
                start: source_start.map(i64::from),
                end: source_end.map(i64::from),
            },
            context: context.map(str::to_string),
        };
        let remembered = super::remember::remember(required("memory", memory)?, vec![(String::new(), fact)])?;
        let (id, _) = remembered.into_iter().next().ok_or_else(|| Error::Internal("no id".into()))?;
        Ok(id)
    })
}

#[pg_extern(name = "remember", volatile, parallel_unsafe)]
fn remember_facts(
    memory: Option<&str>,
    facts: Option<Vec<Option<Jsonb>>>,
) -> Result<TableIterator<'static, (name!(id, String), name!(status, String))>, ErrorReport> {
    reported(|| {
        let given = elements("facts", required("facts", facts)?)?;
        let (mut facts, mut problems) = (Vec::with_capacity(given.len()), Vec::new());
        for (number, Jsonb(fact)) in (1..).zip(given) {
            let name = format!("facts[{number}]");
            match fact.check() {
                Err(problem) => problems.push(format!("{name}: {problem}")),
                Ok(()) => match Fact::parse(&name, &fact) {
                    Ok(fact) => facts.push((format!("{name}."), fact)),
                    Err(found) => problems.extend(found),
                },
            }
        }
        if !problems.is_empty() {
            return Err(Error::Argument { argument: "facts", problem: problems.join("; ") });
        }
        let remembered = super::remember::remember(required("memory", memory)?, facts)?;
        Ok(TableIterator::new(remembered.into_iter().map(|(id, status)| (id, status.name().to_string()))))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn touch(memory: Option<&str>, ids: Option<Vec<Option<String>>>) -> Result<i64, ErrorReport> {
    reported(|| {
        let ids = elements("ids", required("ids", ids)?)?;
        super::touch::touch(required("memory", memory)?, &ids)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn forget(
    memory: Option<&str>,
    ids: default!(Option<Vec<Option<String>>>, "NULL"),
    subject: default!(Option<&str>, "NULL"),
    filter: default!(Option<Jsonb>, "NULL"),
) -> Result<
    TableIterator<'static, (name!(forgotten, i64), name!(derived, i64), name!(restored, i64))>,
    ErrorReport,
> {
    reported(|| {
        let ids = ids.map(|ids| elements("ids", ids)).transpose()?;
        let filter = json("filter", filter)?;
        let subject = subject.map(str::to_string);
        let Forgotten { forgotten, derived, restored } =
            super::forget::forget(required("memory", memory)?, ids.as_deref(), subject, filter.as_ref())?;
        Ok(TableIterator::once((forgotten, derived, restored)))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn consolidate_memories(memory: Option<&str>) -> Result<i64, ErrorReport> {
    reported(|| super::consolidation::consolidate_memories(required("memory", memory)?))
}

/// Declares a function that returns entries. The columns and their values are defined here and nowhere else.
macro_rules! recalls {
    ($(#[$($attribute:tt)*])* fn $name:ident($($arguments:tt)*) { $($body:tt)* }) => {
        $(#[$($attribute)*])*
        #[allow(clippy::too_many_arguments)]
        fn $name($($arguments)*) -> Result<
            TableIterator<
                'static,
                (
                    name!(rank, i32),
                    name!(id, String),
                    name!(subject, String),
                    name!(fact, String),
                    name!(score, Option<f64>),
                    name!(confidence, f64),
                    name!(tags, Vec<String>),
                    name!(metadata, Jsonb),
                    name!(created_at, TimestampWithTimeZone),
                    name!(valid_from, TimestampWithTimeZone),
                    name!(valid_to, Option<TimestampWithTimeZone>),
                    name!(access_count, i64),
                    name!(last_accessed_at, Option<TimestampWithTimeZone>),
                    name!(locator, JsonB),
                ),
            >,
            ErrorReport,
        > {
            reported(|| {
                let recalled = { $($body)* };
                Ok(TableIterator::new((1..).zip(recalled).map(|(rank, recalled)| {
                    let Recalled { entry, score, locator } = recalled;
                    (
                        rank,
                        entry.id,
                        entry.subject,
                        entry.fact,
                        score,
                        entry.confidence,
                        entry.tags,
                        Jsonb(entry.metadata),
                        entry.created_at,
                        entry.valid_from,
                        entry.valid_to,
                        entry.access_count,
                        entry.last_accessed_at,
                        JsonB(locator),
                    )
                })))
            })
        }
    };
}

recalls! {
    #[pg_extern(stable, parallel_restricted)]
    fn recall(
        memory: Option<&str>,
        query: Option<&str>,
        max_results: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        tags: default!(Option<Vec<Option<String>>>, "NULL"),
        subject: default!(Option<&str>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        as_of: default!(Option<TimestampWithTimeZone>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        archived: default!(bool, "false"),
    ) {
        let recall = Recall {
            max_results,
            min_score,
            tags: elements("tags", tags.unwrap_or_default())?,
            subject: subject.map(str::to_string),
            filter: json("filter", filter)?,
            as_of: microseconds("as_of", as_of)?,
            mode: mode.map(str::to_string),
            archived,
            ..Recall::default()
        };
        super::recall::recall(required("memory", memory)?, required("query", query)?, recall)?
    }
}

recalls! {
    #[pg_extern(stable, parallel_restricted)]
    fn recall_by_tags(
        memory: Option<&str>,
        tags: Option<Vec<Option<String>>>,
        max_results: default!(Option<i32>, "NULL"),
        subject: default!(Option<&str>, "NULL"),
        as_of: default!(Option<TimestampWithTimeZone>, "NULL"),
        archived: default!(bool, "false"),
    ) {
        let recall = Recall {
            max_results,
            tags: elements("tags", required("tags", tags)?)?,
            subject: subject.map(str::to_string),
            as_of: microseconds("as_of", as_of)?,
            archived,
            ..Recall::default()
        };
        super::recall::recall_by_tags(required("memory", memory)?, recall)?
    }
}

/// From 1970 to 2000, where PostgreSQL begins to count.
const EPOCH: i64 = 946_684_800_000_000;
/// The years 0 and 10,000.
const TIMES: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

/// Microseconds since 1970.
fn microseconds(argument: &'static str, at: Option<TimestampWithTimeZone>) -> KbResult<Option<i64>> {
    let Some(at) = at else { return Ok(None) };
    let at = i64::from(at).checked_add(EPOCH).filter(|at| TIMES.contains(at));
    let problem = "it is not between the years 0 and 9999".to_string();
    at.map(Some).ok_or(Error::Argument { argument, problem })
}
