//! Questions.

use super::answer::Answered;
use super::knowledge_bases::{enveloped, raw};
use super::sql;
use kb_http::bodies::{ContentItem, ContentSchema, Match, Matches, Query, SearchResult, SearchResults};
use kb_http::routes::MOST_FOUND;
use kb_http::{Problem, Request, Response};
use kb_types::error::Result;

/// Finds passages of one knowledge base.
pub fn query(request: &Request, id: &str) -> Answered {
    let query: Query = request.json()?;
    let matches: Result<Vec<Match>> = sql::query(id, &query)?
        .into_iter()
        .map(|row| {
            Ok(Match {
                id: row.chunk_id.to_string(),
                rank: row.rank,
                knowledge_base: row.kb_id,
                document: row.external_id,
                title: row.title,
                text: row.content,
                score: row.score,
                token_estimate: row.token_count,
                metadata: raw(&row.metadata)?,
                locator: raw(&row.locator)?,
            })
        })
        .collect();
    Ok(enveloped(200, "passages found", Matches { matches: matches? }))
}

/// Finds passages of several knowledge bases.
pub fn semantic_search(request: &Request) -> Answered {
    let question = request.parameter("query").ok_or_else(|| Problem::new(422, "query: must be given"))?;
    let limit = request.number("limit", 1..=MOST_FOUND)?.unwrap_or(5);
    let named = request.parameters("knowledge_base");
    let ids = if named.is_empty() { sql::own_knowledge_bases()? } else { named };
    let rows = if ids.is_empty() { Vec::new() } else { sql::query_several(&ids, question, limit)? };
    let results: Result<Vec<SearchResult>> = rows
        .into_iter()
        .map(|row| {
            Ok(SearchResult {
                score: row.score,
                chunk: row.content,
                content_item: ContentItem {
                    id: row.external_id,
                    schema: ContentSchema { name: row.kb_id },
                    title: row.title,
                    data: raw(&row.metadata)?,
                },
            })
        })
        .collect();
    Ok(Response::json(200, &SearchResults { results: results? }))
}
