//! The kind of request that extracts facts from a conversation into its memory, and kb.extract_memories.
//!
//! The subject and the memory are settings of the conversation, so no word of a turn or of an answer decides
//! whom a fact is about. Facts are only added; one that no longer holds is ended and kept. That facts were
//! extracted up to a turn is noted in the transaction that stores them, so a worker that dies stores none
//! twice.

use crate::chat_requests::requests::{self, ChatRequest, NewRequest, Of};
use crate::chat_requests::{Asked, Kind, Next, Texts};
use crate::conversations::extraction_prompt::{self, Known};
use crate::conversations::read_turns::read;
use crate::conversations::shown_turns::{self, ShownTurn};
use crate::conversations::sql::conversations::{self, WindowEnd};
use crate::conversations::sql::{extractions, turns};
use crate::conversations::summary::{End, read_subject};
use crate::conversations::window;
use crate::memory::known::KnownFact;
use crate::memory::stores::{self, Store};
use crate::memory::{known, remember};
use crate::pg::role::as_owner;
use crate::tenants::bindings;
use kb_types::ServiceKind;
use kb_types::conversation::{ConversationSettings, TurnRole};
use kb_types::error::{Error, Result};
use kb_types::memory::{ExtractionStrategy, Fact, Source};
use std::time::Duration;

const KIND: &str = "extraction";
/// So many turns from which facts were extracted already are read once more, as the context of the next ones.
const CONTEXT: i64 = 4;
/// How many of the newest facts of the subject are compared with the turns, and how many are in a prompt.
const COMPARED: i64 = 500;
const KNOWN: usize = 20;
/// The most tokens of an answer, for each fact and in all.
const FACT_TOKENS: i64 = 200;

/// Requests the extraction of a conversation's facts. Returns the number of turns that are new.
pub fn extract_memories(id: &str) -> Result<i64> {
    let tenant = bindings::current()?;
    let Some(ending) = window::ending(&tenant, id)? else { return Ok(0) };
    let end = ending.end();
    let State { problem, hint } = match &ending.settings.memory {
        None => State {
            problem: format!("conversation \"{}\" has no memory", end.conversation_id),
            hint: "Name one in its settings (kb.alter_conversation).",
        },
        Some(memory) => match stores::of(&tenant, memory)? {
            Some(store) if store.settings.llm.is_some() => {
                let new = end.depth - extractions::covered(end.place())?;
                if new > 0 {
                    let subject = End { is_last: false, ..end }.subject();
                    let called = NewRequest { version: i64::MAX, ..request(&tenant, &end, &subject) };
                    as_owner(|| requests::make(&called))?;
                }
                return Ok(new);
            }
            Some(_) => State {
                problem: format!("memory \"{memory}\" has no chat model, which extraction needs"),
                hint: "Name one in its settings (kb.alter_memory).",
            },
            None => State {
                problem: format!("memory \"{memory}\" does not exist"),
                hint: "Create it (kb.create_memory), or name another one in the settings of the conversation.",
            },
        },
    };
    Err(Error::State { problem, hint: hint.into() })
}

struct State {
    problem: String,
    hint: &'static str,
}

/// Requests what the memory wants after a turn. Must run as the owner.
pub fn make_after_turn(
    tenant: &str,
    settings: &ConversationSettings,
    end: &End,
    role: TurnRole,
) -> Result<()> {
    let Some(memory) = &settings.memory else { return Ok(()) };
    let Some(store) = stores::of(tenant, memory)? else { return Ok(()) };
    let extraction = store.settings.extraction;
    let delay = match extraction.strategy {
        ExtractionStrategy::Eager if role == TurnRole::Assistant => Duration::ZERO,
        ExtractionStrategy::Lazy => Duration::from_secs(extraction.rest_seconds.unsigned_abs()),
        ExtractionStrategy::Eager | ExtractionStrategy::Off => return Ok(()),
    };
    requests::make(&NewRequest { delay, ..request(tenant, end, &end.subject()) })
}

fn request<'a>(tenant_id: &'a str, end: &End<'a>, subject: &'a str) -> NewRequest<'a> {
    let (of, version) = (Of::Conversation(end.conversation_id), end.depth);
    NewRequest { tenant_id, kind: KIND, subject, of, version, delay: Duration::ZERO }
}

#[derive(Default)]
pub struct Extraction;

