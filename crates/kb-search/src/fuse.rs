//! Fuses the candidates from vectors and from keyword search into one list, best first.

use super::{dedupe, ranks};
use kb_types::Candidate;
use kb_types::candidate::Found;
use kb_types::retrieval::{Fusion, Hybrid, Weights};
use std::collections::HashMap;

/// Orders the candidates of a single source by its score.
pub fn of_one(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    for candidate in &mut candidates {
        candidate.rank_score = candidate.dense.or(candidate.keyword).map(|found| found.score);
    }
    candidates
}

/// With fewer candidates of a source, the deviation of their scores is not meaningful.
const FEW: usize = 5;

/// The candidates of both sources, best first, each chunk once. With `dedupe` each text occurs once, as the
/// chunk among the nearest vectors if there is one. Ranks are counted after this, so that duplicates leave no
/// gaps. Only the best `most` candidates of each source count, because a source may have searched further for
/// the sake of duplicates or a filter, and the answer must not depend on that.
///
/// Fusion `z_score` standardises the scores of each source: it subtracts their mean and divides by their
/// standard deviation. A chunk that a source lacks gets the least of these. The two are added with the
/// weights alpha and 1 - alpha. Where a source has fewer than five candidates, or equal scores, the deviation
/// is not meaningful, and the ranks of both sources are fused with these weights instead. Fusion `rrf` is
/// Reciprocal Rank Fusion (Cormack, Clarke, Büttcher 2009) with weights: the sum of weight / (k + rank), in
/// which equal scores share a rank and a source that lacks a chunk adds nothing. Fusion `score` scales the
/// scores of each source to between 0 and 1 (its least and greatest) and adds them with the weights alpha and
/// 1 - alpha. A source that lacks a chunk adds nothing. Scores that are not finite are fused by ranks, too.
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
    let key = |candidate: &Candidate| match candidate.head.as_ref().filter(|_| dedupe) {
        Some(head) => head.content_hash.clone(),
        None => candidate.chunk_id.as_bytes().to_vec(),
    };
    let score = |found: Option<Found>| found.map(|found| found.score);
    let dense_ranks = ranks::shared(dense.iter().map(|candidate| score(candidate.dense)));
    let keyword_ranks = ranks::shared(keyword.iter().map(|candidate| score(candidate.keyword)));
    let mut fused: Vec<Candidate> = Vec::with_capacity(dense.len() + keyword.len());
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for (rank, candidate) in dense_ranks.into_iter().zip(dense) {
        let dense = candidate.dense.map(|found| Found { rank, ..found });
        places.insert(key(&candidate), fused.len());
        fused.push(Candidate { dense, ..candidate });
    }
    for (rank, candidate) in keyword_ranks.into_iter().zip(keyword) {
        let keyword = candidate.keyword.map(|found| Found { rank, ..found });
        match places.get(&key(&candidate)) {
            Some(&place) => {
                (fused[place].keyword, fused[place].word_share) = (keyword, candidate.word_share);
            }
            None => fused.push(Candidate { keyword, ..candidate }),
        }
    }
    let weigh = weigher(&fused, hybrid);
    let rank_scores: Vec<f64> = fused.iter().map(weigh).collect();
    for (candidate, rank_score) in fused.iter_mut().zip(rank_scores) {
        candidate.rank_score = Some(rank_score);
    }
    // The sort is stable, so candidates from vectors come first among equals. No rank score is NaN.
    fused.sort_by(|a, b| b.rank_score.partial_cmp(&a.rank_score).unwrap_or(std::cmp::Ordering::Equal));
    fused
}

fn weigher(candidates: &[Candidate], hybrid: &Hybrid) -> impl Fn(&Candidate) -> f64 + use<> {
    let Hybrid { fusion, k, weights, alpha, .. } = *hybrid;
    let dense = Scores::of(candidates.iter().filter_map(|candidate| candidate.dense));
    let keyword = Scores::of(candidates.iter().filter_map(|candidate| candidate.keyword));
    let (fusion, weights) = match fusion {
        Fusion::ZScore if dense.have_deviation() && keyword.have_deviation() => (fusion, weights),
        Fusion::Score if dense.mean.is_finite() && keyword.mean.is_finite() => (fusion, weights),
        Fusion::Rrf => (fusion, weights),
        Fusion::ZScore | Fusion::Score => (Fusion::Rrf, Weights { dense: alpha, keyword: 1.0 - alpha }),
    };
    move |candidate| {
        let (by_meaning, by_words) = (candidate.dense, candidate.keyword);
        match fusion {
            Fusion::Rrf => {
                let reciprocal = |found: Option<Found>| found.map_or(0.0, |f| 1.0 / (k + f.rank as f64));
                weights.dense * reciprocal(by_meaning) + weights.keyword * reciprocal(by_words)
            }
            Fusion::Score => {
                let share = |of: Scores, found: Option<Found>| found.map_or(0.0, |f| of.share(f.score));
                alpha * share(dense, by_meaning) + (1.0 - alpha) * share(keyword, by_words)
            }
            Fusion::ZScore => {
                let standard =
                    |of: Scores, found: Option<Found>| of.standard(found.map_or(of.least, |f| f.score));
                alpha * standard(dense, by_meaning) + (1.0 - alpha) * standard(keyword, by_words)
            }
        }
    }
}

