//! kb.drop_eval_set.

use crate::builds::knowledge_bases;
use crate::evaluate::sql::eval_sets;
use crate::pg::role::as_owner;
use kb_types::error::Result;

/// Drops an evaluation set with its questions.
pub fn drop_eval_set(kb_id: &str, name: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| eval_sets::delete(kb.kb_no, name))
}
