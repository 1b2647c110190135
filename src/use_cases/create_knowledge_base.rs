//! kb.create_knowledge_base.

use crate::catalog::build_lifecycle;
use crate::catalog::knowledge_base_settings::{self, WantedKnowledgeBase};
use crate::catalog::quota;
use crate::pg::role::as_owner;
use crate::store::{knowledge_bases, tenants};
use kb_types::error::{Error, Object, Result};
use kb_types::quota::Thing;
use kb_types::states::BuildState;

/// Makes it for the session's tenant, with its first build.
pub fn create_knowledge_base(id: &str, wanted: WantedKnowledgeBase) -> Result<()> {
    let mut kb = knowledge_base_settings::check(id, tenants::current()?, wanted)?;
    as_owner(|| {
        quota::check(&kb.tenant_id, Thing::KnowledgeBases)?;
        quota::within(&kb.tenant_id.clone(), || {
            kb.kb_no = knowledge_bases::insert(&kb)?
                .ok_or_else(|| Error::AlreadyExists { what: Object::KnowledgeBase, id: id.into() })?;
            build_lifecycle::create(&kb, BuildState::Live, None)?;
            Ok(())
        })
    })
}
