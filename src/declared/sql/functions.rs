//! Calls of kb's SQL functions, as whoever calls kb.apply.

use crate::pg::spi::{self, Arg};
use crate::pg::statement_arguments::Arguments;
use kb_types::error::Result;
use serde_json::Value;

/// Calls a function of kb with these arguments, without those that are null.
pub fn call(function: &str, given: &[(&str, &Value)]) -> Result<()> {
    let texts: Vec<(&str, String)> = given
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (*name, value.as_str().map_or_else(|| value.to_string(), str::to_string)))
        .collect();
    let mut arguments = Arguments::default();
    let named: Vec<String> = texts
        .iter()
        .map(|(name, text)| format!("{name} => {}::{}", arguments.add(Arg::Text(text)), type_of(name)))
        .collect();
    let sql = format!("SELECT kb.{function}({})", named.join(", "));
    spi::execute(&sql, &arguments.all())?;
    Ok(())
}

/// The type of an argument, by its name.
fn type_of(argument: &str) -> &'static str {
    match argument {
        "dimension" | "top_k" | "max_tokens" => "integer",
        "min_score" => "double precision",
        "replace" => "boolean",
        "bytes" | "documents" | "document_bytes" | "knowledge_bases" | "tokens_per_day"
        | "attached_tables" | "metadata_indexes" | "memory_entries" => "bigint",
        "config" | "chunking" | "preprocess" | "retrieval" | "metadata" | "settings" | "filter" => "jsonb",
        _ => "text",
    }
}
