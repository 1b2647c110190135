//! How good an answer is, by judgements: the measures of trec_eval, for one question each, and their means.

use crate::model::judgement::Judgement;
use std::collections::{HashMap, HashSet};

/// A chunk of an answer: its document, and where in that document's text it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub external_id: String,
    pub span: Option<(i32, i32)>,
}

/// The measures of one answer; from grade 1 on something is relevant. k: as far as the answer is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measures {
    /// Of all that is relevant, what is among the first k (recall_k). 0 where nothing is relevant.
    pub recall: f64,
    /// Of k, how many are relevant, however few were answered (P_k).
    pub precision: f64,
    /// 1 / the rank of the first relevant one in the whole answer (recip_rank).
    pub reciprocal_rank: f64,
    /// Discounted cumulative gain of the first k, as a share of what is possible (ndcg_cut_k): gain is the grade, the discount
    /// log2(rank + 1). Järvelin and Kekäläinen 2002.
    pub ndcg: f64,
    /// 1 where anything relevant is among the first k (success_k).
    pub hit: f64,
}

/// The grades of an answer's documents, best first, 0 where nothing is judged. A document counts once, as its first chunk;
/// where parts of it are judged, once for each part that a chunk overlaps, and once where none does.
pub fn ranking(answer: &[Place], judgements: &[Judgement]) -> Vec<i32> {
    let mut open: HashMap<&str, Vec<&Judgement>> = HashMap::new();
    for judgement in judgements {
        open.entry(&judgement.external_id).or_default().push(judgement);
    }
    let mut seen = HashSet::new();
    let mut ranking = Vec::with_capacity(answer.len());
    for Place { external_id, span } in answer {
        let is_met = |judgement: &Judgement| match (judgement.span, *span) {
            (None, _) => true,
            (Some((start, end)), Some((from, to))) => start < to && from < end,
            (Some(_), None) => false,
        };
        let mut met: Vec<i32> = match open.get_mut(external_id.as_str()) {
            Some(open) => {
                open.extract_if(.., |judgement| is_met(judgement)).map(|found| found.grade).collect()
            }
            None => Vec::new(),
        };
        let is_first = seen.insert(external_id.as_str());
        if met.is_empty() && is_first {
            ranking.push(0);
        }
        met.sort_unstable_by(|a, b| b.cmp(a));
        ranking.append(&mut met);
    }
    ranking
}