/// Statistics of the scores of a source. Mean and deviation (of the population, not of a sample) are not
/// finite if a score is not finite.
#[derive(Clone, Copy)]
struct Scores {
    count: usize,
    least: f64,
    greatest: f64,
    mean: f64,
    deviation: f64,
}

impl Scores {
    fn of(found: impl Iterator<Item = Found>) -> Scores {
        let scores: Vec<f64> = found.map(|found| found.score).collect();
        let count = scores.len().max(1) as f64;
        let mean = scores.iter().sum::<f64>() / count;
        let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
        Scores {
            count: scores.len(),
            least: scores.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: scores.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
            deviation: (squares / count).sqrt(),
        }
    }

    /// Whether the deviation is meaningful: finite, of enough scores, and larger than the noise of equal
    /// scores.
    fn have_deviation(self) -> bool {
        let noise = ranks::EQUAL * self.least.abs().max(self.greatest.abs());
        self.count >= FEW && self.deviation.is_finite() && self.deviation > noise
    }

    /// The score in standard deviations above the mean.
    fn standard(self, score: f64) -> f64 {
        (score - self.mean) / self.deviation
    }

    /// The score scaled to between 0 and 1. It is 1 where all are equal.
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

    fn rrf() -> Hybrid {
        Hybrid { fusion: Fusion::Rrf, ..Hybrid::default() }
    }

