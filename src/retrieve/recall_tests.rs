//! Recall against a store in memory.

use super::journal::Journal;
use super::plan::Step;
use super::recall::{Vectors, dense, keyword};
use super::request::AnswerBounds;
use super::{test_candidate, test_scores};
use crate::error::{Error, Result};
use crate::model::Candidate;
use crate::model::vector_db::{Kept, Scan};
use std::cell::RefCell;

/// Texts from the nearest to the farthest: the first has score 1, each next one a hundredth less.
#[derive(Default)]
struct Fake {
    texts: Vec<&'static str>,
    /// What a filter keeps, where there is one.
    kept: Option<Kept>,
    /// How many of the nearest the index misses.
    missed: usize,
    /// The least ef_search with which it misses none.
    misses_none_with: Option<usize>,
    /// How many of the nearest the caller may not read.
    hidden: usize,
    /// Another text that the caller may not read.
    unreadable: &'static str,
    steps: RefCell<Vec<Step>>,
}

impl Fake {
    fn all(&self) -> Vec<Candidate> {
        let near = |(i, text): (usize, &&str)| test_candidate(text, 1.0 - i as f64 / 100.0, 1);
        self.texts.iter().enumerate().map(near).collect()
    }

    /// The scores found, and the kinds of scans that were made.
    fn answer(&self, top_k: usize, min_score: f64, dedupe: bool) -> (Vec<f64>, String) {
        let bounds = AnswerBounds { top_k, min_score, max_tokens: None, dedupe };
        let found = dense(self, &bounds, None, &Journal::closed()).unwrap();
        let step = |step: &Step| match step.scan {
            Scan::Index { .. } => format!("index {}", step.limit),
            Scan::Exact => format!("exact {}", step.limit),
            Scan::ExactDistinct => format!("distinct {}", step.limit),
        };
        (test_scores(&found), self.steps.borrow().iter().map(step).collect::<Vec<_>>().join(", "))
    }
}

impl Vectors for Fake {
    fn indexed(&self) -> Result<Option<usize>> {
        Ok(Some(100_000))
    }

    fn kept(&self, _: usize) -> Result<Option<Kept>> {
        Ok(self.kept)
    }

    fn nearest(&self, step: Step) -> Result<Vec<Candidate>> {
        self.steps.borrow_mut().push(step);
        let mut all = self.all();
        match step.scan {
            Scan::Index { ef_search, .. } if self.misses_none_with.is_none_or(|least| ef_search < least) => {
                all.drain(..self.missed).for_each(drop);
            }
            Scan::Index { .. } | Scan::Exact => {}
            Scan::ExactDistinct => all = super::dedupe::distinct(all),
        }
        all.truncate(step.limit);
        // As the store gives them: without rows.
        Ok(all.into_iter().map(|candidate| Candidate { row: None, ..candidate }).collect())
    }

    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        let mut readable: Vec<Candidate> = self.all().split_off(self.hidden);
        readable.retain(|candidate| candidate.row.as_ref().is_some_and(|row| row.content != self.unreadable));
        let row = |id| Some(readable.iter().find(|candidate| candidate.chunk_id == id)?.row.clone());
        Ok(candidates
            .into_iter()
            .filter_map(|candidate| Some(Candidate { row: row(candidate.chunk_id)?, ..candidate }))
            .collect())
    }
}

#[test]
fn the_first_scan_that_gives_enough_is_the_last() {
    let fake = Fake { texts: vec!["a", "b", "c"], ..Fake::default() };
    assert_eq!(fake.answer(2, 0.0, true), (vec![1.0, 0.99], "index 2".into()));
}

#[test]
fn what_the_index_misses_an_exact_scan_finds() {
    let fake = Fake { texts: vec!["a", "b", "c"], missed: 2, ..Fake::default() };
    assert_eq!(fake.answer(2, 0.0, false), (vec![1.0, 0.99], "index 2, exact 2".into()));
}

#[test]
fn copies_of_one_text_are_looked_beyond() {
    let fake = Fake { texts: vec!["a", "a", "a", "b"], ..Fake::default() };
    // All rows come back, and only different texts were counted.
    assert_eq!(fake.answer(2, 0.0, true), (vec![1.0, 0.99, 0.98, 0.97], "index 2, index 24".into()));
    let many = Fake { texts: [vec!["a"; 30], vec!["b"]].concat(), ..Fake::default() };
    assert_eq!(many.answer(2, 0.0, true), (vec![1.0, 0.7], "index 2, index 24, distinct 2".into()));
}

#[test]
fn a_selective_filter_is_scanned_exactly_and_one_that_keeps_nothing_not_at_all() {
    let selective =
        Fake { texts: vec!["a", "b"], kept: Some(Kept::Exactly(2)), missed: 2, ..Fake::default() };
    assert_eq!(selective.answer(5, 0.0, true), (vec![1.0, 0.99], "exact 5".into()));
    let wide = Fake { texts: vec!["a"], kept: Some(Kept::About(50_000)), ..Fake::default() };
    assert_eq!(wide.answer(1, 0.0, true), (vec![1.0], "index 1".into()));
    let empty = Fake { texts: vec!["a"], kept: Some(Kept::Exactly(0)), ..Fake::default() };
    assert_eq!(empty.answer(1, 0.0, true), (vec![], String::new()));
}

