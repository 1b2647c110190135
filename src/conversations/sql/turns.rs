//! kb.turns.
//!
//! The turns before a turn are those before it in its branch, then those of the branch from which that one
//! branches off, up to the turn where it does, and so on.

use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::txn;
use crate::sql::{BY_INDEX_UNPLANNED, BY_LOOKUPS, IN_ORDER, IS_UNCOMMITTED};
use kb_types::Json;
use kb_types::conversation::TurnRole;
use kb_types::error::{Error, Result};
use kb_types::named::Named;

/// The branches that lead to a turn ($1: its branch, $2: its depth), the newest first, each with the depth up
/// to which it does. The first branch is found even if it has no turn up to there.
pub(super) const PATH: &str = "WITH RECURSIVE path (branch_no, depth) AS (
     SELECT $1::bigint, $2::bigint
     UNION ALL
     SELECT p.branch_no, p.depth FROM path
     CROSS JOIN LATERAL (SELECT f.tenant_id, f.parent_id FROM kb.turns f WHERE f.branch_no = path.branch_no
                         ORDER BY f.depth LIMIT 1) f
     CROSS JOIN LATERAL (SELECT p.branch_no, p.depth FROM kb.turns p
                         WHERE p.tenant_id = f.tenant_id AND p.id = f.parent_id LIMIT 1) p)";

from_row! {
    /// The turn that a new one follows.
    pub struct Parent {
        pub branch_no: i64,
        pub depth: i64,
        pub total_tokens: i64,
        /// Whether another turn follows it in its branch.
        pub has_next: bool,
    }
}

/// The turn of a conversation that was appended last, whatever snapshot the transaction has. The conversation
/// is locked. Must run as the owner.
pub fn last(tenant_id: &str, conversation_id: &str) -> Result<Option<String>> {
    txn::with_latest_snapshot(|| {
        setting::with(IN_ORDER, || {
            spi::read_one(
                "SELECT t.id FROM kb.turns t WHERE t.tenant_id = $1 AND t.conversation_id = $2
                 ORDER BY t.turn_no DESC LIMIT 1",
                &[Arg::Text(tenant_id), Arg::Text(conversation_id)],
                Row::only,
            )
        })
    })
}

/// A turn of a conversation, whatever snapshot the transaction has. It is looked up by its id alone, because
/// a plan without statistics could go through all turns of the conversation. Must run as the owner.
pub fn parent(tenant_id: &str, conversation_id: &str, id: &str) -> Result<Option<Parent>> {
    txn::with_latest_snapshot(|| {
        setting::with(BY_INDEX_UNPLANNED, || {
            spi::read_one(
                "SELECT t.branch_no, t.depth, t.total_tokens,
                        (SELECT n.depth FROM kb.turns n
                         WHERE n.branch_no = t.branch_no AND n.depth = t.depth + 1 LIMIT 1) IS NOT NULL AS has_next
                 FROM (SELECT t.branch_no, t.depth, t.total_tokens, t.conversation_id FROM kb.turns t
                       WHERE t.tenant_id = $1 AND t.id = $2 LIMIT 1) t
                 WHERE t.conversation_id = $3",
                &[Arg::Text(tenant_id), Arg::Text(id), Arg::Text(conversation_id)],
                Parent::from_row,
            )
        })
    })
}

from_row! {
    /// What is known about a tool call at a turn.
    pub struct ToolCall {
        /// The turn, or the one whose results it and the turns before it are, has the call.
        pub is_made: bool,
        /// Its result is there.
        pub is_answered: bool,
    }
}

/// Whatever snapshot the transaction has. Must run as the owner.
pub fn tool_call(tenant_id: &str, turn_id: &str, tool_call_id: &str) -> Result<ToolCall> {
    let read = || {
        spi::read_one(
            "WITH RECURSIVE g (parent_id, role, tool_calls, tool_call_id) AS (
                 SELECT t.parent_id, t.role, t.tool_calls, t.tool_call_id FROM kb.turns t
                 WHERE t.tenant_id = $1 AND t.id = $2
                 UNION ALL
                 SELECT p.parent_id, p.role, p.tool_calls, p.tool_call_id FROM g
                 CROSS JOIN LATERAL (SELECT p.parent_id, p.role, p.tool_calls, p.tool_call_id FROM kb.turns p
                                     WHERE p.tenant_id = $1 AND p.id = g.parent_id LIMIT 1) p
                 WHERE g.role = 'tool')
             SELECT coalesce(bool_or(g.tool_calls @>
                        pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('id', $3))), false) AS is_made,
                    coalesce(bool_or(g.tool_call_id = $3), false) AS is_answered FROM g",
            &[Arg::Text(tenant_id), Arg::Text(turn_id), Arg::Text(tool_call_id)],
            ToolCall::from_row,
        )
    };
    let found = txn::with_latest_snapshot(|| setting::with(BY_LOOKUPS, read))?;
    found.ok_or_else(|| Error::Internal("no tool call".into()))
}

