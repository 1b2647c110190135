//! kb.sync_documents: puts documents, and deletes what else has been put under their prefix.

use crate::builds::knowledge_bases;
use crate::documents::new_document::GivenDocument;
use crate::documents::put_document::{check_all, put_locked};
use crate::documents::sql::stored;
use crate::jobs::queue;
use crate::pg::role::as_owner;
use crate::pg::{advisory, wake};
use crate::tenants::quota;
use crate::tenants::quota::Charge;
use kb_types::error::{Error, Result};
use kb_types::id;
use kb_types::row_states::PutStatus;
use std::collections::HashSet;

/// How many documents a call has added, updated, left as they were, and deleted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SyncCounts {
    pub added: i64,
    pub updated: i64,
    pub skipped: i64,
    pub deleted: i64,
}

/// Puts all documents, whose external_ids begin with `scope`, and deletes all others that begin with it, but
/// for those that come from sources or from within files.
pub fn sync_documents(kb_id: &str, given: Vec<GivenDocument>, scope: &str) -> Result<SyncCounts> {
    let kb = knowledge_bases::get_own(kb_id)?;
    if let Some(problem) = id::problem(scope, id::MAX_EXTERNAL_BYTES).filter(|_| !scope.is_empty()) {
        return Err(Error::Argument { argument: "scope", problem });
    }
    if let Some(outside) = given.iter().find(|given| !given.external_id.starts_with(scope)) {
        return Err(Error::Argument {
            argument: "documents",
            problem: format!(
                "external_id \"{}\" does not begin with the scope, \"{scope}\"",
                outside.external_id
            ),
        });
    }
    let documents = check_all(&kb, given)?;
    as_owner(|| {
        // Two syncs at the same time would each miss what the other adds.
        advisory::lock(&format!("sync of {}", kb.kb_no));
        let ids: Vec<String> = documents.iter().map(|document| document.external_id.clone()).collect();
        // The quota is locked first, as when documents are only put.
        Charge::begin(&kb.tenant_id, kb.kb_no, true)?;
        let locked = stored::lock_scope(kb.kb_no, &kb.tenant_id, scope, end_of(scope).as_deref(), &ids)?;
        let kept: HashSet<&str> = ids.iter().map(String::as_str).collect();
        let others: Vec<i64> = locked
            .iter()
            .filter(|stored| stored.was_put && !kept.contains(stored.external_id.as_str()))
            .map(|stored| stored.document_id)
            .collect();
        let deleted = stored::delete(&others)?;
        queue::delete(kb.kb_no, &kb.tenant_id, &deleted)?;
        // What was deleted makes room.
        quota::forget();
        let charge = Charge::begin(&kb.tenant_id, kb.kb_no, true)?;
        let put = put_locked(&kb, charge, documents)?;
        if deleted.len() >= super::delete_document::MANY {
            wake::look_at_commit();
        }
        let count = |wanted| put.iter().filter(|(_, status)| *status == wanted).count() as i64;
        Ok(SyncCounts {
            added: count(PutStatus::Added),
            updated: count(PutStatus::Updated),
            skipped: count(PutStatus::Skipped),
            deleted: deleted.len() as i64,
        })
    })
}

/// The least text that is greater than all that begin with this one, compared by code points. None: there is
/// none.
fn end_of(prefix: &str) -> Option<String> {
    let mut end = prefix.to_string();
    while let Some(last) = end.pop() {
        if let Some(next) = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_begin_with_it() {
        assert_eq!(end_of("a/").as_deref(), Some("a0"));
        assert_eq!(end_of("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(end_of("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!((end_of("\u{10ffff}"), end_of("")), (None, None));
        for prefix in ["a", "ä/", "\u{7f}", "\u{7ff}", "\u{ffff}"] {
            let end = end_of(prefix).unwrap();
            assert!(end.as_str() > format!("{prefix}\u{10ffff}\u{10ffff}").as_str(), "{prefix:?}");
            assert!(!end.starts_with(prefix), "{prefix:?}");
        }
    }
}
