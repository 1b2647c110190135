//! Measures the quality of answers by judgements, with the measures of trec_eval: for each question, and
//! their means.

use kb_types::judgement::Judgement;
use std::collections::{HashMap, HashSet};

/// A chunk of an answer: its document, and its position in the document's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub external_id: String,
    pub span: Option<(i32, i32)>,
}

/// The measures of one answer. Grades of 1 or more are relevant. k is the number of documents that count, or
/// of rows where parts of documents are judged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measures {
    /// The share of everything relevant that is among the first k (recall_k). 0 where nothing is relevant.
    pub recall: f64,
    /// The number of relevant ones among the first k, divided by k even if the answer is shorter (P_k).
    pub precision: f64,
    /// The reciprocal of the rank of the first relevant one in the whole answer (recip_rank).
    pub reciprocal_rank: f64,
    /// The discounted cumulative gain of the first k, as a share of the greatest possible (ndcg_cut_k). The
    /// gain is the grade, and the discount is log2(rank + 1) (Järvelin and Kekäläinen 2002).
    pub ndcg: f64,
    /// 1 if anything relevant is among the first k, else 0 (success_k).
    pub hit: f64,
}

/// An item that counts in an answer: a document, or a row where parts of documents are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedItem {
    /// The grades of the judgements that this item is the first to match, best first.
    pub grades: Vec<i32>,
    /// Whether it matches anything relevant, even if another item matched it before.
    pub is_relevant: bool,
}

/// Whether parts of documents are judged, so that k counts rows.
pub fn counts_rows(judgements: &[Judgement]) -> bool {
    judgements.iter().any(|judgement| judgement.span.is_some())
}

/// The items of an answer, best first. A document counts once, as its first chunk. Where parts are judged
/// every row counts, with the grades of the parts that it overlaps and that no row before it overlapped. A
/// document that is judged as a whole is matched by its first row.
pub fn ranking(answer: &[Place], judgements: &[Judgement]) -> Vec<RankedItem> {
    let mut of_document: HashMap<&str, Vec<(&Judgement, bool)>> = HashMap::new();
    for judgement in judgements {
        of_document.entry(&judgement.external_id).or_default().push((judgement, false));
    }
    let counts_rows = counts_rows(judgements);
    let mut seen = HashSet::new();
    let mut ranking = Vec::with_capacity(answer.len());
    for Place { external_id, span } in answer {
        let meets = |judgement: &Judgement| match (judgement.span, *span) {
            (None, _) => true,
            (Some((start, end)), Some((from, to))) => start < to && from < end,
            (Some(_), None) => false,
        };
        if !seen.insert(external_id.as_str()) && !counts_rows {
            continue;
        }
        let mut ranked = RankedItem { grades: Vec::new(), is_relevant: false };
        let judged = of_document.get_mut(external_id.as_str()).into_iter().flatten();
        for (judgement, is_known) in judged.filter(|(judgement, _)| meets(judgement)) {
            ranked.is_relevant |= is_relevant(judgement.grade);
            if !std::mem::replace(is_known, true) {
                ranked.grades.push(judgement.grade);
            }
        }
        ranked.grades.sort_unstable_by(|a, b| b.cmp(a));
        ranking.push(ranked);
    }
    ranking
}

fn is_relevant(grade: i32) -> bool {
    grade >= 1
}

