//! Records what happens to a question in each stage, for kb.explain.

use kb_types::{Candidate, Hit};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The journal of one question. A closed journal records nothing and costs nothing.
pub struct Journal {
    notes: Option<RefCell<Notes>>,
    /// Whether it may record what depends on rows that the caller may not read.
    tells_all: bool,
}

/// The contents of a journal.
#[derive(Debug, Default)]
pub struct Notes {
    /// The total time of each step, in the order in which the steps first began.
    pub times: Vec<(&'static str, Duration)>,
    /// What each part of retrieval did, by the name of the part.
    pub parts: Map<String, Value>,
    /// The candidates after each stage, in order. If a stage runs again for more rows, its last run counts.
    pub stages: Vec<(&'static str, Vec<Passed>)>,
    /// The reasons for which stages dropped chunks, where they give one.
    pub reasons: HashMap<Uuid, String>,
}

/// A candidate that passed a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Passed {
    pub chunk_id: Uuid,
    pub external_id: String,
    pub content_hash: Vec<u8>,
    pub score: Option<f64>,
}

impl Journal {
    /// `tells_all` must be true only if the caller may read every row.
    pub fn open(tells_all: bool) -> Journal {
        Journal { notes: Some(RefCell::default()), tells_all }
    }

    pub fn closed() -> Journal {
        Journal { notes: None, tells_all: false }
    }

    pub fn tells_all(&self) -> bool {
        self.tells_all
    }

    /// The contents, which are empty for a closed journal.
    pub fn into_notes(self) -> Notes {
        self.notes.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Runs a step, and adds the time that it takes to the total of the step.
    pub fn time<T>(&self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let Some(notes) = &self.notes else { return work() };
        let begun = Instant::now();
        // A step gets its place in the list when it begins.
        let place = {
            let times = &mut notes.borrow_mut().times;
            times.iter().position(|(name, _)| *name == step).unwrap_or_else(|| {
                times.push((step, Duration::ZERO));
                times.len() - 1
            })
        };
        let done = work();
        notes.borrow_mut().times[place].1 += begun.elapsed();
        done
    }

    /// Sets the value of a key of a part.
    pub fn note(&self, part: &str, key: &str, value: impl FnOnce() -> Value) {
        if let Some(notes) = &self.notes {
            let value = value();
            let mut notes = notes.borrow_mut();
            let part = notes.parts.entry(part).or_insert_with(|| Value::Object(Map::new()));
            part[key] = value;
        }
    }

    /// Appends to the list under a key of a part.
    pub fn add(&self, part: &str, key: &str, value: impl FnOnce() -> Value) {
        if let Some(notes) = &self.notes {
            let value = value();
            let mut notes = notes.borrow_mut();
            let part = notes.parts.entry(part).or_insert_with(|| Value::Object(Map::new()));
            match &mut part[key] {
                Value::Array(list) => list.push(value),
                none => *none = Value::Array(vec![value]),
            }
        }
    }

    /// Adds to the number under a key of a part.
    pub fn count(&self, part: &str, key: &str, more: usize) {
        if let Some(notes) = &self.notes {
            let mut notes = notes.borrow_mut();
            let part = notes.parts.entry(part).or_insert_with(|| Value::Object(Map::new()));
            part[key] = (part[key].as_u64().unwrap_or(0) + more as u64).into();
        }
    }

    /// Records the candidates after a stage.
    pub fn stage(&self, name: &'static str, candidates: &[Candidate]) {
        if let Some(notes) = &self.notes {
            let passed = candidates.iter().filter_map(Passed::of).collect();
            let stages = &mut notes.borrow_mut().stages;
            stages.retain(|(stage, _)| *stage != name);
            stages.push((name, passed));
        }
    }

    /// Records the rows of the answer after a stage.
    pub fn rows(&self, name: &'static str, hits: &[Hit]) {
        if let Some(notes) = &self.notes {
            let passed = |hit: &Hit| Passed {
                chunk_id: hit.chunk_id,
                external_id: hit.row.external_id.clone(),
                content_hash: hit.row.content_hash.clone(),
                score: hit.score,
            };
            notes.borrow_mut().stages.push((name, hits.iter().map(passed).collect()));
        }
    }

    /// Records why the current stage drops a chunk.
    pub fn reason(&self, chunk_id: Uuid, reason: impl FnOnce() -> String) {
        if let Some(notes) = &self.notes {
            let reason = reason();
            notes.borrow_mut().reasons.insert(chunk_id, reason);
        }
    }
}

impl Passed {
    /// None if the caller may not read the candidate.
    fn of(candidate: &Candidate) -> Option<Passed> {
        let head = candidate.head.as_ref()?;
        Some(Passed {
            chunk_id: candidate.chunk_id,
            external_id: head.external_id.clone(),
            content_hash: head.content_hash.clone(),
            score: candidate.score(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_candidate;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_run_of_a_stage_counts() {
        let journal = Journal::open(true);
        let (a, b) = (test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1));
        journal.stage("recall", std::slice::from_ref(&a));
        journal.stage("recall", &[a, b, Candidate::new(Uuid::nil())]);
        journal.add("dense", "scans", || json!(1));
        journal.add("dense", "scans", || json!(2));
        journal.note("dense", "vectors", || json!(3));
        journal.count("dense", "rows", 2);
        journal.count("dense", "rows", 5);
        assert_eq!(journal.time("one", || 5) + journal.time("two", || 6) + journal.time("one", || 1), 12);
        let notes = journal.into_notes();
        assert_eq!(notes.stages.len(), 1);
        assert_eq!(notes.stages[0].1.len(), 2, "what the caller may not read is not written down");
        assert_eq!(Value::Object(notes.parts), json!({"dense": {"scans": [1, 2], "vectors": 3, "rows": 7}}));
        assert_eq!(notes.times.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_closed_journal_computes_nothing() {
        let journal = Journal::closed();
        journal.note("a", "b", || panic!("made for nothing"));
        journal.add("a", "b", || panic!("made for nothing"));
        journal.reason(Uuid::nil(), || panic!("made for nothing"));
        journal.stage("recall", &[test_candidate("a", 0.9, 1)]);
        assert_eq!(journal.time("step", || 1), 1);
        let notes = journal.into_notes();
        assert!(notes.times.is_empty() && notes.stages.is_empty() && notes.parts.is_empty());
    }
}
