//! kb.remember: a fact of a subject is stored once, and the history of facts is kept.
//!
//! The id of an entry is made of subject and fact, so that two sessions which remember the same fact write
//! the same document. A fact that holds again after it had ended is another entry, with a number after its
//! id.

use super::fact_sources;
use super::sql::entries::SameFact;
use super::sql::{entries, merged_entries, stores};
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::delete_document::delete_locked;
use crate::documents::new_document::{Content, GivenDocument};
use crate::documents::put_document::{check_all, put_checked};
use crate::pg::role::as_owner;
use crate::tenants::quota;
use crate::tenants::quota::Room;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::memory::{Fact, Source};
use kb_types::quota::Thing;
use kb_types::row_states::PutStatus;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Stores facts. Returns the id of each, in order, and what became of it.
pub fn remember(memory: &str, facts: Vec<(String, Fact)>) -> Result<Vec<(String, PutStatus)>> {
    let kb = stores::get_own(memory)?;
    remember_in(&kb, facts)
}

/// Stores facts in a memory, which belongs to the caller's tenant, or in the worker.
pub fn remember_in(kb: &KnowledgeBase, mut facts: Vec<(String, Fact)>) -> Result<Vec<(String, PutStatus)>> {
    let problems: Vec<String> = facts
        .iter()
        .flat_map(|(name, fact)| fact.problems().into_iter().map(move |problem| format!("{name}{problem}")))
        .collect();
    if !problems.is_empty() {
        return Err(Error::Argument { argument: "fact", problem: problems.join("; ") });
    }
    as_owner(|| fact_sources::check(&kb.tenant_id, &mut facts))?;
    let facts: Vec<Fact> = facts.into_iter().map(|(_, fact)| fact).collect();
    let ids = as_owner(|| facts.iter().map(|fact| id(kb, fact)).collect::<Result<Vec<String>>>())?;
    let distinct = distinct(&ids, facts);
    let documents = distinct
        .iter()
        .map(|(id, fact)| GivenDocument {
            external_id: id.clone(),
            content: Content::Text(fact.fact.trim().to_string()),
            metadata: fact.metadata.clone(),
            // Memories have chunking.context "title".
            title: fact
                .context
                .as_deref()
                .map(str::trim)
                .filter(|context| !context.is_empty())
                .map(str::to_string),
            content_type: Some("text/plain".into()),
            uri: None,
            chunking: None,
        })
        .collect();
    // Before any document is locked, so that two transactions never wait for each other.
    let room = Room::begin(&kb.tenant_id, Thing::MemoryEntries);
    let mut documents = check_all(kb, documents)?;
    for document in &mut documents {
        let fact = distinct.get(&document.external_id);
        document.title_is_given = fact.is_some_and(|fact| fact.id.is_some() || fact.context.is_some());
    }
    let put = put_checked(kb, documents)?;
    // The worker, which locks the documents that it merges, has merged them by now, or sees the new text.
    drop_merged(kb, &distinct)?;
    let statuses: HashMap<String, PutStatus> = put.into_iter().collect();
    as_owner(|| {
        let given: Vec<Value> = distinct.iter().map(|(id, fact)| given(id, fact)).collect();
        let added = quota::within(&kb.tenant_id, || entries::put(kb, &Value::Array(given)))?;
        room.map_or(Ok(()), |room| room.take(added as i64))?;
        for (by, fact) in &distinct {
            let Some(superseded) = &fact.supersedes else { continue };
            let Some(ended) = entries::supersede(kb, superseded, by)? else {
                return Err(Error::NotFound { what: ObjectKind::MemoryEntry, id: superseded.clone() });
            };
            merged_entries::end_with(ended)?;
        }
        Ok(())
    })?;
    Ok(ids
        .into_iter()
        .map(|id| {
            let status = statuses.get(&id).copied().unwrap_or(PutStatus::Skipped);
            (id, status)
        })
        .collect())
}

