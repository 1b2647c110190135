//! The kind of request that merges related entries of a memory, and kb.consolidate_memories.
//!
//! Entries that were not compared yet are compared with the others of their subject. A chat model is shown a
//! group of similar ones, and merges those that belong together into a new entry. They stay and point to it,
//! and it is recalled in their place. What was compared is marked in the transaction that stores the answer,
//! so a worker that dies merges nothing twice, and a second consolidation asks nothing.

use super::consolidation_prompt::{self as prompts, Merged};
use super::sql::consolidations::{self, Compared};
use super::sql::stores::{self, Store};
use super::{recall, remember};
use crate::builds::builds;
use crate::chat_requests::requests::{self, ChatRequest, NewRequest, Of};
use crate::chat_requests::{Asked, Kind, Next};
use crate::pg::role::as_owner;
use kb_search::related;
use kb_types::ServiceKind;
use kb_types::error::{Error, Result};
use kb_types::memory::{Fact, MOST_TAGS};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

const KIND: &str = "consolidation";
/// How many entries are compared at once, with how many of the newest of their subject, and how many a group
/// has at most.
const NEW: usize = 100;
const NEWEST: usize = 1_000;
const GROUP: usize = 20;
/// So long is that done in one transaction.
const AT_ONCE: Duration = Duration::from_millis(500);
/// The most tokens of an answer.
const ANSWER_TOKENS: i64 = 2_000;
/// The pauses while entries get their vectors, and while another transaction has locked one.
const PENDING: Duration = Duration::from_secs(2);
const LOCKED: Duration = Duration::from_secs(1);

/// Requests that related entries are merged. Returns the number of entries that are new since that was done.
pub fn consolidate_memories(memory: &str) -> Result<i64> {
    let kb = stores::get_own(memory)?;
    let settings = stores::settings(kb.kb_no, memory)?;
    if settings.llm.is_none() {
        return Err(Error::State {
            problem: format!("memory \"{memory}\" has no chat model, which consolidation needs"),
            hint: "Name one in its settings (kb.alter_memory).".into(),
        });
    }
    as_owner(|| {
        let new = consolidations::count_not_compared(&kb)?;
        if new > 0 {
            make(kb.kb_no, &kb.tenant_id, memory)?;
        }
        Ok(new)
    })
}

/// Requests the consolidations whose time has come. Returns whether there were any. For the worker.
pub fn make_due() -> Result<bool> {
    let due = stores::take_due_consolidations()?;
    for (kb_no, tenant_id) in &due {
        if let Some(Store { kb, settings }) = stores::of_number(*kb_no)?
            && settings.llm.is_some()
        {
            make(*kb_no, tenant_id, &kb.id)?;
        }
    }
    Ok(!due.is_empty())
}

/// Must run as the owner, or in the worker.
fn make(kb_no: i64, tenant_id: &str, memory: &str) -> Result<()> {
    stores::begin_consolidation(kb_no)?;
    // One that failed is always made again: it fails at version 0.
    let (of, version, delay) = (Of::Memory(kb_no), 1, Duration::ZERO);
    requests::make(&NewRequest { tenant_id, kind: KIND, subject: memory, of, version, delay })
}

#[derive(Default)]
pub struct Consolidation;

impl Kind for Consolidation {
    fn name(&self) -> &'static str {
        KIND
    }

    fn prepare(&mut self, request: &ChatRequest, _vectors: Option<&[Vec<f32>]>) -> Result<Next> {
        let Some(kb_no) = request.kb_no else { return Ok(Next::Finish) };
        let Some(store) = stores::of_number(kb_no)? else { return Ok(Next::Finish) };
        let consolidation = &store.settings.consolidation;
        let Some(llm) = store.settings.llm.clone() else { return Ok(Next::Finish) };
        if stores::consolidation_calls(kb_no)? >= consolidation.max_calls {
            return end(kb_no);
        }
        let begun = Instant::now();
        while begun.elapsed() < AT_ONCE {
            match compare(&store)? {
                Found::Group { subject, facts } => {
                    let prompt = prompts::prompt(consolidation.prompt.as_deref(), &facts);
                    // The next run goes on with others.
                    let centre: Vec<i64> = facts.iter().map(|fact| fact.document_id).take(1).collect();
                    let give_up = move || consolidations::set_compared(&centre).map(|_| ());
                    let keep = Keep { kb_no, llm: llm.clone(), subject, facts };
                    let store = Box::new(move |answer: &str| keep.keep(answer));
                    return Ok(Next::Ask(Asked {
                        llm,
                        max_tokens: ANSWER_TOKENS,
                        prompt,
                        version: 0,
                        store,
                        give_up: Some(Box::new(give_up)),
                    }));
                }
                Found::Locked => return Ok(Next::Wait(LOCKED)),
                Found::None => {}
                Found::End if consolidations::any_pending(kb_no)? => return Ok(Next::Wait(PENDING)),
                Found::End => return end(kb_no),
            }
        }
        Ok(Next::Wait(Duration::ZERO))
    }
}

fn end(kb_no: i64) -> Result<Next> {
    stores::end_consolidation(kb_no)?;
    Ok(Next::Finish)
}

