//! kb.explain: how a question was answered, and why a chunk is not in the answer.

use super::query::{Answer, answer};
use crate::pg::role;
use crate::query::dense;
use crate::query::keyword;
use crate::query::keyword::ByWords;
use crate::query::removed_rows::without_removed;
use crate::query::sql::filtered_chunks::FilteredChunks;
use crate::query::sql::named_chunks;
use crate::query::sql::named_chunks::NamedChunk;
use crate::query::sql::search;
use crate::query::sql::search::CandidateCondition;
use kb_search::explanation::{Dropped, RowPart, dropped, dropped_json, rank};
use kb_search::journal::{Journal, Notes};
use kb_search::request::{AnswerBounds, Request};
use kb_types::error::Result;
use kb_types::{Candidate, Hit, Mode};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use uuid::Uuid;

/// The rank of a named chunk is reported up to this number.
const RANKED: usize = 1_000;
/// The most chunks of a named document.
const MOST_CHUNKS: usize = 100;

/// What the caller misses in the answer.
pub enum Named<'a> {
    Document(&'a str),
    Chunk(Uuid),
}

/// Answers a question as kb.query does, and reports how: settings, scans, candidates for each leg and stage,
/// what was left out and why, and times. For what is named, reports why it is not in the answer.
pub fn explain(request: &Request, question: &str, named: Option<Named>) -> Result<Value> {
    let mut request = request.clone();
    request.explain = true;
    let request = &request;
    let journal = Journal::open(role::bypasses_policies());
    let begun = Instant::now();
    let answer = answer(request, question, &journal)?;
    let total = begun.elapsed();
    let notes = journal.into_notes();
    let dropped = dropped(&notes, &answer.bounds);
    let about = named.map(|named| about(&answer, request, question, &notes, &dropped, named)).transpose()?;

    let milliseconds = |time: std::time::Duration| json!((time.as_secs_f64() * 1e6).round() / 1e3);
    let mut times: Map<String, Value> =
        notes.times.iter().map(|(step, time)| (step.to_string(), milliseconds(*time))).collect();
    times.insert("total".into(), milliseconds(total));
    let stages: Vec<Value> = notes
        .stages
        .iter()
        .map(|(stage, passed)| json!({"stage": stage, "candidates": passed.len()}))
        .collect();
    let mut explanation = json!({
        "kb_id": answer.target.kb_id,
        "mode": answer.target.retrieval.mode,
        "settings": answer.target.retrieval.to_json(),
        "stages": stages,
        "hits": (1..).zip(&answer.hits).map(hit_json).collect::<Vec<Value>>(),
        "dropped": dropped_json(&dropped),
        "milliseconds": times,
    });
    for (part, says) in notes.parts {
        explanation[part] = says;
    }
    if let Some(about) = about {
        explanation["asked_about"] = about;
    }
    Ok(explanation)
}

fn hit_json((rank, hit): (usize, &Hit)) -> Value {
    json!({
        "rank": rank,
        "chunk_id": hit.chunk_id.to_string(),
        "external_id": hit.row.external_id,
        "score": hit.score,
        "rank_score": hit.rank_score,
        "token_count": hit.row.token_count,
        "stale": hit.row.stale,
        "locator": hit.row.locator,
    })
}

/// Why the named chunk or document is in the answer, or is not.
fn about(
    answer: &Answer,
    request: &Request,
    question: &str,
    notes: &Notes,
    dropped: &[Dropped],
    named: Named,
) -> Result<Value> {
    let target = &answer.target;
    match named {
        Named::Chunk(chunk_id) => Ok(match named_chunks::of_id(target, chunk_id)? {
            None => json!({
                "chunk_id": chunk_id.to_string(),
                "why": "the knowledge base has no chunk with this id that the caller may read",
            }),
            Some(chunk) => {
                Standing::look(answer, request, question, (notes, dropped), &[chunk])?.json().remove(0)
            }
        }),
        Named::Document(external_id) => {
            let documents = named_chunks::documents(target, external_id)?;
            let mut chunks = named_chunks::of_document(target, external_id, MOST_CHUNKS + 1)?;
            let more = chunks.len() > MOST_CHUNKS;
            chunks.truncate(MOST_CHUNKS);
            let why = match documents.first() {
                None => Some(
                    "the knowledge base has no document with this external_id that the caller may read"
                        .to_string(),
                ),
                Some(document) if chunks.is_empty() => Some(match &document.error {
                    Some(error) => format!("it has no chunks; its status is {}: {error}", document.status),
                    None => format!("it has no chunks; its status is {}", document.status),
                }),
                Some(_) => None,
            };
            let standing = Standing::look(answer, request, question, (notes, dropped), &chunks)?;
            let statuses: Vec<&str> = documents.iter().map(|document| document.status.as_str()).collect();
            Ok(json!({
                "external_id": external_id,
                "status": statuses,
                "why": why,
                "chunks": standing.json(),
                "has_more_chunks": more,
            }))
        }
    }
}

