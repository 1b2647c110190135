//! The candidates by meaning and by words become one list, best first.

use super::dedupe;
use crate::model::Candidate;
use crate::model::candidate::Found;
use crate::model::retrieval::{Fusion, Hybrid};
use std::collections::HashMap;

/// Candidates of one source: their order stays, by its score.
pub fn of_one(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    for candidate in &mut candidates {
        candidate.rank_score = candidate.dense.or(candidate.keyword).map(|found| found.score);
    }
    candidates
}

/// Candidates of both, best first, each chunk once; with `dedupe` each text once, as the chunk that the nearest vectors have,
/// if they have it. Ranks are counted among those, so what a source has besides leaves no gap. Of each source the best `most`
/// count: it may have looked further, because of copies or a filter, and the answer is not to depend on that.
///
/// Fusion `rrf` is Reciprocal Rank Fusion (Cormack, Clarke, Büttcher 2009) with weights: the sum of weight / (k + rank).
/// Fusion `score` brings each source's scores to 0 to 1 (its least and greatest), and adds them with alpha and 1 - alpha. A
/// source that does not have a chunk adds nothing.
pub fn fuse(
    mut dense: Vec<Candidate>,
    mut keyword: Vec<Candidate>,
    dedupe: bool,
    most: usize,
    hybrid: &Hybrid,
) -> Vec<Candidate> {
    if dedupe {
        (dense, keyword) = (dedupe::distinct(dense), dedupe::distinct(keyword));
    }
    dense.truncate(most);
    keyword.truncate(most);
    let key = |candidate: &Candidate| match candidate.row.as_ref().filter(|_| dedupe) {
        Some(row) => row.content_hash.clone(),
        None => candidate.chunk_id.as_bytes().to_vec(),
    };
    let mut fused: Vec<Candidate> = Vec::with_capacity(dense.len() + keyword.len());
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for (rank, candidate) in (1..).zip(dense) {
        let dense = candidate.dense.map(|found| Found { rank, ..found });
        places.insert(key(&candidate), fused.len());
        fused.push(Candidate { dense, ..candidate });
    }
    for (rank, candidate) in (1..).zip(keyword) {
        let keyword = candidate.keyword.map(|found| Found { rank, ..found });
        match places.get(&key(&candidate)) {
            Some(&place) => fused[place].keyword = keyword,
            None => fused.push(Candidate { keyword, ..candidate }),
        }
    }
    let weigh = weigher(&fused, hybrid);
    let rank_scores: Vec<f64> = fused.iter().map(weigh).collect();
    for (candidate, rank_score) in fused.iter_mut().zip(rank_scores) {
        candidate.rank_score = Some(rank_score);
    }
    // Equal ones stay as they came: those by meaning first. No weight or score is NaN.
    fused.sort_by(|a, b| b.rank_score.partial_cmp(&a.rank_score).unwrap_or(std::cmp::Ordering::Equal));
    fused
}

fn weigher(candidates: &[Candidate], hybrid: &Hybrid) -> impl Fn(&Candidate) -> f64 + use<> {
    let Hybrid { fusion, k, weights, alpha, .. } = *hybrid;
    let dense = Range::of(candidates.iter().filter_map(|candidate| candidate.dense));
    let keyword = Range::of(candidates.iter().filter_map(|candidate| candidate.keyword));
    move |candidate| {
        let (by_meaning, by_words) = (candidate.dense, candidate.keyword);
        match fusion {
            Fusion::Rrf => {
                let reciprocal = |found: Option<Found>| found.map_or(0.0, |f| 1.0 / (k + f.rank as f64));
                weights.dense * reciprocal(by_meaning) + weights.keyword * reciprocal(by_words)
            }
            Fusion::Score => {
                let share = |range: Range, found: Option<Found>| found.map_or(0.0, |f| range.share(f.score));
                alpha * share(dense, by_meaning) + (1.0 - alpha) * share(keyword, by_words)
            }
        }
    }
}

/// The least and the greatest score of a source.
#[derive(Clone, Copy)]
struct Range {
    least: f64,
    greatest: f64,
}

impl Range {
    fn of(found: impl Iterator<Item = Found>) -> Range {
        let none = Range { least: f64::INFINITY, greatest: f64::NEG_INFINITY };
        found.fold(none, |range, found| Range {
            least: range.least.min(found.score),
            greatest: range.greatest.max(found.score),
        })
    }

