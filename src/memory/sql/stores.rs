//! kb.memory_stores.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::pg::row::FromRow;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::{BY_INDEX_UNPLANNED, BY_LOOKUPS};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::memory::MemorySettings;
use serde_json::Value;

const SETTINGS: &str = "SELECT s.settings FROM kb.memory_stores s WHERE s.kb_no = $1";

/// Returns an error if the knowledge base is no memory, as this statement knows.
pub fn check(kb: &KnowledgeBase) -> Result<()> {
    let found =
        setting::with(BY_INDEX_UNPLANNED, || spi::write_one(SETTINGS, &[Arg::Long(kb.kb_no)], Row::only))?;
    parse(&kb.id, found).map(|_| ())
}

/// The settings of a memory, for a function that writes nothing. Returns an error if the knowledge base is
/// none.
pub fn settings(kb_no: i64, id: &str) -> Result<MemorySettings> {
    parse(id, setting::with(BY_INDEX_UNPLANNED, || spi::read_one(SETTINGS, &[Arg::Long(kb_no)], Row::only))?)
}

/// A memory of a tenant.
pub struct Store {
    pub kb: KnowledgeBase,
    pub settings: MemorySettings,
}

/// A tenant's memory of this id, if there is one.
pub fn of(tenant_id: &str, id: &str) -> Result<Option<Store>> {
    let sql = format!(
        "SELECT {}, s.settings FROM kb.knowledge_bases k JOIN kb.memory_stores s ON s.kb_no = k.kb_no
         WHERE k.tenant_id = $1 AND k.id = $2",
        KnowledgeBase::columns("k")
    );
    setting::with(BY_LOOKUPS, || {
        spi::read_one(&sql, &[Arg::Text(tenant_id), Arg::Text(id)], |row| {
            let settings = parse(id, Some(row.get("settings")?))?;
            Ok(Store { kb: KnowledgeBase::from_row(row)?, settings })
        })
    })
}

/// Its settings.
pub fn settings_of(tenant_id: &str, id: &str) -> Result<Option<MemorySettings>> {
    let found = setting::with(BY_LOOKUPS, || {
        spi::read_one(
            "SELECT s.settings FROM kb.knowledge_bases k JOIN kb.memory_stores s ON s.kb_no = k.kb_no
             WHERE k.tenant_id = $1 AND k.id = $2",
            &[Arg::Text(tenant_id), Arg::Text(id)],
            Row::only,
        )
    })?;
    found.map(|settings| parse(id, Some(settings))).transpose()
}

fn parse(id: &str, settings: Option<Value>) -> Result<MemorySettings> {
    let settings = settings.ok_or_else(|| Error::NotFound { what: ObjectKind::Memory, id: id.into() })?;
    MemorySettings::parse(&settings)
        .map_err(|problems| Error::Internal(format!("stored settings: {}", problems.join("; "))))
}

/// Must run as the owner.
pub fn insert(kb: &KnowledgeBase, settings: &MemorySettings) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.memory_stores (kb_no, tenant_id, settings) VALUES ($1, $2, $3)",
        &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Json(&settings.to_json())],
    )?;
    Ok(())
}

/// Must run as the owner.
pub fn update(kb_no: i64, settings: &MemorySettings) -> Result<()> {
    spi::execute(
        "UPDATE kb.memory_stores SET settings = $2, updated_at = now() WHERE kb_no = $1",
        &[Arg::Long(kb_no), Arg::Json(&settings.to_json())],
    )?;
    Ok(())
}
