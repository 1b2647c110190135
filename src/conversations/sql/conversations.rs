//! kb.conversations.

use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::{BY_INDEX_UNPLANNED, IN_ORDER};
use kb_types::Json;
use kb_types::conversation::ConversationSettings;
use kb_types::error::{Error, ObjectKind, Result};
use serde_json::Value;

fn not_found(id: &str) -> Error {
    Error::NotFound { what: ObjectKind::Conversation, id: id.into() }
}

/// The properties of a conversation that are to be stored. None leaves one unchanged.
#[derive(Default)]
pub struct Properties<'a> {
    pub title: Option<&'a str>,
    pub settings: Option<&'a Value>,
    pub metadata: Option<&'a Json>,
}

/// Creates a conversation. Returns false if one of this id exists. Must run as the owner.
pub fn insert(tenant_id: &str, id: &str, settings: &Value, properties: &Properties) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.conversations (tenant_id, id, title, settings, metadata)
         VALUES ($1, $2, $3, $4, coalesce($5, '{}')) ON CONFLICT (tenant_id, id) DO NOTHING",
        &[
            Arg::Text(tenant_id),
            Arg::Text(id),
            Arg::TextOrNull(properties.title),
            Arg::Json(settings),
            Arg::JsonText(properties.metadata),
        ],
    )?;
    Ok(inserted > 0)
}

/// Changes a conversation. Must run as the owner.
pub fn update(tenant_id: &str, id: &str, properties: &Properties) -> Result<()> {
    let updated = spi::execute(
        "UPDATE kb.conversations SET title = coalesce($3, title), settings = coalesce($4::text::jsonb, settings),
                metadata = coalesce($5, metadata), updated_at = now()
         WHERE tenant_id = $1 AND id = $2",
        &[
            Arg::Text(tenant_id),
            Arg::Text(id),
            Arg::TextOrNull(properties.title),
            Arg::TextOrNull(properties.settings.map(Value::to_string).as_deref()),
            Arg::JsonText(properties.metadata),
        ],
    )?;
    if updated > 0 { Ok(()) } else { Err(not_found(id)) }
}

/// Stored settings.
pub fn parsed(settings: &Value) -> Result<ConversationSettings> {
    ConversationSettings::parse(settings)
        .map_err(|problems| Error::Internal(format!("stored settings: {}", problems.join("; "))))
}

/// Locks a conversation, so that no other transaction appends to it or drops it. Returns its settings. Must
/// run as the owner.
pub fn lock(tenant_id: &str, id: &str) -> Result<ConversationSettings> {
    let found = setting::with(BY_INDEX_UNPLANNED, || {
        spi::write_one(
            "SELECT c.settings FROM kb.conversations c
             WHERE c.tenant_id = $1 AND c.id = $2 FOR NO KEY UPDATE",
            &[Arg::Text(tenant_id), Arg::Text(id)],
            Row::only,
        )
    })?;
    parsed(&found.ok_or_else(|| not_found(id))?)
}

/// Drops a conversation with its turns. Must run as the owner.
pub fn delete(tenant_id: &str, id: &str) -> Result<()> {
    let args = [Arg::Text(tenant_id), Arg::Text(id)];
    // The statements of the foreign keys are planned under these settings, too.
    setting::with(BY_INDEX_UNPLANNED, || {
        let locked = spi::execute(
            "SELECT FROM kb.conversations c WHERE c.tenant_id = $1 AND c.id = $2 FOR UPDATE",
            &args,
        )?;
        if locked == 0 {
            return Err(not_found(id));
        }
        spi::execute("DELETE FROM kb.turns t WHERE t.tenant_id = $1 AND t.conversation_id = $2", &args)?;
        spi::execute("DELETE FROM kb.conversations c WHERE c.tenant_id = $1 AND c.id = $2", &args)?;
        Ok(())
    })
}

from_row! {
    /// Where a window ends.
    pub struct WindowEnd {
        pub conversation_id: String,
        pub settings: Value,
        pub branch_no: Option<i64>,
        pub depth: Option<i64>,
        /// The tokens of all turns up to there.
        pub total_tokens: Option<i64>,
        /// Whether no turn follows in the branch.
        pub is_last: bool,
    }
}

const HAS_NO_NEXT: &str = "(SELECT n.depth FROM kb.turns n
    WHERE n.branch_no = t.branch_no AND n.depth = t.depth + 1 LIMIT 1) IS NULL AS is_last";

/// The last turn of a conversation that the caller may read, if it has turns. Works on a standby.
pub fn end(tenant_id: &str, id: &str) -> Result<WindowEnd> {
    let found = setting::with(IN_ORDER, || {
        spi::read_one(
            "SELECT c.id AS conversation_id, c.settings, t.branch_no, t.depth, t.total_tokens, true AS is_last
             FROM kb.conversations c
             LEFT JOIN LATERAL (SELECT t.branch_no, t.depth, t.total_tokens FROM kb.turns t
                                WHERE t.tenant_id = $1 AND t.conversation_id = $2
                                ORDER BY t.turn_no DESC LIMIT 1) t ON true
             WHERE c.tenant_id = $1 AND c.id = $2",
            &[Arg::Text(tenant_id), Arg::Text(id)],
            WindowEnd::from_row,
        )
    })?;
    found.ok_or_else(|| not_found(id))
}

/// The same, where a turn is the last one. Works on a standby.
pub fn end_at(tenant_id: &str, turn_id: &str) -> Result<WindowEnd> {
    let sql = format!(
        "SELECT t.conversation_id, c.settings, t.branch_no, t.depth, t.total_tokens, {HAS_NO_NEXT} FROM kb.turns t
         CROSS JOIN LATERAL (SELECT c.settings FROM kb.conversations c
                             WHERE c.tenant_id = t.tenant_id AND c.id = t.conversation_id LIMIT 1) c
         WHERE t.tenant_id = $1 AND t.id = $2"
    );
    let args = [Arg::Text(tenant_id), Arg::Text(turn_id)];
    let found = setting::with(BY_INDEX_UNPLANNED, || spi::read_one(&sql, &args, WindowEnd::from_row))?;
    found.ok_or_else(|| Error::NotFound { what: ObjectKind::Turn, id: turn_id.into() })
}

/// The last turn of a branch of a conversation up to a depth. None if they do not exist. For the worker.
pub fn end_of_branch(
    tenant_id: &str,
    conversation_id: &str,
    branch_no: i64,
    depth: i64,
) -> Result<Option<WindowEnd>> {
    setting::with(IN_ORDER, || {
        spi::read_one(
            "SELECT t.conversation_id, c.settings, t.branch_no, t.depth, t.total_tokens, true AS is_last
             FROM (SELECT t.tenant_id, t.conversation_id, t.branch_no, t.depth, t.total_tokens FROM kb.turns t
                   WHERE t.branch_no = $3 AND t.depth <= $4 ORDER BY t.depth DESC LIMIT 1) t
             CROSS JOIN LATERAL (SELECT c.settings FROM kb.conversations c
                                 WHERE c.tenant_id = t.tenant_id AND c.id = t.conversation_id LIMIT 1) c
             WHERE t.tenant_id = $1 AND t.conversation_id = $2",
            &[Arg::Text(tenant_id), Arg::Text(conversation_id), Arg::Long(branch_no), Arg::Long(depth)],
            WindowEnd::from_row,
        )
    })
}
