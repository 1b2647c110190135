//! kb.memory_stores.

use crate::builds::knowledge_bases::{self, KnowledgeBase};
use crate::pg::row::FromRow;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::sql::{BY_INDEX_UNPLANNED, BY_LOOKUPS, IN_ORDER};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::memory::MemorySettings;
use serde_json::Value;

const SETTINGS: &str = "SELECT s.settings FROM kb.memory_stores s WHERE s.kb_no = $1";

/// A memory of the session's tenant, as this statement knows it.
pub fn get_own(memory: &str) -> Result<KnowledgeBase> {
    let kb = named(knowledge_bases::get_own(memory))?;
    let found =
        setting::with(BY_INDEX_UNPLANNED, || spi::write_one(SETTINGS, &[Arg::Long(kb.kb_no)], Row::only))?;
    parse(&kb.id, found)?;
    Ok(kb)
}

/// Calls what does not exist a memory.
pub fn named<T>(found: Result<T>) -> Result<T> {
    found.map_err(|error| match error {
        Error::NotFound { what: ObjectKind::KnowledgeBase, id } => {
            Error::NotFound { what: ObjectKind::Memory, id }
        }
        error => error,
    })
}

/// The settings of a memory, for a function that writes nothing. Returns an error if the knowledge base is
/// none.
pub fn settings(kb_no: i64, id: &str) -> Result<MemorySettings> {
    parse(id, setting::with(BY_INDEX_UNPLANNED, || spi::read_one(SETTINGS, &[Arg::Long(kb_no)], Row::only))?)
}

/// The expression for when a memory with these settings, begun now, is consolidated next; NULL: never.
fn next_consolidation(settings: &str) -> String {
    format!(
        "pg_catalog.clock_timestamp()
         + pg_catalog.make_interval(hours => ({settings} #>> '{{consolidation,interval_hours}}')::integer)"
    )
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

/// The memory with this number, if there is one. For the worker.
pub fn of_number(kb_no: i64) -> Result<Option<Store>> {
    let sql = format!(
        "SELECT {}, s.settings FROM kb.memory_stores s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no WHERE s.kb_no = $1",
        KnowledgeBase::columns("k")
    );
    setting::with(BY_LOOKUPS, || {
        spi::read_one(&sql, &[Arg::Long(kb_no)], |row| {
            let kb = KnowledgeBase::from_row(row)?;
            let settings = parse(&kb.id, Some(row.get("settings")?))?;
            Ok(Store { kb, settings })
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
        &format!(
            "INSERT INTO kb.memory_stores (kb_no, tenant_id, settings, next_consolidation_at) VALUES ($1, $2, $3, {})",
            next_consolidation("$3::jsonb")
        ),
        &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Json(&settings.to_json())],
    )?;
    Ok(())
}

/// Must run as the owner.
pub fn update(kb_no: i64, settings: &MemorySettings) -> Result<()> {
    spi::execute(
        &format!(
            "UPDATE kb.memory_stores s SET settings = $2, updated_at = now(), next_consolidation_at = (
                 SELECT CASE WHEN n.at IS NOT NULL THEN least(s.next_consolidation_at, n.at) END
                 FROM (SELECT {} AS at) n)
             WHERE s.kb_no = $1",
            next_consolidation("$2::jsonb")
        ),
        &[Arg::Long(kb_no), Arg::Json(&settings.to_json())],
    )?;
    Ok(())
}

/// Whether a consolidation of some memory is due.
pub fn any_consolidation_due() -> Result<bool> {
    setting::with(IN_ORDER, || {
        let sql = "SELECT EXISTS (SELECT FROM kb.memory_stores s WHERE s.next_consolidation_at <= now()
                                  ORDER BY s.next_consolidation_at LIMIT 1)";
        Ok(spi::write_one(sql, &[], Row::only)?.unwrap_or(false))
    })
}

/// Sets the next time of consolidations that are due. Returns the memories' numbers and tenants. For the
/// worker.
pub fn take_due_consolidations() -> Result<Vec<(i64, String)>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            &format!(
                "UPDATE kb.memory_stores s SET next_consolidation_at = {}
                 WHERE s.kb_no = ANY (ARRAY(
                     SELECT d.kb_no FROM kb.memory_stores d WHERE d.next_consolidation_at <= now()
                     ORDER BY d.next_consolidation_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED))
                 RETURNING s.kb_no, s.tenant_id",
                next_consolidation("s.settings")
            ),
            &[],
            |row| Ok((row.get("kb_no")?, row.get("tenant_id")?)),
        )
    })
}

/// A consolidation begins: no answer of the chat model was used. Must run as the owner, or in the worker.
pub fn begin_consolidation(kb_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.memory_stores SET consolidation_calls = 0 WHERE kb_no = $1 AND consolidation_calls <> 0",
        &[Arg::Long(kb_no)],
    )?;
    Ok(())
}

/// An answer of the chat model was used. For the worker.
pub fn count_consolidation_call(kb_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.memory_stores SET consolidation_calls = consolidation_calls + 1 WHERE kb_no = $1",
        &[Arg::Long(kb_no)],
    )?;
    Ok(())
}

/// How many answers of the chat model the consolidation has used. For the worker.
pub fn consolidation_calls(kb_no: i64) -> Result<i64> {
    let sql = "SELECT s.consolidation_calls::bigint FROM kb.memory_stores s WHERE s.kb_no = $1";
    Ok(spi::write_one(sql, &[Arg::Long(kb_no)], Row::only)?.unwrap_or(0))
}

/// A consolidation has ended. For the worker.
pub fn end_consolidation(kb_no: i64) -> Result<()> {
    spi::execute(
        "UPDATE kb.memory_stores SET consolidated_at = pg_catalog.clock_timestamp() WHERE kb_no = $1",
        &[Arg::Long(kb_no)],
    )?;
    Ok(())
}