/// A turn to be stored.
pub struct StoredTurn<'a> {
    pub tenant_id: &'a str,
    pub id: &'a str,
    pub conversation_id: &'a str,
    pub parent_id: Option<&'a str>,
    /// None: the turn begins a branch.
    pub branch_no: Option<i64>,
    pub depth: i64,
    pub role: TurnRole,
    pub content: Option<&'a Json>,
    pub tool_calls: Option<&'a Json>,
    pub tool_call_id: Option<&'a str>,
    pub token_count: i32,
    pub total_tokens: i64,
    pub usage: Option<&'a Json>,
    pub metadata: Option<&'a Json>,
}

/// Adds a turn. Its conversation is locked, so that it becomes the last one. Returns its branch. Must run as
/// the owner.
pub fn insert(turn: &StoredTurn) -> Result<i64> {
    let branch_no = setting::with(BY_INDEX_UNPLANNED, || {
        spi::write_one(
            "INSERT INTO kb.turns AS t (tenant_id, id, conversation_id, parent_id, branch_no, depth, role, content, tool_calls,
                 tool_call_id, token_count, usage, metadata, total_tokens)
             VALUES ($1, $2, $3, $4, coalesce($5, pg_catalog.nextval('kb.branch_no_seq')), $6, $7, $8, $9, $10, $11, $12,
                 coalesce($13, '{}'), $14)
             RETURNING t.branch_no",
            &[
                Arg::Text(turn.tenant_id),
                Arg::Text(turn.id),
                Arg::Text(turn.conversation_id),
                Arg::TextOrNull(turn.parent_id),
                Arg::LongOrNull(turn.branch_no),
                Arg::Long(turn.depth),
                Arg::Text(turn.role.name()),
                Arg::JsonText(turn.content),
                Arg::JsonText(turn.tool_calls),
                Arg::TextOrNull(turn.tool_call_id),
                Arg::Int(turn.token_count),
                Arg::JsonText(turn.usage),
                Arg::JsonText(turn.metadata),
                Arg::Long(turn.total_tokens),
            ],
            Row::only,
        )
    })?;
    branch_no.ok_or_else(|| Error::Internal("no turn was stored".into()))
}

from_row! {
    /// A turn of a window.
    pub struct WindowTurn {
        pub id: String,
        pub role: String,
        pub content: Option<Json>,
        pub tool_calls: Option<Json>,
        pub tool_call_id: Option<String>,
        pub token_count: i32,
    }
}

/// A part of the turns before a place, the newest first.
#[derive(Default)]
pub struct Part {
    pub turns: Vec<WindowTurn>,
    /// The place before the last of them.
    pub rest: Option<(i64, i64)>,
    /// Whether there was a turn that was not wanted.
    pub is_cut: bool,
    /// Whether nothing is before them.
    pub is_last: bool,
}

/// The turns up to a place on a branch, the newest first, of those that the caller may read: at most `limit`,
/// and none from the first one on that is not wanted. Contents of others are not read from their storage.
/// Works on a standby.
pub fn backwards(
    (branch_no, depth): (i64, i64),
    limit: i64,
    mut is_wanted: impl FnMut(TurnRole, i32) -> bool,
) -> Result<Part> {
    let sql = format!(
        "{PATH} SELECT t.id, t.role, t.content, t.tool_calls, t.tool_call_id, t.token_count, t.branch_no, t.depth FROM path
         CROSS JOIN LATERAL (
             SELECT t.id, t.role, t.content, t.tool_calls, t.tool_call_id, t.token_count, t.branch_no, t.depth FROM kb.turns t
             WHERE t.branch_no = path.branch_no AND t.depth <= path.depth ORDER BY t.depth DESC) t
         LIMIT $3"
    );
    let mut part = Part::default();
    let found = setting::with(IN_ORDER, || {
        spi::read(&sql, &[Arg::Long(branch_no), Arg::Long(depth), Arg::Long(limit)], |row| {
            if part.is_cut {
                return Ok(());
            }
            let role = TurnRole::one_of(&row.get::<String>("role")?).map_err(Error::Internal)?;
            if is_wanted(role, row.get("token_count")?) {
                part.turns.push(WindowTurn::from_row(row)?);
                part.rest = Some((row.get("branch_no")?, row.get::<i64>("depth")? - 1));
            } else {
                part.is_cut = true;
            }
            Ok(())
        })
    })?;
    part.is_last = (found.len() as i64) < limit;
    Ok(part)
}

