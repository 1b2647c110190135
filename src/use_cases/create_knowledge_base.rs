//! kb.create_knowledge_base.

use crate::catalog::build_lifecycle;
use crate::catalog::knowledge_base_settings::{self, WantedKnowledgeBase};
use crate::error::{Error, Object, Result};
use crate::model::states::BuildState;
use crate::pg::role::as_owner;
use crate::store::knowledge_bases;

/// Makes it for the session's tenant, with its first build.
pub fn create_knowledge_base(id: &str, wanted: WantedKnowledgeBase) -> Result<()> {
    let mut kb = knowledge_base_settings::check(id, knowledge_bases::current_tenant()?, wanted)?;
    as_owner(|| {
        kb.kb_no = knowledge_bases::insert(&kb)?
            .ok_or_else(|| Error::AlreadyExists { what: Object::KnowledgeBase, id: id.into() })?;
        build_lifecycle::create(&kb, BuildState::Live, None)?;
        Ok(())
    })
}