/// `ranking` as [`ranking`] gives it; `judged` are the grades of all that is judged for the question.
pub fn measure(ranking: &[i32], judged: &[i32], k: usize) -> Measures {
    let is_relevant = |grade: &&i32| **grade >= 1;
    let first = &ranking[..k.min(ranking.len())];
    let found = first.iter().filter(is_relevant).count() as f64;
    let relevant = judged.iter().filter(is_relevant).count() as f64;
    let mut ideal = judged.to_vec();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    ideal.truncate(k);
    let rank = ranking.iter().position(|grade| *grade >= 1);
    Measures {
        recall: share(found, relevant),
        precision: share(found, k as f64),
        reciprocal_rank: rank.map_or(0.0, |before| 1.0 / (before + 1) as f64),
        ndcg: share(gain(first), gain(&ideal)),
        hit: if found > 0.0 { 1.0 } else { 0.0 },
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn gain(grades: &[i32]) -> f64 {
    let discounted = |(rank, grade): (u32, &i32)| f64::from((*grade).max(0)) / f64::from(rank + 1).log2();
    (1..).zip(grades).map(discounted).sum()
}

/// The mean of each measure; 0 of none.
pub fn mean(all: &[Measures]) -> Measures {
    let of = |measure: fn(&Measures) -> f64| share(all.iter().map(measure).sum(), all.len() as f64);
    Measures {
        recall: of(|m| m.recall),
        precision: of(|m| m.precision),
        reciprocal_rank: of(|m| m.reciprocal_rank),
        ndcg: of(|m| m.ndcg),
        hit: of(|m| m.hit),
    }
}

/// The least value that so large a part (0 to 1) of them is not above; None of none. None is NaN.
pub fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn judged(external_id: &str, grade: i32, span: Option<(i32, i32)>) -> Judgement {
        Judgement { external_id: external_id.into(), grade, span }
    }

    fn place(external_id: &str, from: i32, to: i32) -> Place {
        Place { external_id: external_id.into(), span: Some((from, to)) }
    }

    /// tests/data/pytrec_eval_reference.json: random runs and judgements with the values that pytrec_eval gives for them.
    #[test]
    fn the_measures_are_those_of_pytrec_eval() {
        let text = include_str!("../../tests/data/pytrec_eval_reference.json");
        let reference: Value = serde_json::from_str(text).unwrap();
        let questions = reference["questions"].as_array().unwrap();
        let mut compared = 0;
        for question in questions {
            let judgements: Vec<Judgement> = question["qrel"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(id, grade)| judged(id, grade.as_i64().unwrap() as i32, None))
                .collect();
            // trec_eval orders a run by score, and equal scores by document, the greater first.
            let mut run: Vec<(f64, &String)> = question["run"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(id, s)| (s.as_f64().unwrap(), id))
                .collect();
            run.sort_by(|a, b| b.partial_cmp(a).unwrap());
            let answer: Vec<Place> =
                run.iter().map(|(_, id)| Place { external_id: id.to_string(), span: None }).collect();
            let grades: Vec<i32> = judgements.iter().map(|judgement| judgement.grade).collect();
            for k in [1, 3, 5, 10, 100] {
                let measures = measure(&ranking(&answer, &judgements), &grades, k);
                for (name, value) in [
                    (format!("recall_{k}"), measures.recall),
                    (format!("P_{k}"), measures.precision),
                    ("recip_rank".to_string(), measures.reciprocal_rank),
                    (format!("ndcg_cut_{k}"), measures.ndcg),
                    (format!("success_{k}"), measures.hit),
                ] {
                    let expected = question["expected"][&name].as_f64().unwrap();
                    assert!((value - expected).abs() < 1e-6, "{name}: {value}, not {expected}: {question}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }

    #[test]
    fn a_document_counts_once_as_its_best_chunk() {
        let answer =
            [place("a", 0, 9), place("b", 0, 9), place("a", 9, 20), place("c", 0, 9), place("b", 9, 20)];
        assert_eq!(ranking(&answer, &[judged("a", 2, None), judged("c", 3, None)]), [2, 0, 3]);
    }

    #[test]
    fn parts_are_met_by_chunks_that_overlap_them() {
        let judgements =
            [judged("a", 1, Some((10, 20))), judged("a", 3, Some((15, 30))), judged("b", 2, Some((0, 5)))];
        // Up to 10 is before the part; b's chunk begins where the part ends.
        assert_eq!(ranking(&[place("a", 0, 10), place("b", 5, 9)], &judgements), [0, 0]);
        // Missing it first costs a rank; one chunk can meet two.
        assert_eq!(
            ranking(&[place("a", 0, 10), place("a", 9, 16), place("b", 4, 9)], &judgements),
            [0, 3, 1, 2]
        );
        assert_eq!(
            ranking(&[place("a", 10, 12), place("a", 12, 15), place("a", 29, 40)], &judgements),
            [1, 3]
        );
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!((percentile(&values, 0.5), percentile(&values, 0.95)), (Some(10.0), Some(19.0)));
        assert_eq!((percentile(&[7.0], 0.5), percentile(&[7.0], 0.95)), (Some(7.0), Some(7.0)));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_mean_of_nothing_is_nothing() {
        assert_eq!(mean(&[]), Measures::default());
        let one = Measures { recall: 1.0, ..Measures::default() };
        assert_eq!(mean(&[one, Measures::default()]).recall, 0.5);
    }
}
