//! kb.query_log and kb.query_feedback: questions with their answers, and whether these were what was wanted.

use crate::pg::spi::{self, Arg};
use kb_gateway::protocol::LoggedQuestion;
use kb_types::Json;
use kb_types::error::Result;
use uuid::Uuid;

/// The most rows that are deleted at a time.
const AT_A_TIME: i64 = 10_000;

/// Writes a question once, or does nothing if its knowledge base no longer exists. For the worker.
pub fn insert(question: &LoggedQuestion) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.query_log (query_id, kb_no, tenant_id, asked_at, query, mode, filter, top_k, row_count, score,
             chunk_ids, duration_ms)
         SELECT ($1::uuid[])[1], k.kb_no, $3, pg_catalog.to_timestamp($4), $5, $6, $7::jsonb, $8, $9, $10, $11, $12
         FROM kb.knowledge_bases k WHERE k.kb_no = $2 FOR KEY SHARE
         ON CONFLICT (query_id) DO NOTHING",
        &[
            Arg::Uuids(&[question.query_id]),
            Arg::Long(question.kb_no),
            Arg::Text(&question.tenant),
            Arg::Double(question.asked_at as f64 / 1e6),
            Arg::Text(&question.query),
            Arg::Text(&question.mode),
            Arg::TextOrNull(question.filter.as_deref()),
            Arg::Int(question.top_k),
            Arg::Int(question.row_count),
            Arg::DoubleOrNull(question.score),
            Arg::Uuids(&question.chunk_ids),
            Arg::Double(question.duration_ms),
        ],
    )?;
    Ok(())
}

/// Deletes some of the questions that are older than this many days, with their feedback. For the worker.
pub fn delete_older(days: i64) -> Result<()> {
    spi::execute(
        "WITH gone AS (
             DELETE FROM kb.query_log WHERE query_id = ANY (ARRAY(
                 SELECT q.query_id FROM kb.query_log q
                 WHERE q.asked_at < pg_catalog.now() - $1 * '1 day'::interval ORDER BY q.asked_at LIMIT $2))
             RETURNING query_id)
         DELETE FROM kb.query_feedback f WHERE (f.query_id, f.chunk_id) IN (
             SELECT l.query_id, l.chunk_id FROM kb.query_feedback l JOIN gone USING (query_id) FOR UPDATE OF l SKIP LOCKED)",
        &[Arg::Double(days as f64), Arg::Long(AT_A_TIME)],
    )?;
    // Feedback on questions that were never written, or that was given while another transaction had the
    // question locked.
    spi::execute(
        "DELETE FROM kb.query_feedback WHERE (query_id, chunk_id) IN (
             SELECT f.query_id, f.chunk_id FROM kb.query_feedback f WHERE f.given_at < pg_catalog.now() - $1 * '1 day'::interval
                 AND NOT EXISTS (SELECT FROM kb.query_log q WHERE q.query_id = f.query_id) FOR UPDATE OF f SKIP LOCKED)",
        &[Arg::Double(days as f64)],
    )?;
    Ok(())
}

/// Deletes some of the oldest questions of a knowledge base that has more than `most`, with their feedback.
/// For the worker.
pub fn delete_beyond(kb_no: i64, most: i64) -> Result<()> {
    spi::execute(
        "WITH gone AS (
             DELETE FROM kb.query_log WHERE query_id = ANY (ARRAY(
                 SELECT q.query_id FROM kb.query_log q
                 WHERE q.kb_no = $1 ORDER BY q.asked_at DESC OFFSET $2 LIMIT $3))
             RETURNING query_id)
         DELETE FROM kb.query_feedback f WHERE (f.query_id, f.chunk_id) IN (
             SELECT l.query_id, l.chunk_id FROM kb.query_feedback l JOIN gone USING (query_id) FOR UPDATE OF l SKIP LOCKED)",
        &[Arg::Long(kb_no), Arg::Long(most), Arg::Long(AT_A_TIME)],
    )?;
    Ok(())
}

/// The knowledge base of a question that a tenant asked, and the chunks of its answer. Must run as the owner.
pub fn find(query_id: Uuid, tenant: &str) -> Result<Option<(i64, Vec<Uuid>)>> {
    // In this order, the statement sees what was written a moment ago.
    let rows = spi::write(
        "SELECT q.kb_no, c.chunk_id FROM kb.query_log q
         LEFT JOIN LATERAL pg_catalog.unnest(q.chunk_ids) c (chunk_id) ON true
         WHERE q.query_id = ($1::uuid[])[1] AND q.tenant_id = $2",
        &[Arg::Uuids(&[query_id]), Arg::Text(tenant)],
        |row| Ok((row.get::<i64>("kb_no")?, row.get::<Option<Uuid>>("chunk_id")?)),
    )?;
    let kb_no = rows.first().map(|(kb_no, _)| *kb_no);
    Ok(kb_no.map(|kb_no| (kb_no, rows.into_iter().filter_map(|(_, chunk_id)| chunk_id).collect())))
}

/// Must run as the owner.
pub fn put_feedback(query_id: Uuid, chunk_id: Uuid, kb_no: i64, tenant: &str, relevant: bool) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.query_feedback (query_id, chunk_id, kb_no, tenant_id, relevant)
         SELECT ($1::uuid[])[1], ($1::uuid[])[2], $2, $3, $4
         ON CONFLICT (query_id, chunk_id) DO UPDATE SET relevant = EXCLUDED.relevant, given_at = EXCLUDED.given_at",
        &[Arg::Uuids(&[query_id, chunk_id]), Arg::Long(kb_no), Arg::Text(tenant), Arg::Bool(relevant)],
    )?;
    Ok(())
}

/// Deletes the feedback on questions of a knowledge base that is dropped, without waiting for rows that open
/// transactions have locked; those are deleted with other feedback of their age. Must run as the owner.
pub fn delete_feedback_of(kb_no: i64) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.query_feedback WHERE (query_id, chunk_id) IN (
             SELECT query_id, chunk_id FROM kb.query_feedback WHERE kb_no = $1 FOR UPDATE SKIP LOCKED)",
        &[Arg::Long(kb_no)],
    )?;
    Ok(())
}

/// Must run as the owner.
pub fn delete_feedback(query_id: Uuid, chunk_id: Uuid) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.query_feedback WHERE query_id = ($1::uuid[])[1] AND chunk_id = ($1::uuid[])[2]",
        &[Arg::Uuids(&[query_id, chunk_id])],
    )?;
    Ok(())
}

/// Some of the questions that the session's tenant asked of a knowledge base and that were compared with
/// vectors, chosen at random, each once, with their filters.
pub fn sample(kb_no: i64, most: i64) -> Result<Vec<(String, Option<Json>)>> {
    spi::read(
        "SELECT s.query, s.filter FROM (
             SELECT DISTINCT l.query, l.filter FROM kb.query_log l WHERE l.kb_no = $1 AND l.mode <> 'keyword') s
         ORDER BY pg_catalog.random() LIMIT $2",
        &[Arg::Long(kb_no), Arg::Long(most)],
        |row| Ok((row.get("query")?, row.get("filter")?)),
    )
}
