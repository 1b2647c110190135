//! The answers of several knowledge bases become one.

use crate::model::Hit;
use serde_json::{Value, json};
use std::collections::HashMap;

/// As in reciprocal rank fusion of modes (Cormack, Clarke, Büttcher 2009): a larger one makes the first ranks less important.
const K: f64 = 60.0;

/// The rows of all answers, each of which comes best first, in the order of their ranks there; of equal ranks in the order of
/// the answers. Scores are not compared: those of different embedders mean different things. A text that several
/// knowledge bases have counts once, as its best row: a copy is no vote for it. The locator says where else it is, as far as that is
/// among the rows that are kept meanwhile. A text that one of them answers several times stays so often.
pub struct Fusion {
    top_k: usize,
    answers: usize,
    rows: Vec<Row>,
}

struct Row {
    /// Which row of a text it is in its answer, from 0, and the text's hash.
    text: ([u8; 32], usize),
    rank: u32,
    answer: usize,
    hit: Hit,
}

impl Fusion {
    /// Of `top_k` rows at most: no more are kept from one answer to the next.
    pub fn new(top_k: usize) -> Fusion {
        Fusion { top_k, answers: 0, rows: Vec::new() }
    }

    pub fn add(&mut self, hits: Vec<Hit>) {
        let answer = self.answers;
        self.answers += 1;
        let mut places: HashMap<([u8; 32], usize), usize> =
            self.rows.iter().zip(0..).map(|(row, place)| (row.text, place)).collect();
        let mut counts: HashMap<[u8; 32], usize> = HashMap::new();
        for (rank, hit) in (1u32..).zip(hits) {
            let hash = *blake3::hash(hit.row.content.as_bytes()).as_bytes();
            // The second row of a text in one answer is the text's second row.
            let count = counts.entry(hash).or_default();
            let text = (hash, *count);
            *count += 1;
            match places.get(&text).map(|place| &mut self.rows[*place]) {
                Some(row) if row.rank <= rank => also_in(&mut row.hit, &hit),
                Some(row) => {
                    let other = std::mem::replace(row, Row { text, rank, answer, hit });
                    also_in(&mut row.hit, &other.hit);
                }
                None => {
                    places.insert(text, self.rows.len());
                    self.rows.push(Row { text, rank, answer, hit });
                }
            }
        }
        self.rows.sort_by_key(|row| (row.rank, row.answer));
        self.rows.truncate(self.top_k);
    }

    /// The last rows go until the rest have at most `max_tokens` together.
    pub fn finish(self, max_tokens: Option<usize>) -> Vec<Hit> {
        let score = |rank: u32| Some(1.0 / (K + f64::from(rank)));
        let hit = |row: Row| Hit { rank_score: score(row.rank), ..row.hit };
        let mut rows: Vec<Hit> = self.rows.into_iter().map(hit).collect();
        let size = |hit: &Hit| hit.row.token_count.max(0) as usize;
        let mut tokens: usize = rows.iter().map(size).sum();
        while max_tokens.is_some_and(|most| tokens > most) {
            let Some(last) = rows.pop() else { break };
            tokens -= size(&last);
        }
        rows
    }
}

/// Names another row's place in a row's locator, and the other places that this one has named.
fn also_in(row: &mut Hit, other: &Hit) {
    let Value::Object(locator) = &mut row.row.locator else { return };
    let places = locator.entry("also_in").or_insert_with(|| json!([]));
    let Value::Array(places) = places else { return };
    places.push(json!({
        "kb_id": other.kb_id,
        "external_id": other.row.external_id,
        "chunk_id": other.chunk_id.to_string(),
    }));
    for place in other.row.locator["also_in"].as_array().into_iter().flatten() {
        let mut place = place.clone();
        place["kb_id"] = json!(other.kb_id);
        places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::AnswerBounds;
    use super::super::{fuse, shape, test_candidate};
    use super::*;

    fn answer(kb_id: &str, texts: &[&str], score: f64) -> Vec<Hit> {
        let candidates = texts.iter().map(|text| test_candidate(text, score, 10)).collect();
        let bounds = AnswerBounds { top_k: 9, min_score: -1e9, max_tokens: None, dedupe: true };
        shape::hits(shape::choose(fuse::of_one(candidates), &bounds), kb_id, false)
    }

    fn fused(answers: Vec<Vec<Hit>>, top_k: usize, max_tokens: Option<usize>) -> Vec<Hit> {
        let mut fusion = Fusion::new(top_k);
        answers.into_iter().for_each(|answer| fusion.add(answer));
        fusion.finish(max_tokens)
    }

    fn texts(hits: &[Hit]) -> Vec<String> {
        hits.iter().map(|hit| format!("{}:{}", hit.kb_id, hit.row.content)).collect()
    }

    #[test]
    fn ranks_decide_and_not_scores() {
        let answers = vec![answer("a", &["1", "2", "3"], 0.1), answer("b", &["x", "y"], 250.0)];
        let rows = fused(answers.clone(), 9, None);
        assert_eq!(texts(&rows), ["a:1", "b:x", "a:2", "b:y", "a:3"]);
        assert!(rows.is_sorted_by(|l, r| l.rank_score >= r.rank_score));
        assert_eq!((rows[0].score, rows[1].score), (Some(0.1), Some(250.0)));
        assert_eq!(texts(&fused(answers.clone(), 3, None)).len(), 3);
        assert_eq!(texts(&fused(answers, 9, Some(25))), ["a:1", "b:x"]);
        assert!(fused(vec![vec![], vec![]], 5, None).is_empty());
    }

    #[test]
    fn a_text_of_several_counts_once_where_it_is_best() {
        let rows = fused(vec![answer("a", &["1", "same"], 0.9), answer("b", &["same", "2"], 0.2)], 9, None);
        assert_eq!(texts(&rows), ["a:1", "b:same", "b:2"]);
        assert_eq!(rows[1].row.locator["also_in"][0]["kb_id"], "a");
        // Whichever order they come in, and however few are kept meanwhile.
        let all = [
            answer("b", &["same", "2"], 0.2),
            answer("a", &["1", "same"], 0.9),
            answer("c", &["3", "1"], 0.5),
        ];
        assert_eq!(texts(&fused(all.to_vec(), 2, None)), ["b:same", "a:1"]);
        assert_eq!(texts(&fused(all.to_vec(), 9, None)), ["b:same", "a:1", "c:3", "b:2"]);
    }

    #[test]
    fn a_text_that_one_has_several_times_stays_so_often_and_its_other_places_are_named() {
        let several = |kb_id: &str, texts: &[&str]| {
            let mut hits = answer(kb_id, &["x"; 0], 0.5);
            texts.iter().for_each(|text| hits.extend(answer(kb_id, &[text], 0.5)));
            hits
        };
        let mut other = several("b", &["same"]);
        other[0].row.locator = json!({"also_in": [{"external_id": "again"}]});
        let rows = fused(vec![several("a", &["same", "same", "same", "1"]), other], 4, None);
        assert_eq!(texts(&rows), ["a:same", "a:same", "a:same", "a:1"]);
        let places = rows[0].row.locator["also_in"].as_array().unwrap();
        let named = |place: &Value| (place["kb_id"].clone(), place["external_id"].clone());
        assert_eq!((named(&places[1]), places.len()), ((json!("b"), json!("again")), 2));
        assert!(rows[1].row.locator["also_in"].is_null());
    }
}
