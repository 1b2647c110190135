//! Diversifies answers: near duplicates count once, the rows of one document are limited, and rows that
//! differ from those before them are preferred.

use super::journal::Journal;
use super::request::{AnswerBounds, Check};
use super::{dedupe, mmr};
use crate::resemblance::Sketch;
use crate::scan_plan;
use kb_types::Candidate;
use kb_types::answer_settings::Diversity;
use kb_types::error::Result;
use std::collections::{HashMap, HashSet, VecDeque};
use uuid::Uuid;

/// Each text is compared with at most this many of those kept before it. Near duplicates are about equally
/// relevant, so they are close together. Without a limit the work would grow with the square of the rows.
const COMPARED: usize = 500;

/// The most candidates that are considered, or twice top_k if that is more.
const MOST: usize = 20_000;

/// The factor by which each further recall grows.
const WIDER: usize = 4;

/// Recalls enough candidates that `top_k` rows are kept, if that many qualify among the first 20,000 (or
/// twice top_k). `recall` gives the candidates for bounds, with their rows where texts are compared, and is
/// called with wider bounds until enough are kept. Without diversity it is called once.
pub fn recalled(
    diversity: &Diversity,
    bounds: &AnswerBounds,
    mut recall: impl FnMut(&AnswerBounds) -> Result<Vec<Candidate>>,
    check: Check,
) -> Result<Vec<Candidate>> {
    if diversity.is_none() {
        return recall(bounds);
    }
    let most = MOST.max(2 * bounds.top_k);
    let mut top_k = scan_plan::several(bounds.top_k).min(most);
    loop {
        let candidates = recall(&AnswerBounds { top_k, ..*bounds })?;
        let found = if bounds.dedupe { dedupe::count(&candidates) } else { candidates.len() };
        let is_all = found < top_k || top_k == most || is_past(&candidates, bounds);
        let stay = places(&candidates, diversity, bounds, &Journal::closed(), check);
        if is_all || stay.len() >= bounds.top_k {
            return Ok(candidates);
        }
        top_k = (top_k * WIDER).min(most);
    }
}

/// Whether the last candidate, in the order of similarity, is below the least similarity of the request.
fn is_past(candidates: &[Candidate], bounds: &AnswerBounds) -> bool {
    let is_by_meaning = candidates.iter().all(|candidate| candidate.keyword.is_none());
    let last = candidates.last().and_then(Candidate::score);
    is_by_meaning && last.is_some_and(|score| score < bounds.min_score)
}

