//! kb.create_memory, kb.alter_memory and kb.drop_memory.

use super::sql::stores;
use crate::builds::knowledge_bases;
use crate::knowledge_bases::create_knowledge_base::create_knowledge_base;
use crate::knowledge_bases::drop_knowledge_base::drop_knowledge_base;
use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::models::services;
use crate::pg::role::as_owner;
use kb_types::error::{Error, Result};
use kb_types::memory::MemorySettings;
use kb_types::{ServiceKind, id as ids, sizes};
use serde_json::Value;

/// Creates a knowledge base that is a memory.
pub fn create_memory(id: &str, settings: &Value, wanted: WantedKnowledgeBase) -> Result<()> {
    let settings = parse(id, settings)?;
    create_knowledge_base(id, wanted)?;
    let kb = knowledge_bases::get_own(id)?;
    as_owner(|| stores::insert(&kb, &settings))
}

/// Replaces the settings of a memory.
pub fn alter_memory(id: &str, settings: &Value) -> Result<()> {
    let kb = stores::get_own(id)?;
    let settings = parse(id, settings)?;
    as_owner(|| stores::update(kb.kb_no, &settings))
}

/// Drops a memory with its entries.
pub fn drop_memory(id: &str) -> Result<()> {
    stores::get_own(id)?;
    drop_knowledge_base(id)
}

fn parse(id: &str, settings: &Value) -> Result<MemorySettings> {
    let wrong = |problems| Error::configuration(format!("memory \"{id}\""), problems);
    let settings = MemorySettings::parse(settings).map_err(wrong)?;
    match &settings.llm {
        Some(llm) if services::find(ServiceKind::Llm, llm)?.is_none() => Err(wrong(vec![format!(
            "settings.llm: llm \"{}\" does not exist",
            sizes::cut(llm, ids::MAX_BYTES)
        )])),
        _ => Ok(settings),
    }
}
