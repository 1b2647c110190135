//! Makes the rows of an answer from ranked candidates: drops equal texts, applies limits and fills in
//! locators.

use super::dedupe;
use super::request::AnswerBounds;
use crate::answer_limits;
use kb_types::candidate::Found;
use kb_types::{Candidate, Hit};
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::Uuid;

/// Chooses the candidates, which come best first, that are in the answer.
pub fn choose(mut candidates: Vec<Candidate>, bounds: &AnswerBounds) -> Vec<Candidate> {
    if bounds.dedupe {
        candidates = dedupe::distinct(candidates);
    }
    answer_limits::trim(candidates, bounds)
}

/// The rows of an answer. A candidate without a row, which the caller may not read, is left out. With
/// `explain` each locator shows the rank and score by meaning and by words (`ranks`).
pub fn hits(candidates: Vec<Candidate>, kb_id: &str, explain: bool) -> Vec<Hit> {
    let hit = |candidate: Candidate| {
        let (score, ranks) = (candidate.score(), explain.then(|| ranks(&candidate)));
        let Candidate { chunk_id, word_share, rank_score, row, .. } = candidate;
        let mut hit = Hit { kb_id: kb_id.to_string(), chunk_id, score, word_share, rank_score, row: row? };
        if let Some(ranks) = ranks {
            add_to_locator(&mut hit, "ranks", ranks);
        }
        Some(hit)
    };
    candidates.into_iter().filter_map(hit).collect()
}

fn ranks(candidate: &Candidate) -> Value {
    let sources =
        [("dense", candidate.dense), ("keyword", candidate.keyword), ("rerank", candidate.reranked)];
    let has = |(name, found): (&str, Option<Found>)| {
        found.map(|found| (name.to_string(), json!({ "rank": found.rank, "score": found.score })))
    };
    Value::Object(sources.into_iter().filter_map(has).collect())
}

/// Adds to each locator the other places of its text: `also_in`, a list of external_id and chunk_id. `places`
/// has (content hash, chunk id, external id).
pub fn add_places(hits: &mut [Hit], places: Vec<(Vec<u8>, Uuid, String)>) {
    let mut by_hash: HashMap<Vec<u8>, Vec<(Uuid, String)>> = HashMap::new();
    for (hash, chunk_id, external_id) in places {
        by_hash.entry(hash).or_default().push((chunk_id, external_id));
    }
    for hit in hits {
        let Some(all) = by_hash.get(&hit.row.content_hash) else { continue };
        let others: Vec<Value> = all
            .iter()
            .filter(|(chunk_id, _)| *chunk_id != hit.chunk_id)
            .map(|(chunk_id, external_id)| {
                json!({ "external_id": external_id, "chunk_id": chunk_id.to_string() })
            })
            .collect();
        if !others.is_empty() {
            add_to_locator(hit, "also_in", Value::Array(others));
        }
    }
}

/// Adds to each locator that no vectors were compared, and why.
pub fn mark_keyword(hits: &mut [Hit], reason: &str) {
    for hit in hits {
        add_to_locator(hit, "answered_by", json!("keyword"));
        add_to_locator(hit, "reason", json!(reason));
    }
}

/// Adds to each locator why no reranker has ordered the rows.
pub fn mark_not_reranked(hits: &mut [Hit], reason: &str) {
    for hit in hits {
        add_to_locator(hit, "rerank_status", json!(reason));
    }
}

/// Adds to each locator that the phrases of the question were not required.
pub fn mark_without_phrases(hits: &mut [Hit]) {
    for hit in hits {
        add_to_locator(
            hit,
            "phrase_status",
            json!(
                "no chunk contains the quoted words in that order, so each word is searched for separately"
            ),
        );
    }
}

/// Adds to each locator that only the words at the beginning of a long question were searched for.
pub fn mark_words_left_out(hits: &mut [Hit], count: usize) {
    for hit in hits {
        let status = format!("{count} distinct words at the end of the question were ignored");
        add_to_locator(hit, "words_status", json!(status));
    }
}

/// Adds to each locator why the question was not reworded.
pub fn mark_not_reworded(hits: &mut [Hit], reason: &str) {
    for hit in hits {
        add_to_locator(hit, "transform_status", json!(reason));
    }
}

/// Adds to each locator the id under which the question is logged.
pub fn mark_logged(hits: &mut [Hit], query_id: Uuid) {
    for hit in hits {
        add_to_locator(hit, "query_id", json!(query_id.to_string()));
    }
}

fn add_to_locator(hit: &mut Hit, key: &str, value: Value) {
    if let Value::Object(locator) = &mut hit.row.locator {
        locator.insert(key.into(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuse::of_one;
    use super::super::test_candidate;
    use super::*;

    fn shaped(candidates: Vec<Candidate>, dedupe: bool) -> Vec<Hit> {
        let bounds = AnswerBounds { top_k: 2, min_score: 0.5, max_tokens: None, dedupe };
        hits(choose(of_one(candidates), &bounds), "kb", false)
    }

    #[test]
    fn equal_texts_are_dropped_before_top_k_is_applied() {
        let candidates =
            vec![test_candidate("a", 0.9, 1), test_candidate("a", 0.8, 1), test_candidate("b", 0.7, 1)];
        let scores = |hits: Vec<Hit>| hits.iter().map(|hit| hit.score).collect::<Vec<_>>();
        assert_eq!(scores(shaped(candidates.clone(), true)), [Some(0.9), Some(0.7)]);
        assert_eq!(scores(shaped(candidates, false)), [Some(0.9), Some(0.8)]);
    }

    #[test]
    fn a_candidate_without_a_row_is_not_in_the_answer() {
        let hidden = Candidate { head: None, row: None, ..test_candidate("a", 0.9, 1) };
        assert_eq!(shaped(vec![hidden, test_candidate("b", 0.7, 1)], false).len(), 1);
    }

    #[test]
    fn with_explain_locators_have_ranks() {
        let bounds = AnswerBounds { top_k: 2, min_score: 0.5, max_tokens: None, dedupe: true };
        let hits = hits(choose(of_one(vec![test_candidate("a", 0.75, 1)]), &bounds), "kb", true);
        assert_eq!(hits[0].row.locator, json!({"ranks": {"dense": {"rank": 1, "score": 0.75}}}));
    }

    #[test]
    fn locators_name_other_places_and_keywords() {
        let mut hits = shaped(vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.8, 1)], true);
        let (hash, own) = (hits[0].row.content_hash.clone(), hits[0].chunk_id);
        add_places(&mut hits, vec![(hash.clone(), own, "d".into()), (hash, Uuid::nil(), "e".into())]);
        let elsewhere = json!([{ "external_id": "e", "chunk_id": Uuid::nil().to_string() }]);
        assert_eq!(hits[0].row.locator, json!({ "also_in": elsewhere }));
        assert_eq!(hits[1].row.locator, json!({}));
        mark_keyword(&mut hits, "the provider is down");
        let expected = json!({ "answered_by": "keyword", "reason": "the provider is down" });
        assert_eq!(hits[1].row.locator, expected);
    }
}