/// What is known about the named chunks.
struct Standing<'a> {
    answer: &'a Answer,
    notes: &'a Notes,
    dropped: &'a [Dropped],
    chunks: &'a [NamedChunk],
    /// Chunks whose row exists, with the hash of their text, and those that pass the filter.
    present: HashMap<Uuid, Vec<u8>>,
    passing: HashSet<Uuid>,
    similarities: HashMap<Uuid, f64>,
    /// Their scores by words, for those that contain any.
    by_words: HashMap<Uuid, f64>,
    /// Their ranks among the first by meaning and by words.
    dense_ranks: HashMap<Uuid, usize>,
    keyword_ranks: HashMap<Uuid, usize>,
}

impl<'a> Standing<'a> {
    fn look(
        answer: &'a Answer,
        request: &Request,
        question: &str,
        (notes, dropped): (&'a Notes, &'a [Dropped]),
        chunks: &'a [NamedChunk],
    ) -> Result<Standing<'a>> {
        let Answer { target, vector, .. } = answer;
        let filter = request.filter.as_ref();
        let ids: Vec<Uuid> = chunks.iter().map(|chunk| chunk.chunk_id).collect();
        let candidates: Vec<Candidate> = ids.iter().map(|id| Candidate::new(*id)).collect();
        let condition = CandidateCondition { filter, ..CandidateCondition::default() };
        let passing = search::heads_where(target, candidates.clone(), &condition)?;
        let mut standing = Standing {
            answer,
            notes,
            dropped,
            chunks,
            present: without_removed(search::heads(target, candidates)?)?
                .into_iter()
                .filter_map(|candidate| Some((candidate.chunk_id, candidate.head?.content_hash)))
                .collect(),
            passing: passing.iter().map(|candidate| candidate.chunk_id).collect(),
            similarities: HashMap::new(),
            by_words: HashMap::new(),
            dense_ranks: HashMap::new(),
            keyword_ranks: HashMap::new(),
        };
        if ids.is_empty() {
            return Ok(standing);
        }
        let ranks = |found: Vec<Candidate>| {
            (1..).zip(found).map(|(rank, c)| (c.chunk_id, rank)).collect::<HashMap<Uuid, usize>>()
        };
        if let Some(vector) = vector {
            standing.similarities = target.vector_db.store().similarities(target.build_no, vector, &ids)?;
            standing.dense_ranks = ranks(dense::nearest(target, vector, filter, RANKED)?);
        }
        if target.retrieval.mode != Mode::Dense || vector.is_none() {
            let scored = keyword::scored(target, question, &ids)?;
            standing.by_words = scored.iter().filter_map(|c| Some((c.chunk_id, c.keyword?.score))).collect();
            let first = AnswerBounds { top_k: RANKED, dedupe: false, ..answer.bounds };
            let filtered = filter.map(|filter| FilteredChunks::new(target, filter));
            let journal = Journal::closed();
            standing.keyword_ranks =
                ranks(ByWords::new(target, question, filtered.as_ref(), &journal)?.find(&first)?);
        }
        Ok(standing)
    }

    fn json(&self) -> Vec<Value> {
        self.chunks.iter().map(|chunk| self.of(chunk)).collect()
    }

    fn of(&self, chunk: &NamedChunk) -> Value {
        let id = chunk.chunk_id;
        let (rank, stage, why) = match rank(&self.answer.hits, id) {
            Some((rank, RowPart::Hit)) => (Some(rank), None, None),
            Some((rank, RowPart::Surroundings)) => {
                (Some(rank), None, Some(format!("it is a part of the passage of rank {rank}")))
            }
            None => {
                let (stage, why) = self.why_not(chunk);
                (None, Some(stage), Some(why))
            }
        };
        let mut says = json!({
            "chunk_id": id.to_string(),
            "external_id": chunk.external_id,
            "ordinal": chunk.ordinal,
            "rank": rank,
            "stage": stage,
            "why": why,
        });
        if self.answer.vector.is_some() {
            says["dense"] = json!({"score": self.similarities.get(&id), "rank": self.dense_ranks.get(&id)});
        }
        if self.looks_at_words() {
            says["keyword"] = json!({"score": self.by_words.get(&id), "rank": self.keyword_ranks.get(&id)});
        }
        says
    }

    fn looks_at_words(&self) -> bool {
        self.answer.target.retrieval.mode != Mode::Dense || self.answer.vector.is_none()
    }

    /// The stage that leaves a chunk out, and the reason.
    fn why_not(&self, chunk: &NamedChunk) -> (&'static str, String) {
        let id = &chunk.chunk_id;
        if !chunk.enabled {
            return ("enabled", "it is disabled".to_string());
        }
        let Some(content_hash) = self.present.get(id) else {
            return ("row", "its row of the attached table no longer exists".to_string());
        };
        if !self.passing.contains(id) {
            return ("filter", "it does not pass the filter".to_string());
        }
        if let Some(dropped) = self.dropped.iter().find(|dropped| dropped.chunk_id == *id) {
            return (dropped.stage, dropped.why.clone());
        }
        let same = |hit: &&Hit| hit.row.content_hash == *content_hash;
        if let Some(hit) = self.answer.hits.iter().find(same).filter(|_| self.answer.bounds.dedupe) {
            let why = format!("chunk {} of \"{}\" has the same text", hit.chunk_id, hit.row.external_id);
            return ("recall", why);
        }
        let mut reasons = Vec::new();
        if self.answer.vector.is_some() {
            reasons.push(self.why_not_by_meaning(id));
        }
        if self.looks_at_words() {
            reasons.push(self.why_not_by_words(id));
        }
        ("recall", reasons.join("; "))
    }

    /// The least number of candidates for which a leg searched. It is more than the leg begins with if later
    /// stages left out too many.
    fn looked_for(&self, leg: &str) -> usize {
        let retrieval = &self.answer.target.retrieval;
        let first = match retrieval.mode {
            Mode::Hybrid => retrieval.recalled().max(retrieval.hybrid.candidates),
            Mode::Dense | Mode::Keyword => retrieval.recalled(),
        };
        let found = self.notes.stages.iter().find(|(stage, _)| *stage == leg);
        found.map_or(0, |(_, passed)| passed.len()).max(first)
    }

    fn why_not_by_meaning(&self, id: &Uuid) -> String {
        let Some(score) = self.similarities.get(id) else {
            return "it has no vector yet".to_string();
        };
        match self.dense_ranks.get(id) {
            None => format!("by meaning more than {RANKED} chunks are nearer to the question"),
            Some(rank) if *score < self.answer.bounds.min_score => {
                format!("by meaning it has rank {rank}, and its score {score} is below min_score")
            }
            Some(rank) if *rank <= self.looked_for("dense") => format!(
                "by meaning it has rank {rank}, but the index missed it: a larger ef_search makes that less likely"
            ),
            Some(rank) => {
                format!(
                    "by meaning it has rank {rank}, and the number of candidates is {}",
                    self.looked_for("dense")
                )
            }
        }
    }

    fn why_not_by_words(&self, id: &Uuid) -> String {
        if !self.by_words.contains_key(id) {
            return "it does not contain the words of the question".to_string();
        }
        match self.keyword_ranks.get(id) {
            None => format!(
                "by words it ranks below the first {RANKED}, or lacks a phrase that the question requires"
            ),
            Some(rank) => {
                format!(
                    "by words it has rank {rank}, and the number of candidates is {}",
                    self.looked_for("keyword")
                )
            }
        }
    }
}
