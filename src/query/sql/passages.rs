//! What surrounds chunks in their documents, read as the caller.

use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::BY_INDEX;
use kb_types::error::Result;
use kb_types::passage::Piece;
use serde_json::Value;
use std::collections::HashMap;

/// Chunks of a document from one ordinal to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub document_id: i64,
    pub first: i32,
    pub last: i32,
}

/// The chunks of a build in these ranges, which do not overlap, by document and in order.
pub fn pieces(build_no: i64, ranges: &[Range]) -> Result<HashMap<i64, Vec<Piece>>> {
    let documents: Vec<i64> = ranges.iter().map(|range| range.document_id).collect();
    let first: Vec<i32> = ranges.iter().map(|range| range.first).collect();
    let last: Vec<i32> = ranges.iter().map(|range| range.last).collect();
    let headings = |locator: &Value| match locator.get("headings") {
        Some(Value::Array(titles)) => titles.iter().filter_map(|t| t.as_str().map(str::to_string)).collect(),
        _ => Vec::new(),
    };
    let found = setting::with(BY_INDEX, || {
        spi::read(
            "SELECT c.document_id, c.chunk_id, c.ordinal, c.start_char, c.end_char, c.content, c.token_count, c.locator
             FROM ROWS FROM (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::int[]), pg_catalog.unnest($4::int[]))
                 AS r (document_id, first, last)
             JOIN kb.chunks c ON c.document_id = r.document_id AND c.build_no = $1
                 AND c.ordinal >= r.first AND c.ordinal <= r.last AND c.enabled
             ORDER BY c.document_id, c.ordinal",
            &[Arg::Long(build_no), Arg::Longs(&documents), Arg::Ints(&first), Arg::Ints(&last)],
            |row| {
                let piece = Piece {
                    chunk_id: row.get("chunk_id")?,
                    ordinal: row.get("ordinal")?,
                    start: row.get("start_char")?,
                    end: row.get("end_char")?,
                    content: row.get("content")?,
                    token_count: row.get("token_count")?,
                    headings: headings(&row.get("locator")?),
                    gap: None,
                };
                Ok((row.get::<i64>("document_id")?, piece))
            },
        )
    })?;
    let mut by_document: HashMap<i64, Vec<Piece>> = HashMap::new();
    for (document_id, piece) in found {
        by_document.entry(document_id).or_default().push(piece);
    }
    Ok(by_document)
}

/// The present text of a document. Returns None if it does not exist, or the caller may not read it.
pub fn text(document_id: i64) -> Result<Option<String>> {
    let sql = "SELECT content FROM kb.documents WHERE document_id = $1";
    let found = setting::with(BY_INDEX, || spi::read_one(sql, &[Arg::Long(document_id)], Row::only))?;
    Ok(found.flatten())
}

/// The addresses of those documents that have one.
pub fn uris(document_ids: &[i64]) -> Result<HashMap<i64, String>> {
    let found = setting::with(BY_INDEX, || {
        spi::read(
            "SELECT document_id, uri FROM kb.documents WHERE document_id = ANY ($1) AND uri IS NOT NULL",
            &[Arg::Longs(document_ids)],
            |row| Ok((row.get("document_id")?, row.get("uri")?)),
        )
    })?;
    Ok(found.into_iter().collect())
}
