//! Explains at which stage candidates were dropped, and why.

use super::journal::{Notes, Passed};
use super::request::AnswerBounds;
use kb_types::Hit;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// The most dropped candidates that are listed.
const MOST_NAMED: usize = 100;

/// The stages of recall. A candidate that only one of them finds was not dropped by the other.
const LEGS: [&str; 2] = ["dense", "keyword"];

/// A candidate that a stage dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropped {
    pub chunk_id: Uuid,
    pub external_id: String,
    pub stage: &'static str,
    pub why: String,
}

/// All dropped candidates, in their order before the stage that dropped them.
pub fn dropped(notes: &Notes, bounds: &AnswerBounds) -> Vec<Dropped> {
    let mut dropped = Vec::new();
    let stages = stages(notes);
    let reranked = reranked(&stages);
    for pair in stages.windows(2) {
        let ((_, before), (stage, after)) = (&pair[0], &pair[1]);
        let kept: HashSet<Uuid> = after.iter().map(|passed| passed.chunk_id).collect();
        let mut first: HashMap<&[u8], &Passed> = HashMap::new();
        for passed in after.iter().chain(before) {
            first.entry(&passed.content_hash).or_insert(passed);
        }
        for (place, passed) in before.iter().enumerate().filter(|(_, p)| !kept.contains(&p.chunk_id)) {
            let same = first.get(passed.content_hash.as_slice()).filter(|p| p.chunk_id != passed.chunk_id);
            let why =
                notes.reasons.get(&passed.chunk_id).cloned().unwrap_or_else(|| match (passed.score, same) {
                    (Some(score), _) if score < bounds.min_score => {
                        format!("its score {score} is below min_score, {}", bounds.min_score)
                    }
                    (_, Some(other)) if bounds.dedupe => {
                        format!("chunk {} of \"{}\" has the same text", other.chunk_id, other.external_id)
                    }
                    _ => reason(stage, place + 1, bounds, reranked.get(&passed.chunk_id)),
                });
            let (chunk_id, external_id) = (passed.chunk_id, passed.external_id.clone());
            dropped.push(Dropped { chunk_id, external_id, stage, why });
        }
    }
    dropped
}

/// The part of a row that a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPart {
    Hit,
    /// A chunk around the hit, where the text of the row spans several chunks.
    Surroundings,
}

/// The rank, from 1, of the row that contains a chunk, and which part of the row the chunk is. None if no row
/// contains it.
pub fn rank(hits: &[Hit], chunk_id: Uuid) -> Option<(usize, RowPart)> {
    let rank_where = |is_it: &dyn Fn(&Hit) -> bool| Some(hits.iter().position(is_it)? + 1);
    let id = chunk_id.to_string();
    let holds = |hit: &Hit| match hit.row.locator.get("chunk_ids") {
        Some(Value::Array(ids)) => ids.iter().any(|other| *other == id),
        _ => false,
    };
    let own = rank_where(&|hit| hit.chunk_id == chunk_id).map(|rank| (rank, RowPart::Hit));
    own.or_else(|| Some((rank_where(&holds)?, RowPart::Surroundings)))
}

/// The first dropped candidates, and their number.
pub fn dropped_json(dropped: &[Dropped]) -> Value {
    let named = |dropped: &Dropped| {
        json!({
            "chunk_id": dropped.chunk_id.to_string(),
            "external_id": dropped.external_id,
            "stage": dropped.stage,
            "why": dropped.why,
        })
    };
    let first: Vec<Value> = dropped.iter().take(MOST_NAMED).map(named).collect();
    json!({"count": dropped.len(), "chunks": first})
}

/// Each stage with the candidates after it. The stages of recall are combined.
fn stages(notes: &Notes) -> Vec<(&'static str, Vec<Passed>)> {
    let mut found: Vec<Passed> = Vec::new();
    let mut seen = HashSet::new();
    let legs = notes.stages.iter().filter(|(name, _)| LEGS.contains(name));
    for passed in legs.flat_map(|(_, passed)| passed) {
        if seen.insert(passed.chunk_id) {
            found.push(passed.clone());
        }
    }
    let later = notes.stages.iter().filter(|(name, _)| !LEGS.contains(name)).cloned();
    [("recall", found)].into_iter().chain(later).collect()
}

