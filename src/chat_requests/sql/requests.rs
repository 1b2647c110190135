//! kb.chat_requests.

use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::{txn, wake};
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_types::error::Result;
use std::time::Duration;

from_row! {
    /// A request that waits.
    #[derive(Debug, Clone)]
    pub struct ChatRequest {
        pub request_no: i64,
        pub tenant_id: String,
        pub kind: String,
        pub subject: String,
        /// The conversation or the memory of which it is.
        pub conversation_id: Option<String>,
        pub kb_no: Option<i64>,
        pub attempts: i32,
    }
}

impl ChatRequest {
    /// Whether both are of the same conversation or memory.
    pub fn is_beside(&self, other: &ChatRequest) -> bool {
        (&self.conversation_id, self.kb_no) == (&other.conversation_id, other.kb_no)
    }
}

/// Of what a request is.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    Conversation(&'a str),
    /// The number of its knowledge base.
    Memory(i64),
}

/// A request to be made.
pub struct NewRequest<'a> {
    pub tenant_id: &'a str,
    pub kind: &'static str,
    pub subject: &'a str,
    pub of: Of<'a>,
    /// How far the subject has come.
    pub version: i64,
    /// When it is due.
    pub delay: Duration,
}

/// Makes a request, which the commit tells the worker. If one waits for the subject already, locks it; one
/// that has failed is made again if the subject has come further.
/// Must run as the owner, or in the worker.
pub fn make(new: &NewRequest) -> Result<()> {
    let (conversation_id, kb_no) = match new.of {
        Of::Conversation(id) => (Some(id), None),
        Of::Memory(kb_no) => (None, Some(kb_no)),
    };
    txn::with_latest_snapshot(|| {
        setting::with(BY_INDEX_UNPLANNED, || {
            spi::execute(
                "INSERT INTO kb.chat_requests AS r (tenant_id, kind, subject, conversation_id, kb_no, due_at)
                 VALUES ($1, $2, $3, $4, $7, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $6))
                 ON CONFLICT (subject, kind, tenant_id) DO UPDATE SET due_at = EXCLUDED.due_at, attempts = 0, error = NULL,
                     failed_at = NULL, failed_version = NULL
                 WHERE r.failed_version < $5",
                &[
                    Arg::Text(new.tenant_id),
                    Arg::Text(new.kind),
                    Arg::Text(new.subject),
                    Arg::TextOrNull(conversation_id),
                    Arg::Long(new.version),
                    Arg::Double(new.delay.as_secs_f64()),
                    Arg::LongOrNull(kb_no),
                ],
            )
        })
    })?;
    wake::look_at_commit();
    Ok(())
}

/// Makes the requests of a conversation again that have failed at least once. Must run as the owner.
pub fn renew(tenant_id: &str, conversation_id: &str) -> Result<()> {
    let renewed = setting::with(BY_INDEX_UNPLANNED, || {
        spi::execute(
            "UPDATE kb.chat_requests SET due_at = now(), attempts = 0, error = NULL, failed_at = NULL, failed_version = NULL
             WHERE tenant_id = $1 AND conversation_id = $2 AND error IS NOT NULL",
            &[Arg::Text(tenant_id), Arg::Text(conversation_id)],
        )
    })?;
    if renewed > 0 {
        wake::look_at_commit();
    }
    Ok(())
}

from_row! {
    /// Why a request was given up.
    pub struct Failure {
        pub failed_version: i64,
        pub error: String,
    }
}

/// Why the request for a subject was given up, if it was. As the caller.
pub fn failure(tenant_id: &str, kind: &str, subject: &str) -> Result<Option<Failure>> {
    setting::with(BY_INDEX_UNPLANNED, || {
        spi::read_one(
            "SELECT r.failed_version, coalesce(r.error, '') AS error FROM kb.chat_requests r
             WHERE r.subject = $3 AND r.kind = $2 AND r.tenant_id = $1 AND r.failed_at IS NOT NULL",
            &[Arg::Text(tenant_id), Arg::Text(kind), Arg::Text(subject)],
            Failure::from_row,
        )
    })
}

/// Whether a request waits, due or not.
pub fn any() -> Result<bool> {
    setting::with(IN_ORDER, || {
        let sql = "SELECT EXISTS (SELECT FROM kb.chat_requests r WHERE r.failed_at IS NULL)";
        Ok(spi::write_one(sql, &[], Row::only)?.unwrap_or(false))
    })
}

