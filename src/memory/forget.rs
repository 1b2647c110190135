//! kb.forget: deletes entries, with all that was made of them.

use super::sql::stores;
use crate::documents::delete_document::{delete_documents, delete_matching};
use kb_types::error::{Error, Result};
use kb_types::memory::MemoryCondition;
use kb_types::{Filter, Json};

/// Deletes the entries with these ids, or those of a subject that pass a filter. Returns their number.
pub fn forget(
    memory: &str,
    ids: Option<&[String]>,
    subject: Option<String>,
    filter: Option<&Json>,
) -> Result<i64> {
    let kb = stores::get_own(memory)?;
    let argument = |argument, problem: String| Error::Argument { argument, problem };
    if let Some(ids) = ids {
        if subject.is_some() || filter.is_some() {
            return Err(argument("ids", "give ids, or a subject or filter, but not both".into()));
        }
        let deleted = delete_documents(memory, ids)?;
        return Ok(deleted.into_iter().filter(|(_, existed)| *existed).count() as i64);
    }
    let filter = filter.map(Filter::parse).transpose().map_err(|problem| argument("filter", problem))?;
    if subject.is_none() && filter.as_ref().is_none_or(Filter::is_always) {
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
    delete_matching(&kb, &Filter::All([of_memory].into_iter().chain(filter).collect()))
}