/// Deletes the entries into which some were merged that change now, or end: they say what these said.
fn drop_merged(kb: &KnowledgeBase, facts: &BTreeMap<String, Fact>) -> Result<()> {
    let changes = |fact: &Fact| fact.id.is_some() || fact.valid_to.is_some() || fact.expires_at.is_some();
    let ids: Vec<String> = facts.iter().filter(|(_, fact)| changes(fact)).map(|(id, _)| id.clone()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    as_owner(|| match merged_entries::made_of_ids(kb, &ids)? {
        merged if merged.is_empty() => Ok(()),
        merged => delete_locked(kb, &merged).map(|_| ()),
    })
}

/// The subject of an entry of a memory of the session's tenant, if there is one with this id.
pub fn subject_of(memory: &str, id: &str) -> Result<Option<String>> {
    let kb = stores::get_own(memory)?;
    as_owner(|| entries::subject(&kb, id))
}

/// Each entry once. A fact that is given twice is merged as it would be with what is stored; of an id that is
/// given twice, the last counts.
fn distinct(ids: &[String], facts: Vec<Fact>) -> BTreeMap<String, Fact> {
    let mut distinct: BTreeMap<String, Fact> = BTreeMap::new();
    for (id, mut fact) in ids.iter().zip(facts) {
        if let Some(before) = distinct.remove(id).filter(|_| fact.id.is_none()) {
            fact.confidence = Some(confidence(&fact).max(confidence(&before)));
            fact.tags.extend(before.tags);
            fact.metadata = fact.metadata.or(before.metadata);
            fact.valid_from = fact.valid_from.or(before.valid_from);
            fact.valid_to = fact.valid_to.or(before.valid_to);
            fact.expires_at = fact.expires_at.or(before.expires_at);
            fact.supersedes = fact.supersedes.or(before.supersedes);
            fact.context = fact.context.or(before.context);
            if before.source.conversation_id.is_some() {
                fact.source = before.source;
            }
        }
        distinct.insert(id.clone(), fact);
    }
    distinct
}

/// How certain a fact is of which nothing else is said.
const CERTAIN: f64 = 1.0;

fn confidence(fact: &Fact) -> f64 {
    fact.confidence.unwrap_or(CERTAIN)
}

fn given(id: &str, fact: &Fact) -> Value {
    let mut tags = fact.tags.clone();
    tags.sort();
    tags.dedup();
    let Source { conversation_id, turn_id, start, end } = &fact.source;
    json!({
        "id": id,
        "subject": fact.subject,
        "tags": tags,
        "confidence": confidence(fact),
        "valid_from": fact.valid_from,
        "valid_to": fact.valid_to,
        "expires_at": fact.expires_at,
        "replaces": fact.id.is_some(),
        "source_conversation_id": conversation_id,
        "source_turn_id": turn_id,
        "source_start": start,
        "source_end": end,
    })
}

/// The id of the entry that has the fact, or will have it.
fn id(kb: &KnowledgeBase, fact: &Fact) -> Result<String> {
    match &fact.id {
        Some(id) => Ok(id.clone()),
        None => {
            let base = base_id(&fact.subject, fact.fact.trim());
            Ok(next_id(&base, &entries::of_fact(kb, &base)?))
        }
    }
}

fn base_id(subject: &str, fact: &str) -> String {
    // No subject contains a NUL.
    let hash = blake3::hash(format!("{subject}\0{fact}").as_bytes());
    format!("mem_{}", &hash.to_hex()[..32])
}

/// The id of the entry of a fact that holds, or one that is free.
fn next_id(base: &str, known: &[SameFact]) -> String {
    if let Some(current) = known.iter().find(|known| known.is_current) {
        return current.external_id.clone();
    }
    let number = |known: &SameFact| {
        known.external_id.strip_prefix(base).map(|rest| match rest.strip_prefix('_') {
            Some(number) => number.parse().unwrap_or(1),
            None => 1,
        })
    };
    match known.iter().filter_map(number).max() {
        None => base.to_string(),
        Some(last) => format!("{base}_{}", last + 1_u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_fact_depends_on_the_fact_and_its_subject_alone() {
        assert_eq!(base_id("a", "b"), base_id("a", "b"));
        assert_ne!(base_id("a", "b"), base_id("ab", ""));
        assert!(base_id("", "x").starts_with("mem_") && base_id("", "x").len() == 36);
    }

    #[test]
    fn a_fact_that_holds_again_is_another_entry() {
        let known = |id: &str, is_current| SameFact { external_id: id.into(), is_current };
        assert_eq!(next_id("mem_1", &[]), "mem_1");
        assert_eq!(next_id("mem_1", &[known("mem_1", true)]), "mem_1");
        assert_eq!(next_id("mem_1", &[known("mem_1", false)]), "mem_1_2");
        assert_eq!(next_id("mem_1", &[known("mem_1_9", false)]), "mem_1_10");
        assert_eq!(next_id("mem_1", &[known("mem_1", false), known("mem_1_2", true)]), "mem_1_2");
    }
}