/// The candidates that are kept, in their order, or with `mmr` in its order. `vectors` reads the vectors of
/// chunks.
pub fn diverse(
    candidates: Vec<Candidate>,
    diversity: &Diversity,
    bounds: &AnswerBounds,
    vectors: impl FnOnce(&[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>>,
    journal: &Journal,
    check: Check,
) -> Result<Vec<Candidate>> {
    if diversity.is_none() {
        return Ok(candidates);
    }
    let stay: HashSet<usize> = places(&candidates, diversity, bounds, journal, check).into_iter().collect();
    let mut all = 0..;
    let mut candidates = candidates;
    candidates.retain(|_| all.next().is_some_and(|place| stay.contains(&place)));
    let Some(settings) = diversity.mmr.filter(|_| !candidates.is_empty()) else { return Ok(candidates) };
    let pool: Vec<Uuid> = candidates.iter().take(mmr::POOL).map(|candidate| candidate.chunk_id).collect();
    Ok(mmr::order(candidates, &vectors(&pool)?, settings.lambda, bounds.top_k, check))
}

/// The places of the candidates that are kept: those with at least the least score, the first of each text
/// and of those that resemble it, and the first ones of each document up to the limit.
fn places(
    candidates: &[Candidate],
    diversity: &Diversity,
    bounds: &AnswerBounds,
    journal: &Journal,
    check: Check,
) -> Vec<usize> {
    let (mut texts, mut of_documents) = (HashSet::new(), HashMap::new());
    let (mut sketches, mut places) = (VecDeque::new(), Vec::new());
    for (place, candidate) in candidates.iter().enumerate() {
        check();
        let Some(head) = &candidate.head else { continue };
        if candidate.score().is_some_and(|score| score < bounds.min_score)
            || (bounds.dedupe && !texts.insert(&head.content_hash))
        {
            continue;
        }
        // A row over the limit of its document does not hide similar rows of other documents.
        let rows: &mut usize = of_documents.entry(head.document_id).or_default();
        if diversity.per_document.is_some_and(|most| *rows >= most) {
            journal.reason(candidate.chunk_id, || {
                format!("{rows} chunks of its document rank before it, and per_document allows no more")
            });
            continue;
        }
        if let Some((least, row)) = diversity.collapse.zip(candidate.row.as_ref()) {
            let sketch = Sketch::of(&row.content);
            let resembles = |(_, other): &&(Uuid, Sketch)| other.resemblance(&sketch) >= least;
            if let Some((other, _)) = sketches.iter().find(resembles) {
                journal.reason(candidate.chunk_id, || {
                    format!("its text resembles that of chunk {other}, which ranks before it (collapse)")
                });
                continue;
            }
            if sketches.len() == COMPARED {
                sketches.pop_front();
            }
            sketches.push_back((candidate.chunk_id, sketch));
        }
        *rows += 1;
        places.push(place);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::{fuse, test_candidate};
    use super::*;
    use kb_types::answer_settings::Mmr;
    use std::cell::RefCell;

    /// Candidates for texts from best to worst, each with its document.
    fn candidates(texts: &[(&str, i64)]) -> Vec<Candidate> {
        let candidate = |(i, (text, document_id)): (usize, &(&str, i64))| {
            let mut candidate = test_candidate(text, 1.0 - i as f64 / 1000.0, 1);
            candidate.head.as_mut().unwrap().document_id = *document_id;
            candidate
        };
        fuse::of_one(texts.iter().enumerate().map(candidate).collect())
    }

    fn bounds(top_k: usize) -> AnswerBounds {
        AnswerBounds { top_k, min_score: 0.0, max_tokens: None, dedupe: true }
    }

    fn texts(candidates: &[Candidate]) -> Vec<&str> {
        candidates.iter().map(|candidate| candidate.row.as_ref().unwrap().content.as_str()).collect()
    }

    fn kept<'a>(all: &'a [(&'a str, i64)], diversity: Diversity) -> Vec<&'a str> {
        let found = diverse(
            candidates(all),
            &diversity,
            &bounds(9),
            |_| Ok(HashMap::new()),
            &Journal::closed(),
            &|| (),
        )
        .unwrap();
        let kept: Vec<String> = texts(&found).into_iter().map(Into::into).collect();
        all.iter().map(|(text, _)| *text).filter(|text| kept.contains(&text.to_string())).collect()
    }

    const LEAVE: &str = "Everybody has thirty days of leave a year, to be taken until March.";
    const LEAVE_AGAIN: &str = "Everybody has thirty days of leave a year,  to be taken until April.";
    const TRAINS: &str = "Journeys by train are paid in full.";

    #[test]
    fn the_best_rows_of_each_document_are_kept() {
        let all = [("a", 1), ("b", 1), ("c", 2), ("d", 1)];
        let most = |n| Diversity { per_document: Some(n), ..Diversity::default() };
        assert_eq!(kept(&all, most(1)), ["a", "c"]);
        assert_eq!(kept(&all, most(2)), ["a", "b", "c"]);
        assert_eq!(kept(&all, most(3)), ["a", "b", "c", "d"]);
    }

    #[test]
    fn of_texts_that_resemble_each_other_the_best_is_kept() {
        let all = [(LEAVE, 1), (TRAINS, 2), (LEAVE_AGAIN, 3)];
        let at = |least| Diversity { collapse: Some(least), ..Diversity::default() };
        assert_eq!(kept(&all, at(0.7)), [LEAVE, TRAINS]);
        assert_eq!(kept(&all, at(0.99)), [LEAVE, TRAINS, LEAVE_AGAIN]);
    }

    #[test]
    fn a_row_over_the_limit_of_its_document_hides_no_row_of_others() {
        let all = [("first", 1), (LEAVE, 1), (LEAVE_AGAIN, 2)];
        let diversity = Diversity { per_document: Some(1), collapse: Some(0.7), mmr: None };
        assert_eq!(kept(&all, diversity), ["first", LEAVE_AGAIN]);
    }

    #[test]
    fn vectors_are_read_only_for_mmr() {
        let unread = |_: &[Uuid]| -> Result<HashMap<Uuid, Vec<f32>>> { panic!("vectors were read") };
        let per_document = Diversity { per_document: Some(1), ..Diversity::default() };
        assert_eq!(
            diverse(candidates(&[("a", 1)]), &per_document, &bounds(1), unread, &Journal::closed(), &|| ())
                .unwrap()
                .len(),
            1
        );
        let asked = RefCell::new(0);
        let read = |ids: &[Uuid]| {
            *asked.borrow_mut() = ids.len();
            Ok(ids.iter().map(|id| (*id, vec![1.0])).collect())
        };
        let mmr = Diversity { mmr: Some(Mmr { lambda: 0.5 }), ..Diversity::default() };
        let found = diverse(
            candidates(&[("a", 1), ("b", 1), ("c", 1)]),
            &mmr,
            &bounds(2),
            read,
            &Journal::closed(),
            &|| (),
        )
        .unwrap();
        assert_eq!((asked.into_inner(), found.len()), (3, 2));
    }

    /// Requests three rows, one of each document. Returns the rows, and how many candidates were recalled
    /// each time.
    fn looked(all: &[(&str, i64)], min_score: f64) -> (usize, Vec<usize>) {
        let looks = RefCell::new(vec![]);
        let bounds = AnswerBounds { min_score, ..bounds(3) };
        let diversity = Diversity { per_document: Some(1), ..Diversity::default() };
        let recall = |bounds: &AnswerBounds| {
            looks.borrow_mut().push(bounds.top_k);
            let mut found = candidates(all);
            found.truncate(bounds.top_k);
            Ok(found)
        };
        let found = recalled(&diversity, &bounds, recall, &|| ()).unwrap();
        let found =
            diverse(found, &diversity, &bounds, |_| Ok(HashMap::new()), &Journal::closed(), &|| ()).unwrap();
        (found.len(), looks.into_inner())
    }

    #[test]
    fn recall_is_widened_until_enough_rows_are_kept_or_none_is_left() {
        let names: Vec<String> = (0..400).map(|i| format!("t{i}")).collect();
        let one: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        assert_eq!(looked(&one[..20], 0.0), (1, vec![28]));
        assert_eq!(looked(&one, 0.0), (1, vec![28, 112, 448]));
        let mut three = one.clone();
        (three[30].1, three[100].1) = (2, 3);
        assert_eq!(looked(&three, 0.0), (3, vec![28, 112]));
        // Further candidates are below the least score.
        assert_eq!(looked(&three, 0.99), (1, vec![28]));
        let none = Diversity::default();
        let recall = |bounds: &AnswerBounds| Ok(candidates(&one[..bounds.top_k]));
        assert_eq!(recalled(&none, &bounds(3), recall, &|| ()).unwrap().len(), 3);
    }
}
