//! kb.touch: counts that entries were used.

use super::sql::{entries, stores};
use crate::builds::knowledge_bases;
use crate::pg::role::as_owner;
use kb_types::error::Result;

/// Counts an access to each of these entries. Returns how many of them there are.
pub fn touch(memory: &str, ids: &[String]) -> Result<i64> {
    let kb = knowledge_bases::get_own(memory)?;
    stores::check(&kb)?;
    as_owner(|| entries::touch(&kb, ids)).map(|touched| touched as i64)
}
