//! Fuses the answers of several knowledge bases into one.

use super::ranks;
use crate::answer_limits::Room;
use kb_types::Hit;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::HashMap;

/// The constant of Reciprocal Rank Fusion (Cormack, Clarke, Büttcher 2009). A larger value makes the first
/// ranks less important.
const K: f64 = 60.0;

/// The measure by which rows of different knowledge bases are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// By similarity. The vectors must have the same fingerprint and metric.
    Similarity,
    /// By the share of the greatest possible score by words. All knowledge bases must be searched by words.
    Words,
    /// By both, weighted by alpha. All knowledge bases must be searched by meaning and by words, with vectors
    /// of the same fingerprint and metric.
    Both,
    /// By the scores of a reranker that has read all rows.
    Reranker,
    /// By ranks, because nothing else can be compared.
    Ranks,
}

/// An answer, best first, and the weight of its knowledge base.
#[derive(Debug, Clone)]
pub struct Answer {
    pub hits: Vec<Hit>,
    /// Must be greater than 0.
    pub weight: f64,
    /// For [`Measure::Both`]: the weight of the similarity.
    pub alpha: f64,
    /// Whether the rows have the values that the measure compares.
    pub is_comparable: bool,
}

/// The rows of all answers, best first by one measure. Equal rows are ordered by rank and then by answer. A
/// text that several knowledge bases contain counts once, as its best row, because copies are not votes. The
/// locator names its other places, if these are among the rows that are kept. A text that occurs several
/// times in one answer is kept that many times.
pub struct AnswerFusion {
    top_k: usize,
    measure: Measure,
    answers: usize,
    rows: Vec<Row>,
}

struct Row {
    /// The hash of the text, and which row of the text it is in its answer, from 0.
    text: ([u8; 32], usize),
    /// The value by which it is ordered. None comes after all others.
    value: Option<f64>,
    rank: usize,
    answer: usize,
    weight: f64,
    hit: Hit,
}

impl Row {
    fn order(&self, other: &Row) -> Ordering {
        let by_value = other.value.partial_cmp(&self.value).unwrap_or(Ordering::Equal);
        by_value.then(self.rank.cmp(&other.rank)).then(self.answer.cmp(&other.answer))
    }
}

impl AnswerFusion {
    /// Makes a fusion of at most `top_k` rows. No more are kept between answers.
    pub fn new(top_k: usize, measure: Measure) -> AnswerFusion {
        AnswerFusion { top_k, measure, answers: 0, rows: Vec::new() }
    }

    pub fn add(&mut self, given: Answer) {
        let Answer { hits, weight, alpha, is_comparable } = given;
        if !is_comparable {
            self.measure = Measure::Ranks;
            self.rows.iter_mut().for_each(|row| row.value = by_rank(row.rank, row.weight));
        }
        let answer = self.answers;
        self.answers += 1;
        let mut places: HashMap<([u8; 32], usize), usize> =
            self.rows.iter().zip(0..).map(|(row, place)| (row.text, place)).collect();
        let mut counts: HashMap<[u8; 32], usize> = HashMap::new();
        for (rank, hit) in ranks::shared(hits.iter().map(|hit| hit.rank_score)).into_iter().zip(hits) {
            let hash = *blake3::hash(hit.row.content.as_bytes()).as_bytes();
            // The second row of a text in one answer corresponds to its second row in others.
            let count = counts.entry(hash).or_default();
            let text = (hash, *count);
            *count += 1;
            let value = self.measure.value(&hit, rank, weight, alpha);
            let next = Row { text, value, rank, answer, weight, hit };
            match places.get(&text).map(|place| &mut self.rows[*place]) {
                Some(row) if row.order(&next).is_le() => also_in(&mut row.hit, &next.hit),
                Some(row) => {
                    let other = std::mem::replace(row, next);
                    also_in(&mut row.hit, &other.hit);
                }
                None => {
                    places.insert(text, self.rows.len());
                    self.rows.push(next);
                }
            }
        }
        self.rows.sort_by(Row::order);
        self.rows.truncate(self.top_k);
    }

