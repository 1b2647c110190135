//! kb.annotate: which spans of an answer quote which chunk.

use crate::query::removed_rows::without_removed;
use crate::query::sql::search;
use kb_search::quotes;
use kb_types::error::{Error, Result};
use kb_types::{Candidate, Json};
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::Uuid;

/// The most bytes of an answer, the most chunks, and the most bytes of their texts: the work cannot be
/// cancelled, and takes about 60 times as much memory.
const MAX_ANSWER: usize = 1 << 20;
const MAX_CHUNKS: usize = 10_000;
const MAX_BYTES: i64 = 4 << 20;

/// Returns an array of annotations in the order of the answer. Ids of chunks that do not exist in a live
/// build, and of chunks that the caller may not read, are skipped alike, so the result does not tell which of
/// them exist.
pub fn annotate(answer: &str, chunk_ids: &[Uuid]) -> Result<Json> {
    let argument = |argument, problem| Err(Error::Argument { argument, problem });
    if answer.len() > MAX_ANSWER {
        return Err(Error::TooLarge { what: "the answer".into(), size: answer.len(), limit: MAX_ANSWER });
    }
    if chunk_ids.len() > MAX_CHUNKS {
        return argument(
            "chunk_ids",
            format!("it has {} elements; at most {MAX_CHUNKS} are allowed", chunk_ids.len()),
        );
    }
    let size = search::size_of(chunk_ids)?;
    if size > MAX_BYTES {
        return argument(
            "chunk_ids",
            format!("these chunks have {size} bytes; at most {MAX_BYTES} are allowed"),
        );
    }
    let chunks = without_removed(search::by_ids(chunk_ids)?)?;
    let texts: Vec<&str> = chunks.iter().map(content).collect();
    let mut files: HashMap<i64, usize> = HashMap::new();
    for chunk in &chunks {
        let number = files.len();
        files.entry(document(chunk)).or_insert(number);
    }
    // Positions are in characters, each of which is visited once: quotes come in order, and one may begin
    // where the one before it ends.
    let mut characters =
        answer.char_indices().map(|(byte, _)| byte).chain([answer.len()]).enumerate().peekable();
    let mut byte = |wanted: usize| {
        while characters.next_if(|(place, _)| *place < wanted).is_some() {}
        characters.peek().map_or(answer.len(), |(_, byte)| *byte)
    };
    let annotation = |quote: quotes::Quote| {
        let chunk = &chunks[quote.text];
        let row = chunk.row.as_ref();
        let (start, end) = (byte(quote.start), byte(quote.end));
        json!({
            "type": "file_citation",
            "index": files.get(&document(chunk)),
            "start_index": quote.start,
            "end_index": quote.end,
            "file_id": row.map(|row| &row.external_id),
            "filename": row.and_then(|row| row.title.as_ref()),
            "chunk_id": chunk.chunk_id.to_string(),
            "quote": &answer[start..end],
        })
    };
    let annotations: Vec<Value> = quotes::find(answer, &texts).into_iter().map(annotation).collect();
    Ok(Json::new(Value::Array(annotations).to_string()))
}

fn content(chunk: &Candidate) -> &str {
    chunk.row.as_ref().map_or("", |row| row.content.as_str())
}

fn document(chunk: &Candidate) -> i64 {
    chunk.row.as_ref().map_or(0, |row| row.place.document_id)
}
