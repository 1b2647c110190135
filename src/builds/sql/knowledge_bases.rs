//! kb.knowledge_bases.

use crate::pg::row::{FromColumn, from_row};
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_LOOKUPS;
use crate::tenants::{bindings, shares};
use kb_text::chunk_settings::Chunking;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::tenancy::SHARED;
use kb_types::{Json, Preprocess, Retrieval};
use pgrx::JsonB;
use serde_json::Value;

from_row! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct KnowledgeBase {
        pub kb_no: i64,
        pub tenant_id: String,
        pub id: String,
        pub description: Option<String>,
        pub embedder: String,
        pub vector_db: Option<String>,
        pub chunking: Value,
        pub preprocess: Preprocess,
        pub retrieval: Retrieval,
        pub metadata: Json,
    }
}

impl KnowledgeBase {
    pub fn chunking(&self) -> Result<Chunking> {
        Chunking::stored(&self.chunking)
            .map_err(|problems| Error::Internal(format!("stored chunking: {}", problems.join("; "))))
    }
}

impl FromColumn for Preprocess {
    type Stored = JsonB;

    fn from_stored(stored: JsonB) -> Result<Self, String> {
        Preprocess::parse(&stored.0).map_err(|problems| problems.join("; "))
    }
}

impl FromColumn for Retrieval {
    type Stored = JsonB;

    fn from_stored(stored: JsonB) -> Result<Self, String> {
        Retrieval::parse(&stored.0).map_err(|problems| problems.join("; "))
    }
}

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
}

/// The knowledge base that the caller means.
pub fn get(id: &str) -> Result<KnowledgeBase> {
    let meant = Meant::of_session()?;
    spi::write_one(
        &format!("SELECT {} FROM kb.knowledge_bases k {}", KnowledgeBase::columns("k"), meant.condition()),
        &meant.arguments(id),
        KnowledgeBase::from_row,
    )?
    .ok_or_else(|| Error::NotFound { what: ObjectKind::KnowledgeBase, id: id.into() })
}

/// Which of these ids are those of knowledge bases that the caller can read, under the snapshot of the
/// calling statement.
pub fn readable(ids: &[String]) -> Result<Vec<String>> {
    let meant = Meant::of_session()?;
    setting::with(BY_LOOKUPS, || {
        spi::read(
            "SELECT u.id FROM pg_catalog.unnest($1::text[]) AS u (id)
             WHERE EXISTS (SELECT FROM kb.knowledge_bases k WHERE k.id = u.id AND k.tenant_id = ANY ($2))",
            &[Arg::Texts(ids), Arg::Texts(&meant.readable)],
            Row::only,
        )
    })
}

/// Does what [`get`] does, but returns only a knowledge base that the caller may change.
pub fn get_own(id: &str) -> Result<KnowledgeBase> {
    let kb = get(id)?;
    if kb.tenant_id == bindings::current()? {
        return Ok(kb);
    }
    Err(Error::Permission {
        problem: format!("knowledge base \"{id}\" belongs to tenant \"{}\"", kb.tenant_id),
    })
}

/// Locks a knowledge base until the transaction ends, and waits for another transaction that has it locked.
/// Returns the knowledge base as it is once it is locked, or an error if it was dropped meanwhile. Must run
/// as the owner.
pub fn lock(kb: &KnowledgeBase) -> Result<KnowledgeBase> {
    lock_for(kb, "NO KEY UPDATE")
}

/// Does what [`lock`] does, and also keeps out transactions that put new documents into the knowledge base:
/// waits for those that already have, and makes others wait.
pub fn lock_with_documents(kb: &KnowledgeBase) -> Result<KnowledgeBase> {
    // The foreign key of a new document locks the knowledge base FOR KEY SHARE.
    lock_for(kb, "UPDATE")
}

fn lock_for(kb: &KnowledgeBase, strength: &str) -> Result<KnowledgeBase> {
    let sql = format!(
        "SELECT {} FROM kb.knowledge_bases k WHERE kb_no = $1 FOR {strength}",
        KnowledgeBase::columns("k")
    );
    spi::write_one(&sql, &[Arg::Long(kb.kb_no)], KnowledgeBase::from_row)?
        .ok_or_else(|| Error::NotFound { what: ObjectKind::KnowledgeBase, id: kb.id.clone() })
}

/// Returns the number of the new knowledge base, or None if the id is taken. Must run as the owner.
pub fn insert(kb: &KnowledgeBase) -> Result<Option<i64>> {
    spi::write_one(
        "INSERT INTO kb.knowledge_bases (tenant_id, id, description, embedder, vector_db, chunking, preprocess,
             retrieval, metadata, etag)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (tenant_id, id) DO NOTHING RETURNING kb_no",
        &[
            Arg::Text(&kb.tenant_id),
            Arg::Text(&kb.id),
            Arg::TextOrNull(kb.description.as_deref()),
            Arg::Text(&kb.embedder),
            Arg::TextOrNull(kb.vector_db.as_deref()),
            Arg::Json(&kb.chunking),
            Arg::Json(&kb.preprocess.to_json()),
            Arg::Json(&kb.retrieval.to_json()),
            Arg::JsonText(Some(&kb.metadata)),
            Arg::Text(&etag(kb)),
        ],
        Row::only,
    )
}

/// Must run as the owner.
pub fn update(kb: &KnowledgeBase) -> Result<()> {
    spi::execute(
        "UPDATE kb.knowledge_bases SET description = $2, embedder = $3, chunking = $4, preprocess = $5,
             retrieval = $6, metadata = $7, etag = $8, updated_at = now() WHERE kb_no = $1",
        &[
            Arg::Long(kb.kb_no),
            Arg::TextOrNull(kb.description.as_deref()),
            Arg::Text(&kb.embedder),
            Arg::Json(&kb.chunking),
            Arg::Json(&kb.preprocess.to_json()),
            Arg::Json(&kb.retrieval.to_json()),
            Arg::JsonText(Some(&kb.metadata)),
            Arg::Text(&etag(kb)),
        ],
    )?;
    Ok(())
}

/// Deletes a knowledge base with its documents, chunks, vectors, jobs, runs and builds, by cascade. Must run
/// as the owner.
pub fn delete(kb_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.knowledge_bases WHERE kb_no = $1", &[Arg::Long(kb_no)])?;
    Ok(())
}

/// The ETag, which changes with every change of the settings.
fn etag(kb: &KnowledgeBase) -> String {
    let text = format!(
        "{:?}\n{}\n{:?}\n{}\n{}\n{}\n{}",
        kb.description,
        kb.embedder,
        kb.vector_db,
        kb.chunking,
        kb.preprocess.to_json(),
        kb.retrieval.to_json(),
        kb.metadata
    );
    blake3::hash(text.as_bytes()).to_hex()[..16].to_string()
}