enum Found {
    Group {
        subject: String,
        facts: Vec<Compared>,
    },
    /// Some were compared, and are like no others.
    None,
    /// Another transaction has locked some of them.
    Locked,
    /// None is left to be compared.
    End,
}

/// Compares the entries of the next subject until some are related, and marks those that are not.
fn compare(store: &Store) -> Result<Found> {
    let kb_no = store.kb.kb_no;
    let after = recall::archived_until(&store.settings);
    let Some(subject) = consolidations::next_subject(kb_no, after)? else { return Ok(Found::End) };
    let new = consolidations::not_compared(kb_no, after, &subject, NEW)?;
    let (current, ended): (Vec<_>, Vec<_>) = new.into_iter().partition(|(_, is_current)| *is_current);
    let numbers = |of: Vec<(i64, bool)>| of.into_iter().map(|(document_id, _)| document_id);
    let mut document_ids: Vec<i64> = numbers(current).collect();
    let new = document_ids.len();
    let others = consolidations::newest(kb_no, after, &subject, NEWEST)?;
    let known: BTreeSet<i64> = document_ids.iter().copied().collect();
    document_ids.extend(others.into_iter().filter(|document_id| !known.contains(document_id)));
    let build = builds::live(kb_no)?;
    let entries = consolidations::read(build.build_no, &document_ids)?;
    let chunk_ids: Vec<_> = entries.iter().filter_map(|entry| entry.chunk_id).collect();
    let mut vectors = build.vector_db.store().all_vectors(build.build_no, &chunk_ids)?;
    let vectors: Vec<Vec<f32>> = entries
        .iter()
        .map(|entry| entry.chunk_id.and_then(|chunk_id| vectors.remove(&chunk_id)).unwrap_or_default())
        .collect();
    let least = store.settings.consolidation.min_similarity;
    let found = related::first_group(&vectors, new, least, GROUP);
    let alone = found.alone.into_iter().map(|at| entries[at].document_id);
    let done: Vec<i64> = alone.chain(numbers(ended)).collect();
    let marked = consolidations::set_compared(&done)?;
    if !found.group.is_empty() {
        let facts = found.group.into_iter().map(|at| entries[at].clone()).collect();
        return Ok(Found::Group { subject, facts });
    }
    Ok(if marked < done.len() as u64 { Found::Locked } else { Found::None })
}

/// What is needed to store an answer.
struct Keep {
    kb_no: i64,
    llm: String,
    subject: String,
    facts: Vec<Compared>,
}

impl Keep {
    fn keep(&self, answer: &str) -> Result<()> {
        let merged = prompts::read(answer, &self.facts).map_err(|problem| Error::Service {
            kind: ServiceKind::Llm,
            id: self.llm.clone(),
            problem,
            passing: true,
        })?;
        let Some(store) = stores::of_number(self.kb_no)? else { return Ok(()) };
        stores::count_consolidation_call(self.kb_no)?;
        let document_ids: Vec<i64> = self.facts.iter().map(|fact| fact.document_id).collect();
        let shown: HashMap<i64, String> =
            self.facts.iter().map(|fact| (fact.document_id, fact.fact.clone())).collect();
        // If anything that the model has seen was changed or forgotten since, so is what it says.
        let after = recall::archived_until(&store.settings);
        if consolidations::lock_current(self.kb_no, after, &document_ids)? != shown {
            return Ok(());
        }
        for merged in &merged {
            let sources: Vec<&Compared> = merged.from.iter().map(|at| &self.facts[*at]).collect();
            let fact = merged_fact(&self.subject, merged, &sources);
            let id = fact.id.clone().unwrap_or_default();
            remember::remember_in(&store.kb, vec![(String::new(), fact)])?;
            let sources: Vec<i64> = sources.iter().map(|source| source.document_id).collect();
            consolidations::merge(&store.kb, &sources, &id)?;
        }
        consolidations::set_compared(&document_ids)?;
        Ok(())
    }
}

/// An entry is no more certain than the least certain of its sources, ends with the first of them, and has
/// the tags of all. It holds from now on: before, they are recalled.
fn merged_fact(subject: &str, merged: &Merged, sources: &[&Compared]) -> Fact {
    let least = sources.iter().map(|source| source.confidence).fold(1.0, f64::min);
    let tags: BTreeSet<&String> = sources.iter().flat_map(|source| &source.tags).collect();
    let numbers: Vec<String> = sources.iter().map(|source| source.document_id.to_string()).collect();
    let hash = blake3::hash(format!("{subject}\0{}\0{}", merged.fact, numbers.join(" ")).as_bytes());
    Fact {
        id: Some(format!("mem_{}", &hash.to_hex()[..32])),
        fact: merged.fact.clone(),
        subject: subject.to_string(),
        tags: tags.into_iter().take(MOST_TAGS).cloned().collect(),
        confidence: Some(merged.confidence.unwrap_or(1.0).min(least)),
        metadata: prompts::common_metadata(sources),
        expires_at: sources.iter().filter_map(|source| source.expires_at).min(),
        ..Fact::default()
    }
}