    #[test]
    fn by_ranks_a_chunk_of_both_sources_comes_first() {
        let dense =
            || vec![test_candidate("a", 1.0, 1), test_candidate("b", 0.9, 1), test_candidate("c", 0.8, 1)];
        let keyword = || vec![by_words("c", 9.0), by_words("d", 8.0), by_words("b", 0.1)];
        let fused = fuse(dense(), keyword(), true, 9, &rrf());
        assert_eq!(texts(&fused), "cbad");
        let ranks = |c: &Candidate| (c.dense.map(|f| f.rank), c.keyword.map(|f| f.rank));
        assert_eq!(
            fused.iter().map(ranks).collect::<Vec<_>>()[..2],
            [(Some(3), Some(1)), (Some(2), Some(3))]
        );
        assert!((fused[0].rank_score.unwrap() - (1.0 / 63.0 + 1.0 / 61.0)).abs() < 1e-12);
        // A source that searched further does not count more.
        let nearer = fuse(dense(), keyword(), true, 2, &rrf());
        let further = fuse(dense().into_iter().take(2).collect(), keyword()[..2].to_vec(), true, 9, &rrf());
        assert_eq!((texts(&nearer), test_ranks(&nearer)), (texts(&further), test_ranks(&further)));
        let mut words_only = rrf();
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
    fn without_dedupe_equal_texts_of_two_chunks_are_two_rows() {
        let fused = |dedupe| {
            let dense = vec![test_candidate("a", 0.9, 1), test_candidate("a", 0.8, 1)];
            fuse(dense, vec![by_words("a", 2.0)], dedupe, 9, &Hybrid::default())
        };
        assert_eq!((fused(true).len(), fused(false).len()), (1, 3));
    }

    #[test]
    fn equal_scores_of_a_source_do_not_cause_division_by_zero() {
        let hybrid = Hybrid { fusion: Fusion::Score, ..Hybrid::default() };
        let fused = fuse(vec![test_candidate("a", 0.4, 1)], Vec::new(), true, 9, &hybrid);
        assert_eq!(fused[0].rank_score, Some(0.5));
        assert!(fuse(Vec::new(), Vec::new(), true, 9, &hybrid).is_empty());
    }

    #[test]
    fn among_equal_vectors_the_chunk_with_the_words_comes_first() {
        for wanted in 0..12 {
            let name = |i: usize| format!("document {i}");
            let dense = || (0..12).map(|i| test_candidate(&name(i), 0.7, 1)).collect::<Vec<Candidate>>();
            // One clear match, alone or before others that contain a word of the question.
            let one = vec![by_words(&name(wanted), 9.0)];
            let others = (0..12).filter(|i| *i != wanted).map(|i| by_words(&name(i), 2.0));
            let many = one.iter().cloned().chain(others).collect();
            for (keyword, fusion) in [(one.clone(), Fusion::Rrf), (many, Fusion::Rrf), (one, Fusion::ZScore)]
            {
                let fused = fuse(dense(), keyword, true, 100, &Hybrid { fusion, ..Hybrid::default() });
                assert_eq!(texts(&fused[..1]), name(wanted), "{fusion:?}");
                assert!(fused.iter().all(|c| c.dense.unwrap().rank == 1));
            }
        }
    }

    /// Two sources of ten candidates each: a to j from vectors, and j to s from keyword search.
    fn two_sides() -> (Vec<Candidate>, Vec<Candidate>) {
        let letters = |first: u8| (first..first + 10).map(|c| char::from(c).to_string());
        let dense = letters(b'a').zip(0..).map(|(c, i)| test_candidate(&c, 0.9 - 0.01 * f64::from(i), 1));
        let keyword = letters(b'j').zip(0..).map(|(c, i)| by_words(&c, 30.0 - f64::from(i)));
        (dense.collect(), keyword.collect())
    }

    fn rank_score(candidates: &[Candidate], content: &str) -> f64 {
        let of = |c: &&Candidate| c.row.as_ref().unwrap().content == content;
        candidates.iter().find(of).unwrap().rank_score.unwrap()
    }

    #[test]
    fn standardised_scores_are_added_and_missing_chunks_get_the_least() {
        let (dense, keyword) = two_sides();
        let fused = fuse(dense, keyword, true, 100, &Hybrid::default());
        // The deviation of ten numbers with equal steps is 2.8723 steps, and the first is 4.5 steps above the
        // mean.
        let best = 4.5 / 8.25_f64.sqrt();
        assert!((rank_score(&fused, "a") - (0.5 * best - 0.5 * best)).abs() < 1e-9);
        // j is the last from vectors and the first by words. s is the last by words and missing from vectors.
        assert!((rank_score(&fused, "j") - (0.5 * best - 0.5 * best)).abs() < 1e-9);
        assert!((rank_score(&fused, "s") + best).abs() < 1e-9);
        assert_eq!(texts(&fused[..3]), "ajb");
        let (dense, keyword) = two_sides();
        let mostly_words = Hybrid { alpha: 0.3, ..Hybrid::default() };
        assert_eq!(texts(&fuse(dense, keyword, true, 100, &mostly_words)[..3]), "jkl");
    }

    #[test]
    fn standardised_scores_do_not_depend_on_the_scale_of_a_source() {
        let order = |factor: f64, shift: f64| {
            let (mut dense, keyword) = two_sides();
            for candidate in &mut dense {
                candidate.dense.as_mut().unwrap().score *= factor;
                candidate.dense.as_mut().unwrap().score += shift;
            }
            texts(&fuse(dense, keyword, true, 100, &Hybrid { alpha: 0.6123, ..Hybrid::default() }))
        };
        // Scores as of metric l2, and negative inner products.
        assert_eq!(order(1.0, 0.0), order(0.01, 0.0));
        assert_eq!(order(1.0, 0.0), order(100.0, -500.0));
    }

    #[test]
    fn without_a_meaningful_deviation_ranks_are_fused_by_alpha() {
        let (dense, keyword) = two_sides();
        let equal = |list: &[Candidate]| -> Vec<Candidate> {
            list.iter()
                .cloned()
                .map(|c| Candidate { keyword: Some(Found { rank: 1, score: 7.0 }), ..c })
                .collect()
        };
        let no_number = |score: f64| {
            let mut list = keyword.clone();
            list[0].keyword.as_mut().unwrap().score = score;
            list
        };
        let by_alpha = Hybrid { alpha: 0.2, ..Hybrid::default() };
        let weights = Weights { dense: 0.2, keyword: 0.8 };
        let by_weights = Hybrid { fusion: Fusion::Rrf, weights, ..Hybrid::default() };
        for side in [
            keyword[..FEW - 1].to_vec(),
            Vec::new(),
            equal(&keyword),
            no_number(f64::INFINITY),
            no_number(f64::NAN),
            no_number(1e300),
        ] {
            let fused = fuse(dense.clone(), side.clone(), true, 100, &by_alpha);
            assert_eq!(test_ranks(&fused), test_ranks(&fuse(dense.clone(), side, true, 100, &by_weights)));
            assert!(fused.iter().all(|c| c.rank_score.unwrap().is_finite()));
        }
        // Five are enough.
        let fused = fuse(dense.clone(), keyword[..FEW].to_vec(), true, 100, &by_alpha);
        assert!(rank_score(&fused, "j") > 0.5, "{:?}", test_ranks(&fused));
        // Scaling to between 0 and 1 needs finite scores, too.
        let by_scores = Hybrid { fusion: Fusion::Score, ..by_alpha };
        let fused = fuse(dense.clone(), no_number(f64::NAN), true, 100, &by_scores);
        assert!(fused.iter().all(|c| c.rank_score.unwrap().is_finite()));
    }
}
