//! Which knowledge base a caller means by an id.

use super::{bindings, shares};
use crate::pg::spi::Arg;
use kb_types::error::Result;
use kb_types::tenancy::SHARED;

/// The knowledge base that a caller means by an id: the one of its own tenant, else the one of tenant shared,
/// else the one that was first shared with its tenant.
pub struct Meant {
    tenant: String,
    readable: Vec<String>,
}

impl Meant {
    pub fn of_session() -> Result<Meant> {
        let tenant = bindings::current()?;
        let mut readable = vec![tenant.clone(), SHARED.into()];
        readable.extend(shares::owners(&tenant));
        Ok(Meant { tenant, readable })
    }

    /// The condition on knowledge bases k. It is a sub-select, so that the rest of a statement is found by
    /// the number of the knowledge base, whatever the statistics say.
    pub fn condition(&self) -> &'static str {
        // In nearly all databases nothing is shared.
        if self.readable.len() == 2 {
            return "WHERE k.kb_no = (
                SELECT m.kb_no FROM kb.knowledge_bases m WHERE m.id = $1 AND m.tenant_id = ANY ($2)
                ORDER BY m.tenant_id = $3 DESC LIMIT 1)";
        }
        "WHERE k.kb_no = (
            SELECT m.kb_no FROM kb.knowledge_bases m
            WHERE m.id = $1 AND m.tenant_id = ANY ($2) AND (m.tenant_id IN ($3, 'shared') OR EXISTS (
                SELECT FROM kb.shares s WHERE s.tenant_id = $3 AND s.kb_no = m.kb_no))
            ORDER BY m.tenant_id = $3 DESC, m.tenant_id = 'shared' DESC,
                (SELECT s.created_at FROM kb.shares s WHERE s.tenant_id = $3 AND s.kb_no = m.kb_no), m.kb_no
            LIMIT 1)"
    }

    pub fn arguments<'a>(&'a self, id: &'a str) -> [Arg<'a>; 3] {
        [Arg::Text(id), Arg::Texts(&self.readable), Arg::Text(&self.tenant)]
    }

    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The tenants of whose knowledge bases the caller may read any.
    pub fn readable(&self) -> &[String] {
        &self.readable
    }
}