impl Kind for Extraction {
    fn name(&self) -> &'static str {
        KIND
    }

    fn prepare(&mut self, request: &ChatRequest, vectors: Option<&[Vec<f32>]>) -> Result<Next> {
        let ChatRequest { tenant_id, conversation_id: Some(conversation_id), subject, .. } = request else {
            return Ok(Next::Finish);
        };
        let Some((branch_no, wanted)) = read_subject(subject) else { return Ok(Next::Finish) };
        let end = conversations::end_of_branch(tenant_id, conversation_id, branch_no, wanted)?;
        let Some(WindowEnd { settings, depth: Some(depth), .. }) = end else { return Ok(Next::Finish) };
        let settings = conversations::parsed(&settings)?;
        let Some(memory) = settings.memory else { return Ok(Next::Finish) };
        let Some(store) = stores::of(tenant_id, &memory)? else { return Ok(Next::Finish) };
        let Some(llm) = store.settings.llm.clone() else { return Ok(Next::Finish) };
        // Somebody called kb.extract_memories for one that names a depth.
        let is_called = wanted < i64::MAX;
        if !is_called {
            match store.settings.extraction.strategy {
                ExtractionStrategy::Off => return Ok(Next::Finish),
                ExtractionStrategy::Eager => {}
                ExtractionStrategy::Lazy => {
                    let rest =
                        store.settings.extraction.rest_seconds as f64 - turns::age((branch_no, depth))?;
                    if rest > 0.0 {
                        return Ok(Next::Wait(Duration::from_secs_f64(rest.min(1e6))));
                    }
                }
            }
        }
        let covered = extractions::covered((branch_no, depth))?;
        if covered >= depth {
            return Ok(Next::Finish);
        }
        let end = End { conversation_id, branch_no, depth, total_tokens: 0, is_last: true };
        let mut shown = read(&end, (covered - CONTEXT).max(0), depth)?;
        if shown.last().is_some_and(|(_, depth)| depth <= covered) {
            // The context leaves no room.
            shown = read(&end, covered, depth)?;
        }
        let Some((last, _)) = shown.last() else { return Ok(Next::Finish) };
        let known = known::newest(&store.kb, &settings.subject, COMPARED)?;
        let Some(vectors) = vectors.or((known.len() <= KNOWN).then_some(&[])) else {
            let texts = extraction_prompt::compared(shown.turns(), covered);
            return Ok(Next::Embed(Texts {
                embedder: known::embedder(&store.kb)?,
                kb_no: store.kb.kb_no,
                texts,
            }));
        };
        let similarities = known::similarities(&store.kb, &known, vectors)?;
        let known = known
            .into_iter()
            .map(|KnownFact { document_id, id, fact }| {
                let similarity = similarities.get(&document_id).copied();
                Known { id, fact, similarity }
            })
            .collect();
        let known = extraction_prompt::nearest(known, &shown, KNOWN);
        let extraction = &store.settings.extraction;
        let prompt =
            extraction_prompt::prompt(extraction.prompt.as_deref(), &shown, &known, extraction.max_facts);
        let max_tokens = FACT_TOKENS * extraction.max_facts as i64;
        let keep = Keep {
            tenant_id: tenant_id.clone(),
            memory,
            subject: settings.subject,
            llm: llm.clone(),
            max_facts: extraction.max_facts,
            last,
            covered,
            turns: shown.into_turns(),
            known,
        };
        let store = Box::new(move |answer: &str| keep.keep(answer));
        Ok(Next::Ask(Asked { llm, max_tokens, prompt, version: depth, store, give_up: None }))
    }
}

/// What is needed to store the facts of an answer.
struct Keep {
    tenant_id: String,
    memory: String,
    subject: String,
    llm: String,
    max_facts: usize,
    /// The id of the last turn that was read.
    last: String,
    covered: i64,
    turns: Vec<ShownTurn>,
    known: Vec<Known>,
}

impl Keep {
    fn keep(&self, answer: &str) -> Result<()> {
        let found = extraction_prompt::read(answer, &self.turns, self.covered, &self.known, self.max_facts)
            .map_err(|problem| Error::Service {
            kind: ServiceKind::Llm,
            id: self.llm.clone(),
            problem,
            passing: true,
        })?;
        let Some(Store { kb, .. }) = stores::of(&self.tenant_id, &self.memory)? else { return Ok(()) };
        let mut facts = Vec::new();
        let still = known::newest(&kb, &self.subject, COMPARED)?;
        for found in found {
            // A turn that was deleted since says nothing.
            let Some(turn) = turns::said(&self.tenant_id, &found.turn_id)? else { continue };
            let text = turn.content.as_ref().map(shown_turns::said).unwrap_or_default();
            let Some((start, end)) = extraction_prompt::span(&text, &found.quote) else { continue };
            let supersedes = found.supersedes.filter(|id| still.iter().any(|still| still.id == *id));
            let fact = Fact {
                fact: found.fact,
                subject: self.subject.clone(),
                tags: found.tags,
                confidence: Some(found.confidence),
                valid_from: Some(turn.said_at),
                supersedes,
                // The conversation is the turn's.
                source: Source {
                    turn_id: Some(found.turn_id),
                    start: Some(start),
                    end: Some(end),
                    ..Source::default()
                },
                ..Fact::default()
            };
            facts.push((String::new(), fact));
        }
        if extractions::insert(&self.tenant_id, &self.last, facts.len(), &self.llm)? && !facts.is_empty() {
            remember::remember_in(&kb, facts)?;
        }
        Ok(())
    }
}