/// `ranking` is a result of [`ranking`], and `judged` has the grades of all judgements of the question.
pub fn measure(ranking: &[RankedItem], judged: &[i32], k: usize) -> Measures {
    let first = &ranking[..k.min(ranking.len())];
    let relevant = judged.iter().filter(|grade| is_relevant(**grade)).count() as f64;
    let found = first.iter().flat_map(|ranked| &ranked.grades).filter(|grade| is_relevant(**grade)).count();
    let hits = first.iter().filter(|ranked| ranked.is_relevant).count() as f64;
    // A row that matches several parts gains as much as consecutive rows that match one part each.
    let gained: Vec<i32> = first
        .iter()
        .flat_map(|ranked| if ranked.grades.is_empty() { vec![0] } else { ranked.grades.clone() })
        .collect();
    let mut ideal = judged.to_vec();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    ideal.truncate(k.max(gained.len()));
    let rank = ranking.iter().position(|ranked| ranked.is_relevant);
    Measures {
        recall: share(found as f64, relevant),
        precision: share(hits, k as f64),
        reciprocal_rank: rank.map_or(0.0, |before| 1.0 / (before + 1) as f64),
        ndcg: share(gain(&gained), gain(&ideal)),
        hit: if hits > 0.0 { 1.0 } else { 0.0 },
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn gain(grades: &[i32]) -> f64 {
    let discounted = |(rank, grade): (u32, &i32)| f64::from((*grade).max(0)) / f64::from(rank + 1).log2();
    (1..).zip(grades).map(discounted).sum()
}

/// The mean of each measure, or 0 without any.
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

/// The percentile by nearest rank: the least value that at least `part` (0 to 1) of the values do not exceed.
/// None without values. No value may be NaN.
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

    /// tests/data/pytrec_eval_reference.json: random runs and judgements with the values that pytrec_eval
    /// gives for them.
    #[test]
    fn the_measures_are_those_of_pytrec_eval() {
        let text = include_str!("../../../tests/data/pytrec_eval_reference.json");
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
            // trec_eval orders a run by score, and equal scores by document in descending order.
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

    fn grades(ranking: &[RankedItem]) -> Vec<&[i32]> {
        ranking.iter().map(|ranked| &ranked.grades[..]).collect()
    }

    #[test]
    fn a_document_counts_once_as_its_best_chunk() {
        let answer =
            [place("a", 0, 9), place("b", 0, 9), place("a", 9, 20), place("c", 0, 9), place("b", 9, 20)];
        let ranking = ranking(&answer, &[judged("a", 2, None), judged("c", 3, None)]);
        assert_eq!(grades(&ranking), [&[2][..], &[], &[3]]);
    }

    #[test]
    fn parts_are_matched_by_overlapping_chunks_and_every_row_counts() {
        let judgements =
            [judged("a", 1, Some((10, 20))), judged("a", 3, Some((15, 30))), judged("b", 2, Some((0, 5)))];
        let none: &[i32] = &[];
        // The first chunk ends before the part, and the chunk of b begins where the part ends.
        let missed = ranking(&[place("a", 0, 10), place("b", 5, 9)], &judgements);
        assert_eq!(grades(&missed), [none, none]);
        // Each row that misses costs a rank. One chunk can match two parts.
        let met =
            ranking(&[place("a", 0, 10), place("a", 0, 9), place("a", 9, 16), place("b", 4, 9)], &judgements);
        assert_eq!(grades(&met), [none, none, &[3, 1], &[2]]);
        // A part that was matched before gives no gain, but is still relevant.
        let again = ranking(&[place("a", 10, 12), place("a", 12, 15), place("a", 29, 40)], &judgements);
        assert_eq!(grades(&again), [&[1][..], none, &[3]]);
        assert!(again.iter().all(|ranked| ranked.is_relevant));
        // A document that is judged as a whole is matched by its first row.
        let mixed = [judged("a", 2, None), judged("b", 1, Some((0, 5)))];
        let ranked = ranking(&[place("a", 0, 9), place("a", 9, 20), place("b", 0, 9)], &mixed);
        assert_eq!(grades(&ranked), [&[2][..], none, &[1]]);
    }

    #[test]
    fn with_parts_k_counts_rows() {
        let judgements = [judged("a", 1, Some((0, 5))), judged("a", 1, Some((90, 95)))];
        let grades = [1, 1];
        let answer = [place("a", 30, 40), place("a", 0, 10), place("a", 0, 12), place("a", 80, 99)];
        let at = |k| measure(&ranking(&answer, &judgements), &grades, k);
        assert_eq!((at(1).recall, at(3).recall, at(4).recall), (0.0, 0.5, 1.0));
        assert_eq!((at(3).precision, at(4).precision), (2.0 / 3.0, 0.75));
        assert_eq!((at(4).reciprocal_rank, at(1).hit, at(2).hit), (0.5, 0.0, 1.0));
        let discount = |rank: f64| 1.0 / (rank + 1.0).log2();
        let expected = (discount(2.0) + discount(4.0)) / (discount(1.0) + discount(2.0));
        assert!((at(4).ndcg - expected).abs() < 1e-12);
        // One row that matches all is the best answer, and no measure exceeds 1.
        let all = measure(&ranking(&[place("a", 0, 99)], &judgements), &grades, 1);
        assert_eq!((all.recall, all.precision, all.ndcg, all.hit), (1.0, 1.0, 1.0, 1.0));
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!((percentile(&values, 0.5), percentile(&values, 0.95)), (Some(10.0), Some(19.0)));
        assert_eq!((percentile(&[7.0], 0.5), percentile(&[7.0], 0.95)), (Some(7.0), Some(7.0)));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_mean_of_no_answers_is_zero() {
        assert_eq!(mean(&[]), Measures::default());
        let one = Measures { recall: 1.0, ..Measures::default() };
        assert_eq!(mean(&[one, Measures::default()]).recall, 0.5);
    }
}