    /// The rows, best first, that fit into what earlier rows leave of `max_tokens`.
    pub fn finish(self, max_tokens: Option<usize>) -> Vec<Hit> {
        let hit = |row: Row| Hit { rank_score: row.value, ..row.hit };
        let mut rows: Vec<Hit> = self.rows.into_iter().map(hit).collect();
        let mut room = Room::of(max_tokens);
        rows.retain(|hit| room.takes(hit.row.token_count));
        rows
    }
}

impl Measure {
    fn value(self, hit: &Hit, rank: usize, weight: f64, alpha: f64) -> Option<f64> {
        let score = match self {
            Measure::Ranks => return by_rank(rank, weight),
            Measure::Similarity => hit.score,
            Measure::Words => hit.word_share,
            // A row has no similarity while it has no vector, and no share of words if only vectors found it.
            Measure::Both => {
                Some(alpha * hit.score.unwrap_or(0.0) + (1.0 - alpha) * hit.word_share.unwrap_or(0.0))
            }
            Measure::Reranker => hit.rank_score,
        };
        // A greater weight must also increase a negative score.
        score.map(|score| if score < 0.0 { score / weight } else { score * weight })
    }
}

fn by_rank(rank: usize, weight: f64) -> Option<f64> {
    Some(weight / (K + rank as f64))
}

