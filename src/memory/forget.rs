//! kb.forget: deletes entries, with all that was made of them.

use super::sql::{merged_entries, stores};
use crate::documents::delete_document::{delete_locked, lock, lock_matching};
use crate::pg::role::as_owner;
use kb_types::error::{Error, Result};
use kb_types::memory::MemoryCondition;
use kb_types::{Filter, Json};

/// How many entries were deleted, and how many were not.
pub struct Forgotten {
    /// Those that were named, and those that had been merged into them.
    pub forgotten: i64,
    /// Those into which a forgotten one had been merged.
    pub derived: i64,
    /// Those that had been merged into a deleted one, and count on their own again.
    pub restored: i64,
}

/// Deletes the entries with these ids, or those of a subject that pass a filter.
pub fn forget(
    memory: &str,
    ids: Option<&[String]>,
    subject: Option<String>,
    filter: Option<&Json>,
) -> Result<Forgotten> {
    let kb = stores::get_own(memory)?;
    let argument = |argument, problem: String| Error::Argument { argument, problem };
    if ids.is_some() && (subject.is_some() || filter.is_some()) {
        return Err(argument("ids", "give ids, or a subject or filter, but not both".into()));
    }
    let filter = filter.map(Filter::parse).transpose().map_err(|problem| argument("filter", problem))?;
    if ids.is_none() && subject.is_none() && filter.as_ref().is_none_or(Filter::is_always) {
        return Err(argument(
            "subject",
            "name ids, a subject or a filter; kb.drop_memory deletes all".into(),
        ));
    }
    let of_memory = Filter::Remembered(MemoryCondition {
        kb_no: kb.kb_no,
        subject,
        tags: Vec::new(),
        valid_at: None,
        accessed_after: None,
    });
    let matching = Filter::All([of_memory].into_iter().chain(filter).collect());
    as_owner(|| {
        let named = match ids {
            Some(ids) => lock(&kb, ids)?,
            None => lock_matching(&kb, &matching)?,
        };
        // Who forgets what was merged means what it was made of: it would be recalled otherwise.
        let forgotten = merged_entries::with_sources(&named)?;
        let derived = merged_entries::made_of(&forgotten)?;
        let restored = merged_entries::count_sources_but(&derived, &forgotten)?;
        let deleted = delete_locked(&kb, &[forgotten.as_slice(), derived.as_slice()].concat())?;
        let derived = derived.len() as i64;
        Ok(Forgotten { forgotten: deleted.len() as i64 - derived, derived, restored })
    })
}
