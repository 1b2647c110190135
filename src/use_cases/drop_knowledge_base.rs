//! kb.drop_knowledge_base.

use crate::error::Result;
use crate::pg::role::as_owner;
use crate::store::{knowledge_bases, vector_store};

/// Drops its documents, chunks, vectors and runs with it.
pub fn drop_knowledge_base(id: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(id)?;
    as_owner(|| {
        for vector_db in vector_store::owned(kb.kb_no)? {
            vector_db.store().remove()?;
        }
        knowledge_bases::delete(kb.kb_no)
    })
}
