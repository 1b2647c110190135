//! kb.touch: counts that entries were used.

use super::sql::{entries, stores};
use crate::pg::role::as_owner;
use kb_types::error::Result;

/// Counts an access to each of these entries. Returns how many of them there are.
pub fn touch(memory: &str, ids: &[String]) -> Result<i64> {
    let kb = stores::get_own(memory)?;
    as_owner(|| entries::touch(&kb, ids)).map(|touched| touched as i64)
}
