//! kb.recall and kb.recall_by_tags: the entries that answer a question, or that have tags.
//!
//! They are STABLE and write nothing, so that they work on a hot standby. The gateway is told which entries
//! they return, and the worker counts these accesses (`upkeep.rs`).

use super::sql::entries::Entry;
use super::sql::{entries, stores};
use crate::gateway::client;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::query::{query, search};
use crate::tenants::{bindings, shares};
use kb_search::Request;
use kb_search::remembered::{self, Found};
use kb_types::error::{Error, Result};
use kb_types::memory::{self, MemoryCondition, MemorySettings};
use kb_types::retrieval::MAX_TOP_K;
use kb_types::{Filter, Json};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::SystemTime;

/// The arguments of a recall. None means the setting of the memory, or no condition.
#[derive(Debug, Default)]
pub struct Recall {
    pub max_results: Option<i32>,
    pub min_score: Option<f64>,
    pub tags: Vec<String>,
    pub subject: Option<String>,
    pub filter: Option<Json>,
    /// Further conditions, which are not written in the language of filters.
    pub conditions: Vec<Filter>,
    /// In microseconds since 1970.
    pub as_of: Option<i64>,
    pub mode: Option<String>,
    pub archived: bool,
}

/// An entry that was found.
pub struct Recalled {
    pub entry: Entry,
    pub score: Option<f64>,
    /// What the answer lacks, as in an answer of kb.query.
    pub locator: Value,
}

/// So many more entries are searched than are returned, because freshness changes their order.
const WIDER: usize = 4;
const LEAST: usize = 40;

const DAY: i64 = 86_400_000_000;

/// The entries that answer a question, the best first.
pub fn recall(memory: &str, question: &str, recall: Recall) -> Result<Vec<Recalled>> {
    let kb_no = stores::named(search::target(memory))?.kb_no;
    let settings = stores::settings(kb_no, memory)?;
    let (most, min_score) = limits(&recall, &settings)?;
    let at = recall.as_of.unwrap_or_else(now);
    let condition = condition(kb_no, &recall, &settings, at)?;
    let searched = (most * WIDER).max(LEAST).min(MAX_TOP_K as usize);
    let mut request = Request::new(
        memory,
        Some(searched as i32),
        Some(0.0),
        recall.filter,
        None,
        Some(recall.mode.as_deref().unwrap_or(settings.mode.name())),
        // If the embedder is away, words answer, and the rows say so. What is asked is what somebody said, in
        // which quotes and minus signs are no operators.
        Some(json!({"on_error": "keyword", "syntax": "plain"})),
    )?;
    request.filter_keys.extend(recall.conditions.iter().flat_map(Filter::metadata_keys).map(str::to_string));
    let conditions =
        [Filter::Remembered(condition)].into_iter().chain(request.filter.take()).chain(recall.conditions);
    request.filter = Some(Filter::All(conditions.collect()));
    let hits = query::query(&request, question)?;
    let document_ids: Vec<i64> = hits.iter().map(|hit| hit.row.place.document_id).collect();
    let mut entries: HashMap<i64, Entry> =
        entries::read(&document_ids, at)?.into_iter().map(|entry| (entry.document_id, entry)).collect();
    // A long fact can have several chunks, of which the first counts.
    let mut found = Vec::new();
    let mut recalled = Vec::new();
    for hit in hits {
        let Some(entry) = entries.remove(&hit.row.place.document_id) else { continue };
        found.push(Found { similarity: hit.score, rank_score: hit.rank_score, days: entry.days });
        recalled.push(Some((entry, hit.row.locator)));
    }
    let ordered = remembered::order(&found, settings.half_life_days, min_score, most);
    let take = |(place, score): (usize, Option<f64>)| {
        let (entry, locator) = recalled.get_mut(place)?.take()?;
        Some(Recalled { entry, score, locator })
    };
    let recalled: Vec<Recalled> = ordered.into_iter().filter_map(take).collect();
    count_accesses(kb_no, &settings, &recalled);
    Ok(recalled)
}

