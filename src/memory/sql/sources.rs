//! The conversations and turns in which facts were said.

use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_LOOKUPS;
use kb_types::Json;
use kb_types::error::Result;

from_row! {
    /// A turn, and the conversation to which it belongs.
    pub struct SourceTurn {
        pub id: String,
        pub conversation_id: String,
        pub content: Option<Json>,
    }
}

/// Those of these turns that a tenant has. They, and their conversations, are not dropped before the
/// transaction ends. Must run as the owner.
pub fn turns(tenant_id: &str, ids: &[String]) -> Result<Vec<SourceTurn>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT t.id, t.conversation_id, t.content FROM pg_catalog.unnest($2::text[]) AS u (id)
             CROSS JOIN LATERAL (SELECT t.id, t.conversation_id, t.content FROM kb.turns t
                                 WHERE t.id = u.id AND t.tenant_id = $1 LIMIT 1 FOR KEY SHARE) t",
            &[Arg::Text(tenant_id), Arg::Texts(ids)],
            SourceTurn::from_row,
        )
    })
}

/// Those of these conversations that a tenant has. Must run as the owner.
pub fn conversations(tenant_id: &str, ids: &[String]) -> Result<Vec<String>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT c.id FROM pg_catalog.unnest($2::text[]) AS u (id)
             CROSS JOIN LATERAL (SELECT c.id FROM kb.conversations c
                                 WHERE c.tenant_id = $1 AND c.id = u.id LIMIT 1 FOR KEY SHARE) c",
            &[Arg::Text(tenant_id), Arg::Texts(ids)],
            Row::only,
        )
    })
}
