//! kb.knowledge_bases.

use crate::pg::row::{FromColumn, from_row};
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::sql::BY_LOOKUPS;
use crate::tenants::{Meant, bindings};
use kb_text::chunk_settings::Chunking;
use kb_types::error::{Error, ObjectKind, Result};
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

from_row! {
    /// A knowledge base that the caller can read.
    pub struct Readable {
        pub id: String,
        /// The name that its passages have in prompts, unless a binding names another.
        pub inject_as: Option<String>,
    }
}

/// Which of these ids are those of knowledge bases that the caller can read, under the snapshot of the
/// calling statement.
pub fn readable(ids: &[String]) -> Result<Vec<Readable>> {
    let meant = Meant::of_session()?;
    setting::with(BY_LOOKUPS, || {
        spi::read(
            "SELECT u.id, k.inject_as
             FROM pg_catalog.unnest($1::text[]) AS u (id)
             CROSS JOIN LATERAL (
                 SELECT m.retrieval ->> 'inject_as' AS inject_as FROM kb.knowledge_bases m
                 WHERE m.id = u.id AND m.tenant_id = ANY ($2)
                 ORDER BY m.tenant_id = $3 DESC, m.tenant_id = 'shared' DESC, m.kb_no LIMIT 1) AS k",
            &[Arg::Texts(ids), Arg::Texts(meant.readable()), Arg::Text(meant.tenant())],
            Readable::from_row,
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
             retrieval, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (tenant_id, id) DO NOTHING RETURNING kb_no",
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
        ],
        Row::only,
    )
}

/// Must run as the owner.
pub fn update(kb: &KnowledgeBase) -> Result<()> {
    spi::execute(
        "UPDATE kb.knowledge_bases SET description = $2, embedder = $3, chunking = $4, preprocess = $5,
             retrieval = $6, metadata = $7, updated_at = now() WHERE kb_no = $1",
        &[
            Arg::Long(kb.kb_no),
            Arg::TextOrNull(kb.description.as_deref()),
            Arg::Text(&kb.embedder),
            Arg::Json(&kb.chunking),
            Arg::Json(&kb.preprocess.to_json()),
            Arg::Json(&kb.retrieval.to_json()),
            Arg::JsonText(Some(&kb.metadata)),
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