/// Adds the place of another row, and the places that its locator names, to the locator of a row.
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
        let candidate = |(n, text): (usize, &&str)| test_candidate(text, score - 0.001 * n as f64, 10);
        let candidates = texts.iter().enumerate().map(candidate).collect();
        let bounds = AnswerBounds { top_k: 9, min_score: -1e9, max_tokens: None, dedupe: true };
        shape::hits(shape::choose(fuse::of_one(candidates), &bounds), kb_id, false)
    }

    fn comparable(hits: Vec<Hit>) -> Answer {
        Answer { hits, weight: 1.0, alpha: 0.5, is_comparable: true }
    }

    fn fused_by(measure: Measure, answers: Vec<Answer>, top_k: usize) -> Vec<Hit> {
        let mut fusion = AnswerFusion::new(top_k, measure);
        answers.into_iter().for_each(|answer| fusion.add(answer));
        fusion.finish(None)
    }

    fn fused(answers: Vec<Vec<Hit>>, top_k: usize, max_tokens: Option<usize>) -> Vec<Hit> {
        let mut fusion = AnswerFusion::new(top_k, Measure::Ranks);
        answers.into_iter().for_each(|answer| fusion.add(comparable(answer)));
        fusion.finish(max_tokens)
    }

    fn texts(hits: &[Hit]) -> Vec<String> {
        hits.iter().map(|hit| format!("{}:{}", hit.kb_id, hit.row.content)).collect()
    }

    #[test]
    fn where_scores_cannot_be_compared_ranks_decide() {
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
    fn a_text_of_several_answers_counts_once_where_it_is_best() {
        let rows = fused(vec![answer("a", &["1", "same"], 0.9), answer("b", &["same", "2"], 0.2)], 9, None);
        assert_eq!(texts(&rows), ["a:1", "b:same", "b:2"]);
        assert_eq!(rows[1].row.locator["also_in"][0]["kb_id"], "a");
        // In whichever order answers come, and however few rows are kept.
        let all = [
            answer("b", &["same", "2"], 0.2),
            answer("a", &["1", "same"], 0.9),
            answer("c", &["3", "1"], 0.5),
        ];
        assert_eq!(texts(&fused(all.to_vec(), 2, None)), ["b:same", "a:1"]);
        assert_eq!(texts(&fused(all.to_vec(), 9, None)), ["b:same", "a:1", "c:3", "b:2"]);
    }

    #[test]
    fn repeated_rows_of_one_answer_stay_and_name_their_other_places() {
        let several = |kb_id: &str, texts: &[&str]| {
            let mut hits = answer(kb_id, &["x"; 0], 0.5);
            let scores = texts.iter().zip([0.5, 0.4, 0.3, 0.2]);
            scores.for_each(|(text, score)| hits.extend(answer(kb_id, &[text], score)));
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

    fn kb_ids(hits: &[Hit]) -> String {
        hits.iter().map(|hit| hit.kb_id.as_str()).collect()
    }

    #[test]
    fn similarities_of_one_fingerprint_are_compared() {
        let tickets = || answer("t", &["printer", "paper"], 0.05);
        let pages = || answer("p", &["leave", "sick leave", "holidays"], 0.54);
        for answers in [[tickets(), pages()], [pages(), tickets()]] {
            let rows = fused_by(Measure::Similarity, answers.map(comparable).to_vec(), 9);
            assert_eq!(kb_ids(&rows), "ppptt");
            assert!(rows.iter().all(|row| row.rank_score == row.score));
        }
        // With a weight that outweighs the difference, also for negative scores.
        let weighted = |score: f64, other: f64| {
            let heavy = Answer { weight: 20.0, ..comparable(answer("h", &["heavy"], score)) };
            kb_ids(&fused_by(Measure::Similarity, vec![comparable(answer("o", &["other"], other)), heavy], 9))
        };
        assert_eq!(
            (weighted(0.05, 0.54), weighted(0.02, 0.54), weighted(-6.0, -0.5)),
            ("ho".into(), "oh".into(), "ho".into())
        );
    }

    #[test]
    fn a_text_of_several_answers_is_the_row_with_the_greater_similarity() {
        let answers = [answer("a", &["first", "same"], 0.3), answer("b", &["best", "same"], 0.8)];
        let rows = fused_by(Measure::Similarity, answers.map(comparable).to_vec(), 9);
        assert_eq!(texts(&rows), ["b:best", "b:same", "a:first"]);
        assert_eq!(rows[1].row.locator["also_in"][0]["kb_id"], "a");
    }

    #[test]
    fn words_count_by_their_share_and_both_by_alpha() {
        let with_words = |kb_id: &str, text: &str, score: Option<f64>, word_share: Option<f64>| {
            let mut hit = answer(kb_id, &[text], 0.5).remove(0);
            // The BM25 score is larger in the other knowledge base, which has more texts.
            (hit.score, hit.word_share, hit.rank_score) =
                (score, word_share, Some(if kb_id == "t" { 17.0 } else { 9.0 }));
            hit
        };
        let tickets = || vec![with_words("t", "printer", Some(0.05), Some(0.3))];
        let pages = || {
            vec![
                with_words("p", "leave", Some(0.54), Some(0.6)),
                with_words("p", "holidays", Some(0.5), None),
            ]
        };
        let rows = fused_by(Measure::Words, vec![comparable(tickets()), comparable(pages())], 9);
        assert_eq!((kb_ids(&rows), rows[0].rank_score), ("ptp".into(), Some(0.6)));
        let rows = fused_by(Measure::Both, vec![comparable(tickets()), comparable(pages())], 9);
        assert_eq!(kb_ids(&rows), "ppt");
        assert!((rows[0].rank_score.unwrap() - 0.57).abs() < 1e-12);
    }

    #[test]
    fn ranks_decide_by_weights_as_soon_as_one_answer_cannot_be_compared() {
        let by_words =
            Answer { is_comparable: false, weight: 2.0, ..comparable(answer("w", &["x", "y"], 0.01)) };
        let rows =
            fused_by(Measure::Similarity, vec![comparable(answer("a", &["1", "2"], 0.9)), by_words], 9);
        assert_eq!(texts(&rows), ["w:x", "w:y", "a:1", "a:2"]);
        assert_eq!(rows[0].rank_score, Some(2.0 / 61.0));
        // Equally good rows share a rank.
        let equal: Vec<Hit> = ["1", "2"].iter().flat_map(|text| answer("a", &[text], 0.9)).collect();
        assert_eq!(
            texts(&fused(vec![equal, answer("b", &["x", "y"], 0.5)], 9, None)),
            ["a:1", "a:2", "b:x", "b:y"]
        );
    }

    #[test]
    fn rows_that_a_reranker_did_not_read_come_after_those_it_read() {
        let mut unread = answer("a", &["1", "2"], 0.9);
        unread[1].rank_score = None;
        let rows =
            fused_by(Measure::Reranker, vec![comparable(unread), comparable(answer("b", &["x"], -7.0))], 9);
        assert_eq!(texts(&rows), ["a:1", "b:x", "a:2"]);
    }

    #[test]
    fn a_row_that_does_not_fit_leaves_room_for_those_after_it() {
        let mut rows = answer("a", &["long", "short"], 0.9);
        rows[0].row.token_count = 200;
        assert_eq!(texts(&fused(vec![rows], 9, Some(150))), ["a:short"]);
    }
}
