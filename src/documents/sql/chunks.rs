//! kb.chunks.

use crate::builds::builds::Build;
use crate::keyword::words::{InAdvance, Language};
use crate::pg::copy::{self, Rows};
use crate::pg::index_lookup::{self, Key};
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::BY_INDEX_UNPLANNED;
use kb_text::chunk_settings::Chunk;
use kb_types::error::Result;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A chunk of the previous version of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Existing {
    pub chunk_id: Uuid,
    pub content: String,
    pub content_hash: Vec<u8>,
    pub start: usize,
    pub end: usize,
    pub token_count: usize,
}

/// A document's chunks in one build, in order.
pub fn existing(document_id: i64, build_no: i64) -> Result<Vec<Existing>> {
    // While a knowledge base is filled, there are nearly always none.
    let key = [Key::Long(document_id), Key::Long(build_no)];
    if index_lookup::count(c"chunks", c"chunks_document", &key, 1) == Some(0) {
        return Ok(Vec::new());
    }
    let sql = "SELECT chunk_id, content, content_hash, start_char, end_char, token_count FROM kb.chunks
               WHERE document_id = $1 AND build_no = $2 ORDER BY ordinal";
    let row = |row: &Row| {
        Ok(Existing {
            chunk_id: row.get("chunk_id")?,
            content: row.get("content")?,
            content_hash: row.get("content_hash")?,
            start: row.get("start_char")?,
            end: row.get("end_char")?,
            token_count: row.get("token_count")?,
        })
    };
    let arguments = [Arg::Long(document_id), Arg::Long(build_no)];
    setting::with(BY_INDEX_UNPLANNED, || spi::write(sql, &arguments, row))
}

/// Whether a build may have had a chunk with a text of this hash when the transaction began.
pub fn may_have(build_no: i64, content_hash: &[u8]) -> bool {
    let key = [Key::Long(build_no), Key::Bytes(content_hash)];
    index_lookup::count(c"chunks", c"chunks_content", &key, 1) != Some(0)
}

/// The most chunks in a row of kb.bm25_pending: with these, their ids need no compression.
const PENDING: usize = 100;

/// A chunk with its identity and place.
pub type PlacedChunk = (Uuid, usize, Chunk);

/// A chunk of a document with the tenant of the document, and what is known of the words of the chunk.
pub struct OwnedChunk<'a> {
    pub document_id: i64,
    pub tenant_id: &'a str,
    pub chunk: &'a PlacedChunk,
    /// Its content hash.
    pub hash: &'a [u8; 32],
    pub words: Option<&'a InAdvance>,
}

/// Inserts chunks of one build. A chunk that exists already (after a crash, for example) is an error, or, if
/// `carefully` is set, stays as it is.
pub fn insert(build: &Build, chunks: &[OwnedChunk], carefully: bool) -> Result<()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let language = Language::named(&build.preprocess.language)?;
    // The number bounds the memory of one statement.
    for part in chunks.chunks(500) {
        let terms = |OwnedChunk { chunk: (_, _, chunk), words, .. }: &OwnedChunk| {
            language.terms_with(&build.preprocess.language, &chunk.whole(), *words)
        };
        let terms = part.iter().map(terms).collect::<Result<Vec<_>>>()?;
        if carefully { insert_missing(build, part, &terms)? } else { copy(build, part, &terms)? }
    }
    Ok(())
}

fn copy(build: &Build, chunks: &[OwnedChunk], terms: &[Vec<u8>]) -> Result<()> {
    let mut rows = Rows::of(&[
        c"chunk_id",
        c"build_no",
        c"document_id",
        c"kb_no",
        c"tenant_id",
        c"ordinal",
        c"content",
        c"content_hash",
        c"token_count",
        c"start_char",
        c"end_char",
        c"locator",
        c"terms",
        c"context",
    ]);
    let mut came: BTreeMap<&str, Vec<Uuid>> = BTreeMap::new();
    for (OwnedChunk { document_id, tenant_id, chunk: (chunk_id, ordinal, chunk), hash, .. }, terms) in
        chunks.iter().zip(terms)
    {
        let row = rows.row().bytes(chunk_id.as_bytes()).long(build.build_no).long(*document_id);
        let row = row.long(build.kb_no).bytes(tenant_id.as_bytes()).int(*ordinal as i32);
        let row = row.bytes(chunk.content.as_bytes()).bytes(*hash).int(chunk.token_count as i32);
        let row = row.int(chunk.span.start as i32).int(chunk.span.end as i32);
        let row = row.json(&chunk.locator.to_json().to_string()).bytes(terms);
        match chunk.context.as_deref() {
            None | Some("") => row.null(),
            Some(context) => row.bytes(context.as_bytes()),
        };
        came.entry(tenant_id).or_default().push(*chunk_id);
    }
    let mut pending = Rows::of(&[c"build_no", c"tenant_id", c"chunk_ids"]);
    for (tenant_id, came) in came {
        for ids in came.chunks(PENDING) {
            pending.row().long(build.build_no).bytes(tenant_id.as_bytes()).uuids(ids);
        }
    }
    copy::write("chunks", rows)?;
    copy::write("bm25_pending", pending)
}