/// The places of candidates, from 1, before and after the reranker.
fn reranked(stages: &[(&'static str, Vec<Passed>)]) -> HashMap<Uuid, (usize, usize)> {
    let Some(n) = stages.iter().position(|(name, _)| *name == "rerank") else { return HashMap::new() };
    let places = |n: usize| {
        let passed = stages.get(n).map_or(&[][..], |(_, passed)| passed);
        passed.iter().map(|passed| passed.chunk_id).zip(1..).collect::<HashMap<Uuid, usize>>()
    };
    let before = n.checked_sub(1).map(places).unwrap_or_default();
    let after = places(n).into_iter();
    after.filter_map(|(id, after)| Some((id, (*before.get(&id)?, after)))).collect()
}

/// The reason why a stage drops a candidate at this place, given the places before and after the reranker.
fn reason(stage: &str, place: usize, bounds: &AnswerBounds, reranked: Option<&(usize, usize)>) -> String {
    match stage {
        "shape" if place > bounds.top_k && reranked.is_some_and(|(before, after)| before < after) => {
            let (before, after) = reranked.copied().unwrap_or_default();
            format!(
                "the reranker moved it from place {before} to place {after}; it is candidate {place}, and top_k is {}",
                bounds.top_k
            )
        }
        "diversity" => "equally relevant rows are less similar to one another (mmr)".to_string(),
        "shape" if place > bounds.top_k => format!("it is candidate {place}, and top_k is {}", bounds.top_k),
        "shape" => match bounds.max_tokens {
            Some(most) => format!(
                "it is candidate {place}, and does not fit into the part of max_tokens ({most}) that better rows leave"
            ),
            None => format!("it is candidate {place}"),
        },
        "surround" => "it is part of the row of an adjacent chunk".to_string(),
        _ => format!("it is candidate {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::Journal;
    use super::super::{dedupe, shape, test_candidate};
    use super::*;
    use crate::answer_limits;

    #[test]
    fn a_dropped_candidate_has_its_stage_and_reason() {
        let all: Vec<_> = [("a", 0.9, 5), ("a", 0.85, 5), ("b", 0.8, 5), ("c", 0.7, 5), ("d", 0.2, 5)]
            .map(|(text, score, tokens)| test_candidate(text, score, tokens))
            .to_vec();
        let bounds = AnswerBounds { top_k: 2, min_score: 0.5, max_tokens: Some(9), dedupe: true };
        let journal = Journal::open(true);
        journal.stage("dense", &all[..4]);
        journal.stage("keyword", &all[2..]);
        let distinct = dedupe::distinct(all.clone());
        journal.stage("fuse", &distinct);
        journal.stage("shape", &answer_limits::trim(distinct, &bounds));
        let notes = journal.into_notes();
        let found = dropped(&notes, &bounds);
        let told: Vec<(&str, &str)> = found.iter().map(|d| (d.stage, d.why.as_str())).collect();
        let same = format!("chunk {} of \"d\" has the same text", all[0].chunk_id);
        assert_eq!(
            told,
            [
                ("fuse", same.as_str()),
                (
                    "shape",
                    "it is candidate 2, and does not fit into the part of max_tokens (9) that better rows leave"
                ),
                ("shape", "it is candidate 3, and top_k is 2"),
                ("shape", "its score 0.2 is below min_score, 0.5"),
            ]
        );
        assert_eq!(dropped_json(&found)["count"], 4);
    }

    #[test]
    fn a_candidate_that_the_reranker_moved_down_is_attributed_to_it() {
        let [a, b, c] = [("a", 0.9, 1), ("b", 0.8, 1), ("c", 0.7, 1)]
            .map(|(text, score, tokens)| test_candidate(text, score, tokens));
        let bounds = AnswerBounds { top_k: 1, min_score: 0.0, max_tokens: None, dedupe: true };
        let journal = Journal::open(true);
        journal.stage("dense", &[a.clone(), b.clone(), c.clone()]);
        journal.stage("rerank", &[c.clone(), a, b]);
        journal.stage("shape", &[c]);
        let found = dropped(&journal.into_notes(), &bounds);
        let told: Vec<&str> = found.iter().map(|d| d.why.as_str()).collect();
        assert_eq!(
            told,
            [
                "the reranker moved it from place 1 to place 2; it is candidate 2, and top_k is 1",
                "the reranker moved it from place 2 to place 3; it is candidate 3, and top_k is 1",
            ]
        );
    }

    #[test]
    fn a_chunk_belongs_to_the_row_whose_hit_or_surroundings_it_is() {
        let all = [test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1), test_candidate("c", 0.7, 1)];
        let [a, b, c] = all.clone().map(|candidate| candidate.chunk_id);
        let mut hits = shape::hits(all[..2].to_vec(), "kb", false);
        assert_eq!((rank(&hits, b), rank(&hits, c)), (Some((2, RowPart::Hit)), None));
        hits[1].row.locator["chunk_ids"] = json!([b.to_string(), c.to_string()]);
        assert_eq!(
            [a, b, c].map(|id| rank(&hits, id)),
            [Some((1, RowPart::Hit)), Some((2, RowPart::Hit)), Some((2, RowPart::Surroundings))]
        );
    }

    #[test]
    fn the_reason_that_a_stage_gives_comes_first() {
        let all = [test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1)];
        let bounds = AnswerBounds { top_k: 5, min_score: 0.0, max_tokens: None, dedupe: true };
        let journal = Journal::open(true);
        journal.stage("dense", &all);
        journal.reason(all[1].chunk_id, || "of its document there are too many".into());
        journal.stage("diversity", &all[..1]);
        let found = dropped(&journal.into_notes(), &bounds);
        assert_eq!((found.len(), found[0].why.as_str()), (1, "of its document there are too many"));
    }
}
