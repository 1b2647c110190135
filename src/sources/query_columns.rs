//! The columns of the query of a source: which there are, and of which types.

use crate::pg::cursor::Cursor;
use crate::pg::row::{is_text, is_timestamp};
use crate::pg::subtransaction::in_subtransaction;
use pgrx::pg_sys;

/// The numbers of the columns.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct QueryColumns {
    pub external_id: usize,
    pub content: usize,
    pub title: Option<usize>,
    pub uri: Option<usize>,
    pub metadata: Option<usize>,
    pub updated_at: Option<usize>,
}

const NAMES: &[&str] = &["external_id", "content", "title", "uri", "metadata", "updated_at"];

impl QueryColumns {
    /// The columns with these names and types, or what is wrong with them.
    pub fn of(columns: &[(String, pg_sys::Oid)]) -> Result<QueryColumns, Vec<String>> {
        let mut problems = Vec::new();
        for (name, _) in columns.iter().filter(|(name, _)| !NAMES.contains(&name.as_str())) {
            problems.push(format!("column {name} is unknown; known columns are {}", NAMES.join(", ")));
        }
        let mut find = |wanted: &str, type_name: &str, fits: fn(pg_sys::Oid) -> bool| {
            let mut all = columns.iter().enumerate().filter(|(_, (name, _))| name == wanted);
            let (number, (_, type_oid)) = all.next()?;
            if all.next().is_some() {
                problems.push(format!("column {wanted} appears twice"));
            }
            if !fits(*type_oid) {
                problems.push(format!("column {wanted} must have type {type_name}"));
            }
            Some(number)
        };
        let external_id = find("external_id", "text (write external_id::text)", is_text);
        let content = find("content", "text", is_text);
        let (title, uri) = (find("title", "text", is_text), find("uri", "text", is_text));
        let metadata = find("metadata", "jsonb", |oid| oid == pg_sys::JSONBOID);
        let updated_at = find("updated_at", "timestamp with time zone", is_timestamp);
        for (name, number) in [("external_id", external_id), ("content", content)] {
            if number.is_none() {
                problems.push(format!("column {name} is missing"));
            }
        }
        match (external_id, content, problems.is_empty()) {
            (Some(external_id), Some(content), true) => {
                Ok(QueryColumns { external_id, content, title, uri, metadata, updated_at })
            }
            _ => Err(problems),
        }
    }
}

/// What is wrong with a query, as the caller may run it.
pub fn problems(query: &str) -> Vec<String> {
    match in_subtransaction(|| Ok(Cursor::open(query, &[])?.columns())) {
        Ok(columns) => QueryColumns::of(&columns).err().unwrap_or_default(),
        Err(error) => {
            let hint = match error.sqlstate() {
                "42P01" | "42883" | "42704" | "3F000" => {
                    " (names need their schemas, because the query is run with search_path pg_catalog)"
                }
                _ => "",
            };
            vec![format!("{error}{hint}")]
        }
    }
}
