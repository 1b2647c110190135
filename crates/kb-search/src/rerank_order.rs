//! Reranking: a model that reads the question and each text together orders candidates again.

use super::dedupe;
use super::request::AnswerBounds;
use kb_types::Candidate;
use kb_types::candidate::Found;
use std::cmp::Ordering;

/// The most texts, and the most bytes of texts, that a reranker gets for one question.
const MAX_TEXTS: usize = 1000;
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Candidates, best first, that a reranker reads (`read`), and those after them.
pub struct Split {
    pub read: Vec<Candidate>,
    pub behind: Vec<Candidate>,
}

/// Chooses the first `most` candidates that may be in the answer for the reranker. Each text counts once, if
/// it occurs once in the answer. Candidates without a head, which the caller may not read, are left out.
pub fn split(mut candidates: Vec<Candidate>, bounds: &AnswerBounds, most: usize) -> Split {
    candidates.retain(|candidate| {
        candidate.head.is_some() && candidate.score().is_none_or(|score| score >= bounds.min_score)
    });
    if bounds.dedupe {
        candidates = dedupe::distinct(candidates);
    }
    let behind = candidates.split_off(candidates.len().min(most).min(MAX_TEXTS));
    Split { read: candidates, behind }
}

impl Split {
    /// Limits what is read, now that rows are known, to the bytes that fit, where at most `longest` bytes of
    /// each text are sent.
    pub fn keep_what_fits(&mut self, longest: usize) {
        self.read.retain(|candidate| candidate.row.is_some());
        let mut bytes = 0;
        let fits = |candidate: &&Candidate| {
            bytes += candidate.row.as_ref().map_or(0, |row| row.content.len().min(longest));
            bytes <= MAX_BYTES
        };
        let count = self.read.iter().take_while(fits).count();
        let rest = self.read.split_off(count);
        self.behind.splice(..0, rest);
    }

    pub fn texts(&self) -> Vec<String> {
        let content = |candidate: &Candidate| candidate.row.as_ref().map(|row| row.content.clone());
        self.read.iter().filter_map(content).collect()
    }

    /// The candidates in the order of the reranker, in which equal scores keep their order. Candidates that
    /// it did not read follow, without a rank_score.
    pub fn by(self, scores: &[f64]) -> Vec<Candidate> {
        let Split { read, mut behind } = self;
        let mut ranked: Vec<Candidate> = read
            .into_iter()
            .zip(scores)
            .map(|(candidate, score)| Candidate { rank_score: Some(*score), ..candidate })
            .collect();
        ranked.sort_by(|a, b| b.rank_score.partial_cmp(&a.rank_score).unwrap_or(Ordering::Equal));
        for (rank, candidate) in (1..).zip(&mut ranked) {
            candidate.reranked = candidate.rank_score.map(|score| Found { rank, score });
        }
        behind.iter_mut().for_each(|candidate| candidate.rank_score = None);
        ranked.extend(behind);
        ranked
    }

    /// The candidates in their original order.
    pub fn unchanged(mut self) -> Vec<Candidate> {
        self.read.extend(self.behind);
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fuse::of_one, test_candidate};
    use super::*;

    fn bounds(top_k: usize, dedupe: bool) -> AnswerBounds {
        AnswerBounds { top_k, min_score: 0.5, max_tokens: None, dedupe }
    }

    fn texts(candidates: &[Candidate]) -> String {
        candidates.iter().map(|candidate| candidate.row.as_ref().unwrap().content.as_str()).collect()
    }

    fn candidates() -> Vec<Candidate> {
        let scored = [("a", 0.9), ("b", 0.8), ("b", 0.8), ("c", 0.7), ("d", 0.6), ("e", 0.4)];
        of_one(scored.map(|(text, score)| test_candidate(text, score, 1)).to_vec())
    }

    fn split(candidates: Vec<Candidate>, bounds: &AnswerBounds, most: usize, longest: usize) -> Split {
        let mut split = super::split(candidates, bounds, most);
        split.keep_what_fits(longest);
        split
    }

    #[test]
    fn only_texts_that_may_be_answered_are_sent_and_scores_order_them() {
        let split = split(candidates(), &bounds(2, true), 6, 100);
        assert_eq!(split.texts(), ["a", "b", "c", "d"]);
        let ranked = split.by(&[0.1, 0.7, 0.9, 0.7]);
        assert_eq!(texts(&ranked), "cbda");
        assert_eq!(ranked[0].rank_score, Some(0.9));
        assert_eq!(ranked[0].reranked, Some(Found { rank: 1, score: 0.9 }));
        // The similarity is kept.
        assert_eq!(ranked[0].score(), Some(0.7));
    }

    #[test]
    fn candidates_that_the_reranker_did_not_read_come_last() {
        let split = split(candidates(), &bounds(4, true), 2, 100);
        assert_eq!(split.texts(), ["a", "b"]);
        let ranked = split.by(&[-5.0, -4.0]);
        assert_eq!(texts(&ranked), "bacd", "and all of it, for later stages that leave some out");
        assert_eq!(ranked[2].rank_score, None);
    }

    #[test]
    fn without_scores_the_order_is_unchanged() {
        let before = candidates();
        let split = split(before.clone(), &bounds(5, false), 3, 100);
        assert_eq!(split.texts(), ["a", "b", "b"]);
        assert_eq!(split.unchanged()[..], before[..5]);
    }

    #[test]
    fn texts_are_bounded_in_number_and_bytes() {
        let many: Vec<Candidate> = (0..1500).map(|i| test_candidate(&format!("t{i}"), 0.9, 1)).collect();
        let split_many = split(of_one(many), &bounds(1500, false), 3000, 100);
        assert_eq!((split_many.read.len(), split_many.behind.len()), (MAX_TEXTS, 500));
        let long: Vec<Candidate> =
            ["a", "b", "c", "d"].map(|c| test_candidate(&c.repeat(1024 * 1024), 0.9, 1)).to_vec();
        assert_eq!(split(of_one(long.clone()), &bounds(4, false), 4, MAX_BYTES).read.len(), 3);
        // A text that is cut before it is sent counts with its reduced length.
        assert_eq!(split(of_one(long), &bounds(4, false), 4, 8_000).read.len(), 4);
    }
}
