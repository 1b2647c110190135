//! Chunks that have no vector in a table, and vectors of equal texts.

use super::VectorDb;
use super::segments::new_number;
use super::tail::{self, WrittenVector};
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_INDEX_UNPLANNED;
use crate::sql::server_catalogs::vector_schema;
use kb_types::Missing;
use kb_types::chunk_context::MAX_TOKENS;
use kb_types::error::Result;
use std::collections::HashSet;
use uuid::Uuid;

/// Rows of a statement whose plan goes from row to row by indexes, whatever the statistics say. If these are
/// older than a build, the build seems to have no chunks, and a join would read all chunks for each of its
/// rows.
fn one_by_one<T>(sql: &str, arguments: &[Arg], row: impl FnMut(&Row) -> Result<T>) -> Result<Vec<T>> {
    setting::with(BY_INDEX_UNPLANNED, || spi::write(sql, arguments, row))
}

/// The chunks without a vector, in order. The statement goes document by document: with outdated statistics
/// of a table that has grown, the planner would rather read all chunks in their order.
pub fn missing(
    vector_db: &VectorDb,
    build_no: i64,
    document_ids: &[i64],
    after: (i64, i32),
    limit: i64,
) -> Result<Vec<Missing>> {
    one_by_one(
        &format!(
            "SELECT c.document_id, c.ordinal, c.chunk_id, coalesce(c.context || E'\\n\\n' || c.content, c.content) AS content,
                 c.token_count + CASE WHEN c.context IS NULL THEN 0 ELSE {MAX_TOKENS} END AS token_count
             FROM (SELECT DISTINCT u.document_id FROM pg_catalog.unnest($2::bigint[]) u (document_id)
                   WHERE u.document_id >= $3 ORDER BY u.document_id) d
             CROSS JOIN LATERAL (
                 SELECT c.* FROM kb.chunks c
                 WHERE c.document_id = d.document_id AND c.build_no = $1 AND (c.document_id, c.ordinal) > ($3, $4)
                   AND (SELECT true FROM {} v WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no) IS NULL
                 ORDER BY c.ordinal LIMIT $5) c
             ORDER BY d.document_id, c.ordinal LIMIT $5",
            vector_db.table()
        ),
        &[
            Arg::Long(build_no),
            Arg::Longs(document_ids),
            Arg::Long(after.0),
            Arg::Int(after.1),
            Arg::Long(limit),
        ],
        |row| {
            Ok(Missing {
                document_id: row.get("document_id")?,
                ordinal: row.get("ordinal")?,
                chunk_id: row.get("chunk_id")?,
                content: row.get("content")?,
                token_count: row.get("token_count")?,
            })
        },
    )
}

pub fn incomplete(vector_db: &VectorDb, kb_no: i64, build_no: i64) -> Result<Vec<i64>> {
    one_by_one(
        &format!(
            "SELECT document_id FROM kb.documents d WHERE kb_no = $1 AND status = 'ready' AND (NOT EXISTS (
                     SELECT FROM kb.chunks c WHERE c.document_id = d.document_id AND c.build_no = $2)
                 OR EXISTS (SELECT FROM kb.chunks c WHERE c.document_id = d.document_id AND c.build_no = $2
                     AND (SELECT true FROM {} v WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no) IS NULL))",
            vector_db.table()
        ),
        &[Arg::Long(kb_no), Arg::Long(build_no)],
        Row::only,
    )
}

pub fn with_equal_text(
    vector_db: &VectorDb,
    build_no: i64,
    fingerprint: i64,
    chunk_ids: &[Uuid],
) -> Result<Vec<Uuid>> {
    one_by_one(
        &format!(
            "SELECT c.chunk_id FROM kb.chunks c WHERE c.build_no = $1 AND c.chunk_id = ANY ($3::uuid[]) AND EXISTS (
                 SELECT FROM kb.chunks o JOIN {} v ON v.chunk_id = o.chunk_id AND v.build_no = o.build_no
                 WHERE o.build_no = $1 AND o.content_hash = c.content_hash AND v.fingerprint = $2)",
            vector_db.table()
        ),
        &[Arg::Long(build_no), Arg::Long(fingerprint), Arg::Uuids(chunk_ids)],
        Row::only,
    )
}

pub fn among_those_with_vectors(
    vector_db: &VectorDb,
    build_no: i64,
    chunk_ids: &[Uuid],
) -> Result<HashSet<Uuid>> {
    let sql = format!(
        "SELECT v.chunk_id FROM {} v WHERE v.build_no = $1 AND v.chunk_id = ANY ($2::uuid[])",
        vector_db.table()
    );
    let found = one_by_one(&sql, &[Arg::Long(build_no), Arg::Uuids(chunk_ids)], Row::only)?;
    Ok(found.into_iter().collect())
}

from_row! {
    /// A vector that [`reuse`] has written.
    struct Copied {
        chunk_id: Uuid,
        tenant_id: String,
        segment: i32,
        /// Where it is to be packed.
        vector: Option<Vec<f32>>,
    }
}

pub fn reuse(
    vector_db: &VectorDb,
    build_no: i64,
    fingerprint: i64,
    document_ids: &[i64],
    lender: Option<(&VectorDb, i64)>,
) -> Result<u64> {
    let (table, column) = (vector_db.table(), vector_db.column_type(&vector_schema()?));
    let mut copied = 0;
    for (source, from_build) in [(vector_db, build_no)].into_iter().chain(lender) {
        let written = one_by_one(
            &format!(
                "WITH inserted AS (
                     INSERT INTO {table} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding, segment)
                     SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, $2, s.embedding::{column}, {number}
                     FROM kb.chunks c CROSS JOIN LATERAL (
                         SELECT v.embedding FROM kb.chunks o
                         JOIN {source} v ON v.chunk_id = o.chunk_id AND v.build_no = o.build_no
                         WHERE o.build_no = $4 AND o.content_hash = c.content_hash
                           AND v.fingerprint = $2
                         LIMIT 1) s
                     WHERE c.document_id = ANY ($3::bigint[]) AND c.build_no = $1
                       AND (SELECT true FROM {table} h WHERE h.chunk_id = c.chunk_id AND h.build_no = $1) IS NULL
                     ON CONFLICT DO NOTHING RETURNING chunk_id, tenant_id, segment, embedding)
                 SELECT i.chunk_id, i.tenant_id, i.segment, CASE WHEN EXISTS (
                         SELECT FROM kb.tails t WHERE t.build_no = $1 AND t.first <= i.segment)
                     THEN i.embedding::real[] END AS vector
                 FROM inserted i",
                source = source.table(),
                number = new_number(&table, "$1")
            ),
            &[Arg::Long(build_no), Arg::Long(fingerprint), Arg::Longs(document_ids), Arg::Long(from_build)],
            Copied::from_row,
        )?;
        copied += written.len() as u64;
        if let Some(first) = written.first() {
            let packed = written.iter().filter_map(|Copied { chunk_id, tenant_id, vector, .. }| {
                let vector = vector.as_deref()?;
                Some(WrittenVector { tenant_id: tenant_id.clone(), chunk_id: *chunk_id, vector })
            });
            tail::write(vector_db, build_no, first.segment, packed)?;
        }
    }
    Ok(copied)
}
