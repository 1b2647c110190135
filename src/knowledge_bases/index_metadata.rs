//! kb.index_metadata and kb.unindex_metadata.

use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::filters::metadata_indexes;
use crate::filters::metadata_indexes::{MOST, MetadataIndex};
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::tenants::quota;
use kb_types::error::{Error, Result};
use kb_types::filter::{IndexType, Key};
use kb_types::named::Named;
use kb_types::quota::Thing;

/// The most bytes of a key.
const LONGEST_KEY: usize = 200;

/// Requests an index on the values of a key of metadata. Returns false if there was one already.
pub fn index_metadata(kb_id: &str, key: &str, index_type: &str) -> Result<bool> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let index = MetadataIndex { key: metadata_key(&kb, key)?, index_type: parse(index_type)? };
    as_owner(|| {
        if !metadata_indexes::is_wanted_by(&kb.tenant_id, &index)? {
            quota::check(&kb.tenant_id, Thing::MetadataIndexes)?;
        }
        if !metadata_indexes::is_wanted(&index)? {
            // The lock keeps the limit, also if several sessions request indexes at once.
            metadata_indexes::lock()?;
            if !metadata_indexes::is_wanted(&index)? && metadata_indexes::count()? >= MOST {
                return Err(Error::State {
                    problem: format!("there are already {MOST} indexes on keys of metadata, which is the maximum"),
                    hint: "Every index slows down the writing of documents. Drop those that are not needed (kb.unindex_metadata)."
                        .into(),
                });
            }
        }
        let is_new = metadata_indexes::put(kb.kb_no, &kb.tenant_id, &index)?;
        if is_new {
            wake::at_commit(0);
        }
        Ok(is_new)
    })
}

/// Withdraws the request, for one type or for all. Returns the number of requests withdrawn.
pub fn unindex_metadata(kb_id: &str, key: &str, index_type: Option<&str>) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let (key, index_type) = (named(key)?, index_type.map(parse).transpose()?);
    as_owner(|| {
        let deleted = metadata_indexes::delete(kb.kb_no, &key, index_type)?;
        if deleted > 0 {
            wake::at_commit(0);
        }
        Ok(deleted)
    })
}

fn parse(index_type: &str) -> Result<IndexType> {
    IndexType::one_of(index_type).map_err(|problem| Error::Argument { argument: "type", problem })
}

/// The key, if it may be indexed.
fn metadata_key(kb: &KnowledgeBase, name: &str) -> Result<String> {
    let key = named(name)?;
    let problem = match key.len() {
        length if length > LONGEST_KEY => {
            Some(format!("it has {length} bytes; at most {LONGEST_KEY} are allowed"))
        }
        _ => kb.retrieval.key_problem([key.as_str()]),
    };
    match problem {
        None => Ok(key),
        Some(problem) => Err(Error::Argument { argument: "key", problem }),
    }
}

/// The key of metadata that a filter means by this name.
fn named(name: &str) -> Result<String> {
    let problem = match Key::parse(name) {
        Ok(Key::Metadata(key)) => return Ok(key),
        Ok(Key::Field(field)) => {
            format!("{} is a field of documents, not a key of their metadata", field.name())
        }
        Err(problem) => problem,
    };
    Err(Error::Argument { argument: "key", problem })
}