/// The entries that have all of the tags, the newest first.
pub fn recall_by_tags(memory: &str, recall: Recall) -> Result<Vec<Recalled>> {
    let kb_no = stores::named(search::target(memory))?.kb_no;
    let settings = stores::settings(kb_no, memory)?;
    let (most, _) = limits(&recall, &settings)?;
    if recall.tags.is_empty() {
        return Err(Error::Argument { argument: "tags", problem: "there are none".into() });
    }
    let at = recall.as_of.unwrap_or_else(now);
    let condition = condition(kb_no, &recall, &settings, at)?;
    let tenants = shares::readable(kb_no)?;
    let ids = as_owner(|| entries::newest_of(&condition, &tenants, most))?;
    let mut entries: HashMap<i64, Entry> =
        entries::read(&ids, at)?.into_iter().map(|entry| (entry.document_id, entry)).collect();
    let taken = ids.into_iter().filter_map(|id| entries.remove(&id));
    let recalled: Vec<Recalled> =
        taken.map(|entry| Recalled { entry, score: None, locator: json!({}) }).collect();
    count_accesses(kb_no, &settings, &recalled);
    Ok(recalled)
}

/// Has the accesses to these entries counted afterwards, as far as they are the tenant's own. Never fails and
/// never waits; a standby counts none.
fn count_accesses(kb_no: i64, settings: &MemorySettings, recalled: &[Recalled]) {
    if recalled.is_empty() || !settings.count_accesses || report::in_recovery() {
        return;
    }
    let Ok(tenant) = bindings::current() else { return };
    let document_ids = recalled.iter().map(|recalled| recalled.entry.document_id).collect();
    if client::count_accesses(tenant, kb_no, now(), document_ids) {
        wake::ensure_worker();
    }
}

fn limits(recall: &Recall, settings: &MemorySettings) -> Result<(usize, f64)> {
    let argument = |argument, problem| Error::Argument { argument, problem };
    if let Some(most) = recall.max_results
        && !(1..=memory::MOST_RESULTS).contains(&i64::from(most))
    {
        let problem = format!("{most} is not between 1 and {}", memory::MOST_RESULTS);
        return Err(argument("max_results", problem));
    }
    if let Some(score) = recall.min_score
        && !score.is_finite()
    {
        return Err(argument("min_score", format!("{score} is not finite")));
    }
    let most = recall.max_results.map_or(settings.max_results, |most| most as usize);
    Ok((most, recall.min_score.unwrap_or(settings.min_score)))
}

fn check_tags(tags: &[String]) -> Result<()> {
    match memory::tag_problems(tags) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(Error::Argument { argument: "tags", problem: problems.join("; ") }),
    }
}

fn condition(kb_no: i64, recall: &Recall, settings: &MemorySettings, at: i64) -> Result<MemoryCondition> {
    check_tags(&recall.tags)?;
    Ok(MemoryCondition {
        kb_no,
        subject: recall.subject.clone(),
        tags: recall.tags.clone(),
        valid_at: Some(at),
        accessed_after: accessed_after(recall, settings, at),
    })
}

/// Entries that were last accessed then, or before, are archived. What held in the past is asked of all.
fn accessed_after(recall: &Recall, settings: &MemorySettings, at: i64) -> Option<i64> {
    if recall.archived || recall.as_of.is_some() {
        return None;
    }
    archived_at(settings, at)
}

/// Entries that were last accessed then, or before, are archived now.
pub fn archived_until(settings: &MemorySettings) -> Option<i64> {
    archived_at(settings, now())
}

fn archived_at(settings: &MemorySettings, at: i64) -> Option<i64> {
    Some(at.saturating_sub(settings.auto_archive_days?.saturating_mul(DAY)))
}

/// Microseconds since 1970.
fn now() -> i64 {
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(age.as_micros()).unwrap_or(i64::MAX)
}
