//! kb.list_knowledge_bases and its like: a page of resources, in the order of their ids.

use super::get::{etag, tagged};
use super::resource::Resource;
use super::sql;
use kb_types::Json;
use kb_types::error::{Error, Result};
use serde_json::json;

/// The most resources of a page.
const MOST: i32 = 1000;

/// A page: `{"items": [resource, …], "next_cursor": text or null}`. The cursor is the last id of a page; the
/// next page begins after it, also if that resource was dropped meanwhile.
pub fn list(resource: Resource, limit: i32, cursor: Option<&str>) -> Result<Json> {
    if !(1..=MOST).contains(&limit) {
        let problem = format!("{limit} is not between 1 and {MOST}");
        return Err(Error::Argument { argument: "limit", problem });
    }
    // One more than the page has shows whether there is a next page.
    let mut found = sql::page(resource, cursor, limit + 1)?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| has_more).map(|last| last.id.clone());
    let items: Vec<String> =
        found.iter().map(|one| tagged(&one.resource, &etag(&one.resource)).as_str().to_string()).collect();
    Ok(Json::new(format!("{{\"items\": [{}], \"next_cursor\": {}}}", items.join(", "), json!(next))))
}