#[test]
fn an_index_scan_that_finds_too_few_is_followed_by_the_exact_one_at_once() {
    let kept = Some(Kept::About(50_000));
    let far = Fake { texts: vec!["a", "b", "c", "d"], kept, missed: 3, ..Fake::default() };
    assert_eq!(far.answer(2, 0.0, true), (vec![1.0, 0.99, 0.98, 0.97], "index 2, exact 24".into()));
}

#[test]
fn rows_that_the_caller_may_not_read_are_made_up_for() {
    let fake = Fake { texts: vec!["a", "b", "c", "d", "e", "f"], hidden: 5, ..Fake::default() };
    let (scores, scans) = fake.answer(1, 0.0, false);
    assert_eq!(scores, [0.95]);
    assert_eq!(scans, "index 1, exact 1, exact 2, exact 4, exact 8");
    // Where nothing is readable, it ends when all has been seen.
    let none = Fake { texts: vec!["a", "b", "c"], hidden: 3, ..Fake::default() };
    assert_eq!(none.answer(1, 0.0, false), (vec![], "index 1, exact 1, exact 2, exact 4".into()));
}

#[test]
fn a_hidden_row_is_made_up_for_though_copies_of_one_text_come_before_it() {
    let texts = [vec!["a"; 30], vec!["hidden", "b"]].concat();
    let fake = Fake { texts, unreadable: "hidden", ..Fake::default() };
    let (scores, scans) = fake.answer(2, 0.0, true);
    assert_eq!(scores.last(), Some(&0.69));
    let further = "exact 4, exact 8, exact 16, exact 32";
    assert_eq!(scans, format!("index 2, index 24, distinct 2, {further}"));
}

#[test]
fn nothing_more_is_looked_for_below_the_least_score() {
    let fake = Fake { texts: vec!["a", "a", "a"], ..Fake::default() };
    assert_eq!(fake.answer(2, 0.995, true), (vec![1.0, 0.99], "index 2, index 2".into()));
}

#[test]
fn few_rows_above_the_least_score_are_believed_after_a_second_look_that_is_further() {
    let texts = vec!["a", "b", "c", "d", "e", "f"];
    // The index has 100,000 vectors, and is asked with an ef_search of 48 first.
    let poor = Fake { texts: texts.clone(), missed: 3, misses_none_with: Some(4 * 48), ..Fake::default() };
    assert_eq!(poor.answer(3, 0.965, false), (vec![1.0, 0.99, 0.98], "index 3, index 3".into()));
    assert!(matches!(poor.steps.borrow()[1].scan, Scan::Index { ef_search: 192, .. }));
    // Enough qualify: one look is enough.
    let good = Fake { texts: texts.clone(), ..Fake::default() };
    assert_eq!(good.answer(3, 0.975, false), (vec![1.0, 0.99, 0.98], "index 3".into()));
    // Few do, whatever is looked at: no exact scan is made for that.
    let few = Fake { texts, ..Fake::default() };
    assert_eq!(few.answer(3, 0.985, false), (vec![1.0, 0.99, 0.98], "index 3, index 3".into()));
}

#[test]
fn a_fault_of_the_store_ends_it() {
    struct Broken;
    impl Vectors for Broken {
        fn indexed(&self) -> Result<Option<usize>> {
            Ok(None)
        }
        fn kept(&self, _: usize) -> Result<Option<Kept>> {
            Ok(None)
        }
        fn nearest(&self, _: Step) -> Result<Vec<Candidate>> {
            Err(Error::Internal("it is broken".into()))
        }
        fn read(&self, _: Vec<Candidate>) -> Result<Vec<Candidate>> {
            Ok(vec![])
        }
    }
    let bounds = AnswerBounds { top_k: 1, min_score: 0.0, max_tokens: None, dedupe: true };
    assert!(dense(&Broken, &bounds, None, &Journal::closed()).is_err());
}

/// Asks by keyword of texts, of which those named "gone" are left out: the scores found, and the limits asked with.
fn by_keyword(texts: &[&'static str], top_k: usize, dedupe: bool) -> (Vec<f64>, Vec<usize>) {
    let fake = Fake { texts: texts.to_vec(), ..Fake::default() };
    let (mut limits, mut seen) = (vec![], 0);
    let further = |limit| {
        limits.push(limit);
        let mut found = fake.all();
        let is_all = found.len() < limit;
        found.truncate(limit);
        let mut new = found.split_off(seen);
        seen += new.len();
        new.retain(|candidate| candidate.row.as_ref().is_some_and(|row| row.content != "gone"));
        Ok((new, is_all))
    };
    let bounds = AnswerBounds { top_k, min_score: 0.0, max_tokens: None, dedupe };
    let found = keyword(further, &bounds, &Journal::closed()).unwrap();
    (test_scores(&found), limits)
}

#[test]
fn by_keyword_copies_of_one_text_are_looked_beyond() {
    assert_eq!(by_keyword(&[], 5, false), (vec![], vec![5]));
    assert_eq!(by_keyword(&[], 5, true), (vec![], vec![5]));
    let many = [vec!["a"; 50], vec!["b"]].concat();
    let (scores, limits) = by_keyword(&many, 2, true);
    assert_eq!((scores.len(), scores.last(), limits), (51, Some(&0.5), vec![2, 24, 48, 96]));
}

#[test]
fn by_keyword_what_is_left_out_is_made_up_for() {
    let texts = ["gone", "gone", "gone", "a", "gone", "b", "c"];
    assert_eq!(by_keyword(&texts, 2, false), (vec![0.97, 0.95, 0.94], vec![2, 4, 8]));
    assert_eq!(by_keyword(&["gone", "gone"], 2, false), (vec![], vec![2, 4]));
}