fn insert_missing(build: &Build, chunks: &[OwnedChunk], terms: &[Vec<u8>]) -> Result<()> {
    let columns = Columns::of(chunks.iter().map(|owned| owned.chunk));
    let document_ids: Vec<i64> = chunks.iter().map(|owned| owned.document_id).collect();
    let tenants: Vec<String> = chunks.iter().map(|owned| owned.tenant_id.to_string()).collect();
    let sql = format!(
        "WITH inserted AS (
             INSERT INTO kb.chunks (chunk_id, build_no, document_id, kb_no, tenant_id, ordinal, content, content_hash,
                 token_count, start_char, end_char, locator, terms, context)
             SELECT u.id, $1, u.document_id, $2, u.tenant_id, u.ordinal, u.content, u.hash, u.tokens, u.s, u.e,
                 u.locator::jsonb, u.terms, nullif(u.context, '')
             FROM unnest($3::bigint[], $4::text[], $5::uuid[], $6::int[], $7::text[], $8::bytea[], $9::int[],
                 $10::int[], $11::int[], $12::text[], $13::bytea[], $14::text[])
                 AS u (document_id, tenant_id, id, ordinal, content, hash, tokens, s, e, locator, terms, context)
             ON CONFLICT DO NOTHING RETURNING build_no, tenant_id, chunk_id, document_id, ordinal)
         INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids)
         SELECT i.build_no, i.tenant_id, pg_catalog.array_agg(i.chunk_id ORDER BY i.n)
         FROM (SELECT *, pg_catalog.row_number() OVER (PARTITION BY tenant_id ORDER BY document_id, ordinal) - 1 AS n
               FROM inserted) i
         GROUP BY i.build_no, i.tenant_id, i.n / {PENDING}"
    );
    spi::execute(
        &sql,
        &[
            Arg::Long(build.build_no),
            Arg::Long(build.kb_no),
            Arg::Longs(&document_ids),
            Arg::Texts(&tenants),
            Arg::Uuids(&columns.ids),
            Arg::Ints(&columns.ordinals),
            Arg::Texts(&columns.contents),
            Arg::BytesArray(&columns.hashes),
            Arg::Ints(&columns.tokens),
            Arg::Ints(&columns.starts),
            Arg::Ints(&columns.ends),
            Arg::Texts(&columns.locators),
            Arg::BytesArray(terms),
            Arg::Texts(&columns.contexts),
        ],
    )?;
    Ok(())
}

/// Moves kept chunks to their new places. Rows that did not move are not updated.
pub fn update_places(build_no: i64, chunks: &[PlacedChunk]) -> Result<()> {
    for part in chunks.chunks(500) {
        let columns = Columns::of(part.iter());
        spi::execute(
            "UPDATE kb.chunks c SET ordinal = u.ordinal, start_char = u.s, end_char = u.e, locator = u.locator::jsonb
             FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::text[])
                 AS u (id, ordinal, s, e, locator)
             WHERE c.chunk_id = u.id AND c.build_no = $1
               AND (c.ordinal, c.start_char, c.end_char, c.locator)
                   IS DISTINCT FROM (u.ordinal, u.s, u.e, u.locator::jsonb)",
            &[
                Arg::Long(build_no),
                Arg::Uuids(&columns.ids),
                Arg::Ints(&columns.ordinals),
                Arg::Ints(&columns.starts),
                Arg::Ints(&columns.ends),
                Arg::Texts(&columns.locators),
            ],
        )?;
    }
    Ok(())
}

/// Deletes chunks, and by cascade their vectors.
pub fn delete(build_no: i64, chunk_ids: &[Uuid]) -> Result<()> {
    if chunk_ids.is_empty() {
        return Ok(());
    }
    spi::execute(
        "DELETE FROM kb.chunks WHERE build_no = $1 AND chunk_id = ANY ($2)",
        &[Arg::Long(build_no), Arg::Uuids(chunk_ids)],
    )?;
    Ok(())
}

/// Chunks as one array per column.
#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    ordinals: Vec<i32>,
    contents: Vec<String>,
    hashes: Vec<Vec<u8>>,
    tokens: Vec<i32>,
    starts: Vec<i32>,
    ends: Vec<i32>,
    locators: Vec<String>,
    /// Empty for a chunk without a context.
    contexts: Vec<String>,
}

impl Columns {
    fn of<'a>(chunks: impl Iterator<Item = &'a PlacedChunk>) -> Self {
        let mut columns = Columns::default();
        for (id, ordinal, chunk) in chunks {
            columns.ids.push(*id);
            columns.ordinals.push(*ordinal as i32);
            columns.contents.push(chunk.content.clone());
            columns.hashes.push(chunk.hash().to_vec());
            columns.tokens.push(chunk.token_count as i32);
            columns.starts.push(chunk.span.start as i32);
            columns.ends.push(chunk.span.end as i32);
            columns.locators.push(chunk.locator.to_json().to_string());
            columns.contexts.push(chunk.context.clone().unwrap_or_default());
        }
        columns
    }
}
