//! kb.create_knowledge_base.

use crate::builds::knowledge_bases;
use crate::knowledge_bases::build_lifecycle;
use crate::knowledge_bases::knowledge_base_settings;
use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::pg::role::as_owner;
use crate::tenants::bindings;
use crate::tenants::quota;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::quota::Thing;
use kb_types::row_states::BuildState;

/// Creates the knowledge base for the session's tenant, with its first build.
pub fn create_knowledge_base(id: &str, wanted: WantedKnowledgeBase) -> Result<()> {
    let mut kb = knowledge_base_settings::check(id, bindings::current()?, wanted)?;
    as_owner(|| {
        quota::check(&kb.tenant_id, Thing::KnowledgeBases)?;
        quota::within(&kb.tenant_id.clone(), || {
            kb.kb_no = knowledge_bases::insert(&kb)?
                .ok_or_else(|| Error::AlreadyExists { what: ObjectKind::KnowledgeBase, id: id.into() })?;
            build_lifecycle::create(&kb, BuildState::Live, None)?;
            Ok(())
        })
    })
}
