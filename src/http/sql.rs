//! Calls of kb's SQL functions, as whoever calls kb.http. A statement here sees what the request wrote
//! before.

use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row};
use kb_http::bodies::Query;
use kb_types::Json;
use kb_types::error::{Error, Result};
use serde_json::Value;
use uuid::Uuid;

from_row! {
    /// A row of kb.query.
    pub struct Found {
        pub rank: i32,
        pub chunk_id: Uuid,
        pub kb_id: String,
        pub external_id: String,
        pub title: Option<String>,
        pub content: String,
        pub score: Option<f64>,
        pub token_count: i32,
        pub metadata: Json,
        pub locator: Json,
    }
}

from_row! {
    struct Listed {
        items: Vec<String>,
        next_cursor: Option<String>,
    }
}

/// The items of a page, and the cursor of the next.
pub fn list_knowledge_bases(limit: i32, cursor: Option<&str>) -> Result<(Vec<Json>, Option<String>)> {
    let listed = spi::write(
        "SELECT ARRAY(SELECT i.item::text FROM pg_catalog.jsonb_array_elements(l.page -> 'items')
                      WITH ORDINALITY AS i (item, place) ORDER BY i.place) AS items,
             l.page ->> 'next_cursor' AS next_cursor
         FROM kb.list_knowledge_bases($1, $2) AS l (page)",
        &[Arg::Int(limit), Arg::TextOrNull(cursor)],
        Listed::from_row,
    )?;
    let listed = listed.into_iter().next().ok_or_else(|| Error::Internal("no page".into()))?;
    Ok((listed.items.into_iter().map(Json::new).collect(), listed.next_cursor))
}

/// None: it is as the etag says.
pub fn get_knowledge_base(id: &str, if_none_match: Option<&str>) -> Result<Option<Json>> {
    let found = spi::write(
        "SELECT kb.get_knowledge_base($1, $2)",
        &[Arg::Text(id), Arg::TextOrNull(if_none_match)],
        Row::only::<Option<Json>>,
    )?;
    Ok(found.into_iter().next().flatten())
}

/// The knowledge base after it was changed.
pub fn latest_knowledge_base(id: &str) -> Result<Json> {
    get_knowledge_base(id, None)?.ok_or_else(|| Error::Internal("the knowledge base is gone".into()))
}

pub fn has_knowledge_base(id: &str) -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.knowledge_bases k WHERE k.id = $1 AND k.tenant_id = kb.current_tenant())",
        &[Arg::Text(id)],
    )
}

/// The knowledge bases of the tenant that are nobody's own, and no memories.
pub fn own_knowledge_bases() -> Result<Vec<String>> {
    spi::read(
        "SELECT k.id FROM kb.knowledge_bases k
         WHERE k.tenant_id = kb.current_tenant() AND k.id NOT LIKE '%/%'
           AND NOT EXISTS (SELECT FROM kb.memory_stores m WHERE m.kb_no = k.kb_no)
         ORDER BY k.kb_no",
        &[],
        Row::only,
    )
}

/// Makes what declares one knowledge base, and returns whether it was created.
pub fn apply(yaml: &str) -> Result<bool> {
    spi::write_value(
        "SELECT pg_catalog.bool_or(a.action = 'created') FROM kb.apply($1) AS a WHERE a.kind = 'knowledge_base'",
        &[Arg::Text(yaml)],
    )
}

pub fn drop_knowledge_base(id: &str) -> Result<()> {
    spi::execute("SELECT kb.drop_knowledge_base($1)", &[Arg::Text(id)])?;
    Ok(())
}

pub fn ingest(id: &str, strategy: &str) -> Result<Option<i64>> {
    spi::write_value("SELECT kb.ingest($1, $2)", &[Arg::Text(id), Arg::Text(strategy)])
}

const FOUND: &str =
    "rank, chunk_id, kb_id, external_id, title, content, score, token_count, metadata, locator";

pub fn query(id: &str, query: &Query) -> Result<Vec<Found>> {
    let json =
        |map: &Option<serde_json::Map<String, Value>>| map.clone().map(Value::Object).unwrap_or_default();
    let (filter, options) = (json(&query.filters), json(&query.options));
    spi::write(
        &format!(
            "SELECT {FOUND} FROM kb.query($1, $2, $3::integer, $4, NULLIF($5, 'null'), $6::integer, $7, NULLIF($8, 'null'))"
        ),
        &[
            Arg::Text(id),
            Arg::Text(&query.query),
            Arg::LongOrNull(query.top_k.map(i64::from)),
            Arg::DoubleOrNull(query.min_score),
            Arg::Json(&filter),
            Arg::LongOrNull(query.max_tokens.map(i64::from)),
            Arg::TextOrNull(query.mode.as_deref()),
            Arg::Json(&options),
        ],
        Found::from_row,
    )
}

pub fn query_several(ids: &[String], question: &str, top_k: i32) -> Result<Vec<Found>> {
    spi::write(
        &format!("SELECT {FOUND} FROM kb.query($1, $2, $3)"),
        &[Arg::Texts(ids), Arg::Text(question), Arg::Int(top_k)],
        Found::from_row,
    )
}