/// The roles and tokens of at most `limit` turns up to a place on a branch, the newest first.
pub fn outline((branch_no, depth): (i64, i64), limit: i64) -> Result<Vec<(TurnRole, i32)>> {
    let sql = format!(
        "{PATH} SELECT t.role, t.token_count FROM path
         CROSS JOIN LATERAL (
             SELECT t.role, t.token_count FROM kb.turns t
             WHERE t.branch_no = path.branch_no AND t.depth <= path.depth ORDER BY t.depth DESC) t
         LIMIT $3"
    );
    setting::with(IN_ORDER, || {
        spi::read(&sql, &[Arg::Long(branch_no), Arg::Long(depth), Arg::Long(limit)], |row| {
            let role = TurnRole::one_of(&row.get::<String>("role")?).map_err(Error::Internal)?;
            Ok((role, row.get("token_count")?))
        })
    })
}

/// The branches that lead to a place on a branch, the oldest first, each with the depth up to which it does:
/// those with turns deeper than `above`.
pub fn segments((branch_no, depth): (i64, i64), above: i64) -> Result<Vec<(i64, i64)>> {
    let read = || {
        spi::read(
            "WITH RECURSIVE path (branch_no, depth) AS (
                 SELECT $1::bigint, $2::bigint
                 UNION ALL
                 SELECT p.branch_no, p.depth FROM path
                 CROSS JOIN LATERAL (SELECT f.tenant_id, f.parent_id FROM kb.turns f WHERE f.branch_no = path.branch_no
                                     ORDER BY f.depth LIMIT 1) f
                 CROSS JOIN LATERAL (SELECT p.branch_no, p.depth FROM kb.turns p
                                     WHERE p.tenant_id = f.tenant_id AND p.id = f.parent_id LIMIT 1) p
                 WHERE p.depth > $3)
             SELECT path.branch_no, path.depth FROM path",
            &[Arg::Long(branch_no), Arg::Long(depth), Arg::Long(above)],
            |row| Ok((row.get("branch_no")?, row.get("depth")?)),
        )
    };
    let mut found: Vec<(i64, i64)> = setting::with(IN_ORDER, read)?;
    found.reverse();
    Ok(found)
}

from_row! {
    /// A turn as a chat model reads it.
    pub struct ReadTurn {
        pub id: String,
        pub depth: i64,
        pub role: String,
        pub content: Option<Json>,
        pub tool_calls: Option<Json>,
        pub tool_call_id: Option<String>,
    }
}

/// The next turns of a branch after a depth, and up to another one.
pub fn next(branch_no: i64, after: i64, up_to: i64, limit: i64) -> Result<Vec<ReadTurn>> {
    setting::with(IN_ORDER, || {
        spi::read(
            "SELECT t.id, t.depth, t.role, t.content, t.tool_calls, t.tool_call_id FROM kb.turns t
             WHERE t.branch_no = $1 AND t.depth > $2 AND t.depth <= $3 ORDER BY t.depth LIMIT $4",
            &[Arg::Long(branch_no), Arg::Long(after), Arg::Long(up_to), Arg::Long(limit)],
            ReadTurn::from_row,
        )
    })
}

/// Whether this transaction has written the turn at a place.
pub fn is_uncommitted((branch_no, depth): (i64, i64)) -> Result<bool> {
    let sql = format!(
        "SELECT {IS_UNCOMMITTED} AS is_uncommitted FROM kb.turns WHERE branch_no = $1 AND depth = $2"
    );
    let found = spi::read_one(&sql, &[Arg::Long(branch_no), Arg::Long(depth)], Row::only::<Option<bool>>)?;
    Ok(found.flatten() == Some(true))
}

/// The seconds since the turn at a place was appended.
pub fn age((branch_no, depth): (i64, i64)) -> Result<f64> {
    let found = setting::with(BY_INDEX_UNPLANNED, || {
        spi::read_one(
            "SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - t.created_at) AS age FROM kb.turns t
             WHERE t.branch_no = $1 AND t.depth = $2",
            &[Arg::Long(branch_no), Arg::Long(depth)],
            Row::only,
        )
    })?;
    Ok(found.unwrap_or(0.0))
}

from_row! {
    /// What a turn said, and when, in microseconds since 1970.
    pub struct Said {
        pub content: Option<Json>,
        pub said_at: i64,
    }
}

/// A turn by its id. For the worker.
pub fn said(tenant_id: &str, id: &str) -> Result<Option<Said>> {
    setting::with(BY_INDEX_UNPLANNED, || {
        spi::write_one(
            "SELECT t.content, (pg_catalog.date_part('epoch', t.created_at) * 1000000)::bigint AS said_at FROM kb.turns t
             WHERE t.tenant_id = $1 AND t.id = $2",
            &[Arg::Text(tenant_id), Arg::Text(id)],
            Said::from_row,
        )
    })
}