    /// From 0 to 1; 1 where all are equal.
    fn share(self, score: f64) -> f64 {
        let width = self.greatest - self.least;
        if width > 0.0 { (score - self.least) / width } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{test_candidate, test_scores};
    use super::*;

    fn by_words(content: &str, score: f64) -> Candidate {
        let mut candidate = test_candidate(content, 1.0, 1);
        (candidate.keyword, candidate.dense) = (Some(Found { rank: 1, score }), None);
        candidate
    }

    fn texts(candidates: &[Candidate]) -> String {
        candidates.iter().map(|candidate| candidate.row.as_ref().unwrap().content.as_str()).collect()
    }

    fn test_ranks(candidates: &[Candidate]) -> Vec<Option<f64>> {
        candidates.iter().map(|candidate| candidate.rank_score).collect()
    }

    #[test]
    fn one_source_keeps_its_order_and_its_scores() {
        let candidates = vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.3, 1)];
        let fused = of_one(candidates);
        assert_eq!(test_scores(&fused), [0.9, 0.3]);
        assert_eq!(fused.iter().map(|c| c.rank_score).collect::<Vec<_>>(), [Some(0.9), Some(0.3)]);
        let fused = of_one(vec![by_words("a", 7.5)]);
        assert_eq!((fused[0].score(), fused[0].rank_score), (None, Some(7.5)));
    }

    #[test]
    fn by_ranks_what_both_have_comes_first() {
        let dense =
            || vec![test_candidate("a", 1.0, 1), test_candidate("b", 1.0, 1), test_candidate("c", 1.0, 1)];
        let keyword = || vec![by_words("c", 9.0), by_words("d", 8.0), by_words("b", 0.1)];
        let fused = fuse(dense(), keyword(), true, 9, &Hybrid::default());
        assert_eq!(texts(&fused), "cbad");
        let ranks = |c: &Candidate| (c.dense.map(|f| f.rank), c.keyword.map(|f| f.rank));
        assert_eq!(
            fused.iter().map(ranks).collect::<Vec<_>>()[..2],
            [(Some(3), Some(1)), (Some(2), Some(3))]
        );
        assert!((fused[0].rank_score.unwrap() - (1.0 / 63.0 + 1.0 / 61.0)).abs() < 1e-12);
        // No more of a source counts because it has looked further.
        let nearer = fuse(dense(), keyword(), true, 2, &Hybrid::default());
        let further =
            fuse(dense().into_iter().take(2).collect(), keyword()[..2].to_vec(), true, 9, &Hybrid::default());
        assert_eq!((texts(&nearer), test_ranks(&nearer)), (texts(&further), test_ranks(&further)));
        let mut words_only = Hybrid::default();
        words_only.weights.dense = 0.0;
        assert_eq!(texts(&fuse(dense(), keyword(), true, 9, &words_only)), "cdba");
    }

    #[test]
    fn by_scores_alpha_decides_between_the_sources() {
        let fused = |alpha| {
            let dense = vec![test_candidate("a", 0.9, 1), test_candidate("b", 0.1, 1)];
            let hybrid = Hybrid { fusion: Fusion::Score, alpha, ..Hybrid::default() };
            fuse(dense, vec![by_words("b", 20.0), by_words("e", 10.0)], true, 9, &hybrid)
        };
        assert_eq!(texts(&fused(0.9)), "abe");
        assert_eq!(texts(&fused(0.1)), "bae");
        let scores: Vec<f64> = fused(0.1).iter().map(|c| c.rank_score.unwrap()).collect();
        assert!((scores[0] - 0.9).abs() < 1e-12 && (scores[1] - 0.1).abs() < 1e-12 && scores[2] == 0.0);
    }

    #[test]
    fn without_dedupe_equal_texts_of_two_chunks_are_two() {
        let fused = |dedupe| {
            let dense = vec![test_candidate("a", 0.9, 1), test_candidate("a", 0.8, 1)];
            fuse(dense, vec![by_words("a", 2.0)], dedupe, 9, &Hybrid::default())
        };
        assert_eq!((fused(true).len(), fused(false).len()), (1, 3));
    }

    #[test]
    fn a_source_of_equal_scores_is_not_divided_by_nothing() {
        let hybrid = Hybrid { fusion: Fusion::Score, ..Hybrid::default() };
        let fused = fuse(vec![test_candidate("a", 0.4, 1)], Vec::new(), true, 9, &hybrid);
        assert_eq!(fused[0].rank_score, Some(0.5));
        assert!(fuse(Vec::new(), Vec::new(), true, 9, &hybrid).is_empty());
    }
}
