//! kb.create_eval_set.

use crate::builds::knowledge_bases;
use crate::evaluate::sql::eval_sets;
use crate::pg::role::as_owner;
use crate::tenants::quota;
use kb_types::error::{Error, Object, Result};
use kb_types::id;

/// Creates an evaluation set, without questions, for a knowledge base of the caller's tenant.
pub fn create_eval_set(kb_id: &str, name: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    if let Some(problem) = id::problem(name, id::MAX_BYTES) {
        return Err(Error::Argument { argument: "eval_set", problem });
    }
    let is_new = as_owner(|| {
        knowledge_bases::lock(&kb)?;
        quota::within(&kb.tenant_id, || eval_sets::insert(&kb, name))
    })?;
    if is_new { Ok(()) } else { Err(Error::AlreadyExists { what: Object::EvalSet, id: name.into() }) }
}