/// Whether a request is due.
pub fn any_due() -> Result<bool> {
    setting::with(IN_ORDER, || {
        let sql =
            "SELECT EXISTS (SELECT FROM kb.chat_requests r WHERE r.failed_at IS NULL AND r.due_at <= now()
                                  ORDER BY r.due_at LIMIT 1)";
        Ok(spi::write_one(sql, &[], Row::only)?.unwrap_or(false))
    })
}

/// Up to so many tenants after this one, in order, for which requests wait, and at most `each` due requests
/// of each. A tenant without a due request has None.
pub fn due(after: Option<&str>, tenants: usize, each: usize) -> Result<Vec<(String, Option<ChatRequest>)>> {
    // No text is less than ''.
    let is_after = if after.is_some() { ">" } else { ">=" };
    setting::with(IN_ORDER, || {
        spi::write(
            &format!("WITH RECURSIVE t (tenant_id, n) AS (
                 (SELECT r.tenant_id, 1 FROM kb.chat_requests r WHERE r.failed_at IS NULL AND r.tenant_id {is_after} $1
                  ORDER BY r.tenant_id LIMIT 1)
                 UNION ALL
                 SELECT (SELECT r.tenant_id FROM kb.chat_requests r WHERE r.failed_at IS NULL AND r.tenant_id > t.tenant_id
                         ORDER BY r.tenant_id LIMIT 1), t.n + 1
                 FROM t WHERE t.tenant_id IS NOT NULL AND t.n < $2)
             SELECT t.tenant_id AS of_tenant, r.request_no, r.tenant_id, r.kind, r.subject, r.conversation_id, r.kb_no,
                 r.attempts
             FROM t LEFT JOIN LATERAL (
                 SELECT r.request_no, r.tenant_id, r.kind, r.subject, r.conversation_id, r.kb_no, r.attempts
                 FROM kb.chat_requests r
                 WHERE r.failed_at IS NULL AND r.tenant_id = t.tenant_id AND r.due_at <= now()
                 ORDER BY r.due_at LIMIT $3) r ON true
             WHERE t.tenant_id IS NOT NULL"),
            &[Arg::Text(after.unwrap_or("")), Arg::Long(tenants as i64), Arg::Long(each as i64)],
            |row| {
                let request = row.get::<Option<i64>>("request_no")?.map(|_| ChatRequest::from_row(row));
                Ok((row.get("of_tenant")?, request.transpose()?))
            },
        )
    })
}

/// Locks a request until the transaction ends. Returns false if it no longer waits, or if another
/// transaction has locked it.
pub fn lock(request_no: i64) -> Result<bool> {
    let found = setting::with(BY_INDEX_UNPLANNED, || {
        spi::write_one(
            "SELECT r.request_no FROM kb.chat_requests r
             WHERE r.request_no = $1 AND r.failed_at IS NULL AND r.due_at <= pg_catalog.clock_timestamp()
             FOR UPDATE SKIP LOCKED",
            &[Arg::Long(request_no)],
            Row::only::<i64>,
        )
    })?;
    Ok(found.is_some())
}

/// Deletes a request for which nothing is left to ask.
pub fn delete(request_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.chat_requests WHERE request_no = $1", &[Arg::Long(request_no)])?;
    Ok(())
}

/// Puts a request off, after an error or without one. If another transaction has locked it, it stays due.
pub fn put_off(request_no: i64, delay: Duration, attempts: i32, error: Option<&str>) -> Result<()> {
    spi::execute(
        "UPDATE kb.chat_requests SET due_at = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $2),
             attempts = $3, error = coalesce($4, error)
         WHERE request_no = ANY (ARRAY(
             SELECT r.request_no FROM kb.chat_requests r WHERE r.request_no = $1 FOR UPDATE SKIP LOCKED))",
        &[Arg::Long(request_no), Arg::Double(delay.as_secs_f64()), Arg::Int(attempts), Arg::TextOrNull(error)],
    )?;
    Ok(())
}

/// Gives a request up.
pub fn fail(request_no: i64, version: i64, attempts: i32, error: &str) -> Result<()> {
    spi::execute(
        "UPDATE kb.chat_requests SET failed_at = now(), failed_version = $2, attempts = $3, error = $4
         WHERE request_no = ANY (ARRAY(
             SELECT r.request_no FROM kb.chat_requests r WHERE r.request_no = $1 FOR UPDATE SKIP LOCKED))",
        &[Arg::Long(request_no), Arg::Long(version), Arg::Int(attempts), Arg::Text(error)],
    )?;
    Ok(())
}
