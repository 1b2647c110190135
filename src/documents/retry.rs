//! kb.retry.

use crate::builds::knowledge_bases;
use crate::documents::sql::stored;
use crate::jobs::enqueue;
use crate::pg::role::as_owner;
use kb_types::error::Result;

/// Puts failed documents back into the queue. Returns their number.
pub fn retry(kb_id: &str, external_id: Option<&str>) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| {
        let failed = stored::reset_failed(kb.kb_no, &kb.tenant_id, external_id)?;
        enqueue::edits(&kb, &failed)?;
        Ok(failed.len() as i64)
    })
}
