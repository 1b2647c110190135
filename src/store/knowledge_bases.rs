//! kb.knowledge_bases.

use crate::error::{Error, Object, Result};
use crate::model::{Chunking, Json, Preprocess, Retrieval, id};
use crate::pg::json::Jsonb;
use crate::pg::spi::{self, Arg, Row};
use serde_json::Value;

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

impl KnowledgeBase {
    pub fn chunking(&self) -> Result<Chunking> {
        Chunking::stored(&self.chunking)
            .map_err(|problems| Error::Internal(format!("stored chunking: {}", problems.join("; "))))
    }
}

/// The columns that [`knowledge_base`] reads.
const COLUMNS: &str =
    "kb_no, tenant_id, id, description, embedder, vector_db, chunking, preprocess, retrieval, metadata";

fn knowledge_base(row: &Row) -> Result<KnowledgeBase> {
    let internal =
        |p: Vec<String>| Error::Internal(format!("stored settings of a knowledge base: {}", p.join("; ")));
    Ok(KnowledgeBase {
        kb_no: row.get(0)?,
        tenant_id: row.get(1)?,
        id: row.get(2)?,
        description: row.opt(3)?,
        embedder: row.get(4)?,
        vector_db: row.opt(5)?,
        chunking: row.json(6)?,
        preprocess: Preprocess::parse(&row.json(7)?).map_err(internal)?,
        retrieval: Retrieval::parse(&row.json(8)?).map_err(internal)?,
        metadata: row.get::<Jsonb>(9)?.0,
    })
}

/// The knowledge base that the caller means: its own tenant's, else one shared with it.
pub fn get(id: &str) -> Result<KnowledgeBase> {
    spi::write_one(
        &format!(
            "SELECT {COLUMNS} FROM kb.knowledge_bases
             WHERE id = $1 AND tenant_id = ANY ((SELECT kb.visible_tenants())::text[])
             ORDER BY tenant_id = (SELECT kb.current_tenant()) DESC LIMIT 1"
        ),
        &[Arg::Text(id)],
        knowledge_base,
    )?
    .ok_or_else(|| Error::NotFound { what: Object::KnowledgeBase, id: id.into() })
}

/// As [`get`], but only one that the caller may change.
pub fn get_own(id: &str) -> Result<KnowledgeBase> {
    let kb = get(id)?;
    if kb.tenant_id == current_tenant()? {
        return Ok(kb);
    }
    Err(Error::Permission {
        problem: format!("knowledge base \"{id}\" belongs to tenant \"{}\"", kb.tenant_id),
    })
}

/// The tenant that the session acts for. An error if the setting is no name of a tenant.
pub fn current_tenant() -> Result<String> {
    let tenant = spi::read_one("SELECT kb.current_tenant()", &[], |row| row.get::<String>(0))?
        .ok_or_else(|| Error::Internal("no current tenant".into()))?;
    match id::tenant_problem(&tenant) {
        None => Ok(tenant),
        Some(problem) => Err(Error::Argument { argument: "kb.tenant", problem }),
    }
}

/// The tenants whose rows the session may read.
pub fn visible_tenants() -> Result<Vec<String>> {
    let tenants = spi::read_one("SELECT kb.visible_tenants()", &[], |row| row.get(0))?;
    tenants.ok_or_else(|| Error::Internal("no visible tenants".into()))
}

/// Locks a knowledge base until the transaction ends, and waits for another transaction that has it locked. Returns the
/// knowledge base as it is once it is locked, or an error if it was dropped meanwhile. As the owner.
pub fn lock(kb: &KnowledgeBase) -> Result<KnowledgeBase> {
    lock_for(kb, "NO KEY UPDATE")
}

/// As [`lock`], also against transactions that put new documents into it: waits for those that have, and others wait for
/// this one.
pub fn lock_with_documents(kb: &KnowledgeBase) -> Result<KnowledgeBase> {
    // The foreign key of a new document locks it FOR KEY SHARE.
    lock_for(kb, "UPDATE")
}

fn lock_for(kb: &KnowledgeBase, strength: &str) -> Result<KnowledgeBase> {
    let sql = format!("SELECT {COLUMNS} FROM kb.knowledge_bases WHERE kb_no = $1 FOR {strength}");
    spi::write_one(&sql, &[Arg::Long(kb.kb_no)], knowledge_base)?
        .ok_or_else(|| Error::NotFound { what: Object::KnowledgeBase, id: kb.id.clone() })
}

/// The number of the new knowledge base; None when the id is taken. As the owner.
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
        |row| row.get::<i64>(0),
    )
}

/// As the owner.
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

/// With documents, chunks, vectors, jobs, runs and builds, by cascade. As the owner.
pub fn delete(kb_no: i64) -> Result<()> {
    spi::execute("DELETE FROM kb.knowledge_bases WHERE kb_no = $1", &[Arg::Long(kb_no)])?;
    Ok(())
}

/// Changes with every change of the settings.
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
