//! Tests recall with a store in memory.

use super::journal::Journal;
use super::recall::{Best, KeywordStore, Nearest, VectorStore};
use super::request::AnswerBounds;
use super::{test_candidate, test_scores};
use crate::scan_plan::Step;
use kb_types::Candidate;
use kb_types::error::{Error, Result};
use kb_types::vector_db::{Kept, Scan};
use std::cell::{Cell, RefCell};

/// Texts from the nearest to the farthest. The first has score 1, and each next one a hundredth less.
#[derive(Default)]
struct FakeStore {
    texts: Vec<&'static str>,
    /// How many chunks pass a filter, if there is one.
    kept: Option<Kept>,
    /// How many of the nearest the index misses.
    missed: usize,
    /// The least ef_search with which the index misses none.
    misses_none_with: Option<usize>,
    /// How many of the nearest the caller may not read.
    hidden: usize,
    /// One more text that the caller may not read.
    unreadable: &'static str,
    steps: RefCell<Vec<Step>>,
    /// How many candidates each scan returned, and how many were read in all.
    given: RefCell<Vec<usize>>,
    read: Cell<usize>,
}

impl FakeStore {
    fn all(&self) -> Vec<Candidate> {
        let near = |(i, text): (usize, &&str)| test_candidate(text, 1.0 - i as f64 / 100.0, 1);
        self.texts.iter().enumerate().map(near).collect()
    }

    /// The scores that were found, and the kinds of scans that were made.
    fn answer(&self, top_k: usize, min_score: f64, dedupe: bool) -> (Vec<f64>, String) {
        let journal = Journal::closed();
        let found = Nearest::new(self, None, &journal).find(&bounds(top_k, min_score, dedupe)).unwrap();
        (test_scores(&found), self.scans())
    }

    /// The scans that were made, and how many candidates each returned.
    fn scans(&self) -> String {
        let step = |(step, given): (&Step, &usize)| match step.scan {
            Scan::Index { .. } => format!("index {given}"),
            Scan::Exact => format!("exact {given} of {}", step.limit),
            Scan::ExactDistinct => format!("distinct {given}"),
        };
        let (steps, given) = (self.steps.borrow(), self.given.borrow());
        steps.iter().zip(given.iter()).map(step).collect::<Vec<_>>().join(", ")
    }
}

fn bounds(top_k: usize, min_score: f64, dedupe: bool) -> AnswerBounds {
    AnswerBounds { top_k, min_score, max_tokens: None, dedupe }
}

impl VectorStore for &FakeStore {
    /// The candidates that the scan has not returned yet.
    type Scan = Vec<Candidate>;

    fn indexed(&self) -> Result<Option<usize>> {
        Ok(Some(100_000))
    }

    fn kept(&self, _: usize) -> Result<Option<Kept>> {
        Ok(self.kept)
    }

    fn open(&self, step: Step) -> Result<Vec<Candidate>> {
        self.steps.borrow_mut().push(step);
        self.given.borrow_mut().push(0);
        let mut all = self.all();
        match step.scan {
            // The scan misses the nearest at first. It returns them if it continues beyond its ef_search, or
            // has a larger one.
            Scan::Index { ef_search, .. } => {
                if self.misses_none_with.is_none_or(|least| ef_search < least) {
                    let missed: Vec<Candidate> = all.drain(..self.missed).collect();
                    if self.misses_none_with.is_some() && all.len() >= ef_search {
                        all.splice(ef_search..ef_search, missed);
                    }
                }
            }
            Scan::Exact => all.truncate(step.limit),
            Scan::ExactDistinct => {
                all = super::dedupe::distinct(all);
                all.truncate(step.limit);
            }
        }
        // Unread, as the store returns them.
        Ok(all.into_iter().map(|candidate| Candidate { head: None, row: None, ..candidate }).collect())
    }

    fn next(&self, scan: &mut Vec<Candidate>, count: usize) -> Result<Vec<Candidate>> {
        let next: Vec<Candidate> = scan.drain(..count.min(scan.len())).collect();
        *self.given.borrow_mut().last_mut().unwrap() += next.len();
        Ok(next)
    }

    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        self.read.set(self.read.get() + candidates.len());
        let mut readable: Vec<Candidate> = self.all().split_off(self.hidden);
        readable.retain(|candidate| candidate.row.as_ref().is_some_and(|row| row.content != self.unreadable));
        let head = |id| Some(readable.iter().find(|candidate| candidate.chunk_id == id)?.head.clone());
        Ok(candidates
            .into_iter()
            .filter_map(|candidate| Some(Candidate { head: head(candidate.chunk_id)?, ..candidate }))
            .collect())
    }
}

#[test]
fn the_first_scan_that_finds_enough_is_the_last() {
    let fake = FakeStore { texts: vec!["a", "b", "c"], ..FakeStore::default() };
    assert_eq!(fake.answer(2, 0.0, true), (vec![1.0, 0.99], "index 2".into()));
}

#[test]
fn an_exact_scan_finds_rows_that_the_index_misses() {
    let fake = FakeStore { texts: vec!["a", "b", "c"], missed: 2, ..FakeStore::default() };
    assert_eq!(fake.answer(2, 0.0, false), (vec![1.0, 0.99], "index 1, exact 2 of 2".into()));
}

#[test]
fn where_texts_repeat_the_same_scan_continues() {
    let fake = FakeStore { texts: vec!["a", "a", "a", "b"], ..FakeStore::default() };
    // All rows are returned, but only distinct texts were counted.
    assert_eq!(fake.answer(2, 0.0, true), (vec![1.0, 0.99, 0.98, 0.97], "index 4".into()));
    let many = FakeStore { texts: [vec!["a"; 90], vec!["b", "c"]].concat(), ..FakeStore::default() };
    let (scores, scans) = many.answer(2, 0.0, true);
    assert_eq!((scores.len(), scans.as_str()), (91, "index 92"));
    // The index has 100,000 vectors, so it returns at most this many before all texts are distinguished.
    let most = crate::scan_plan::most_given(2, Some(100_000));
    let endless = FakeStore { texts: [vec!["a"; most], vec!["b"]].concat(), ..FakeStore::default() };
    let (scores, scans) = endless.answer(2, f64::NEG_INFINITY, true);
    assert_eq!((scores.len(), scans), (2, format!("index {most}, distinct 2")));
}

#[test]
fn a_few_copies_make_a_scan_return_a_few_more_rows() {
    let names: Vec<String> = (0..200).map(|i| format!("t{}", i.max(3))).collect();
    let texts: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let fake = FakeStore { texts, ..FakeStore::default() };
    let (scores, scans) = fake.answer(100, f64::NEG_INFINITY, true);
    assert_eq!((scores.len(), scans.as_str(), fake.read.get()), (103, "index 108", 108));
}

#[test]
fn a_scan_continues_where_more_is_needed_later() {
    let texts: Vec<&str> = vec!["a", "a", "b", "c", "d", "e", "e", "f"];
    let (fake, journal) = (FakeStore { texts, ..FakeStore::default() }, Journal::closed());
    let mut nearest = Nearest::new(&fake, None, &journal);
    let mut find = |top_k, dedupe| nearest.find(&bounds(top_k, 0.0, dedupe)).unwrap().len();
    assert_eq!((find(2, false), find(2, true), find(3, true)), (2, 3, 4));
    assert_eq!((find(9, true), fake.scans().split(',').next()), (8, Some("index 8")));
    assert!(fake.scans().starts_with("index 8, exact"), "all were found, and the index may have missed some");
}

#[test]
fn ranks_count_what_the_caller_may_read() {
    let (fake, journal) =
        (FakeStore { texts: vec!["a", "b", "c"], hidden: 1, ..FakeStore::default() }, Journal::closed());
    let found = Nearest::new(&fake, None, &journal).find(&bounds(2, 0.0, true)).unwrap();
    let ranks: Vec<usize> = found.iter().filter_map(|candidate| Some(candidate.dense?.rank)).collect();
    assert_eq!((test_scores(&found), ranks, fake.scans()), (vec![0.99, 0.98], vec![1, 2], "index 3".into()));
}

#[test]
fn a_selective_filter_is_scanned_exactly_and_one_that_keeps_nothing_not_at_all() {
    let selective =
        FakeStore { texts: vec!["a", "b"], kept: Some(Kept::Exactly(2)), missed: 2, ..FakeStore::default() };
    assert_eq!(selective.answer(5, 0.0, true), (vec![1.0, 0.99], "exact 2 of 36".into()));
    let copies =
        FakeStore { texts: vec!["a", "a", "b"], kept: Some(Kept::Exactly(3)), ..FakeStore::default() };
    assert_eq!(copies.answer(2, 0.0, true), (vec![1.0, 0.99, 0.98], "exact 3 of 24".into()));
    let wide = FakeStore { texts: vec!["a"], kept: Some(Kept::About(50_000)), ..FakeStore::default() };
    assert_eq!(wide.answer(1, 0.0, true), (vec![1.0], "index 1".into()));
    let empty = FakeStore { texts: vec!["a"], kept: Some(Kept::Exactly(0)), ..FakeStore::default() };
    assert_eq!(empty.answer(1, 0.0, true), (vec![], String::new()));
}

#[test]
fn an_index_scan_that_finds_too_few_is_followed_by_the_exact_one_at_once() {
    let kept = Some(Kept::About(50_000));
    let far = FakeStore { texts: vec!["a", "b", "c", "d"], kept, missed: 3, ..FakeStore::default() };
    assert_eq!(far.answer(2, 0.0, true), (vec![1.0, 0.99], "index 1, exact 2 of 24".into()));
}

#[test]
fn rows_that_the_caller_may_not_read_are_replaced() {
    let fake = FakeStore { texts: vec!["a", "b", "c", "d", "e", "f"], hidden: 5, ..FakeStore::default() };
    assert_eq!(fake.answer(1, 0.0, false), (vec![0.95], "index 6".into()));
    // Where the index returns no more, all are compared, further each time.
    let missed = FakeStore { missed: 6, ..fake };
    missed.steps.borrow_mut().clear();
    missed.given.borrow_mut().clear();
    let further = "index 0, exact 1 of 1, exact 2 of 2, exact 4 of 4, exact 6 of 8";
    assert_eq!(missed.answer(1, 0.0, false), (vec![0.95], further.into()));
    // Where nothing is readable, it ends when everything has been seen.
    let none = FakeStore { texts: vec!["a", "b", "c"], hidden: 3, ..FakeStore::default() };
    assert_eq!(
        none.answer(1, 0.0, false),
        (vec![], "index 3, exact 1 of 1, exact 2 of 2, exact 3 of 4".into())
    );
}

#[test]
fn a_hidden_row_is_replaced_even_after_copies_of_one_text() {
    let texts = [vec!["a"; 30], vec!["hidden", "b"]].concat();
    let fake = FakeStore { texts, unreadable: "hidden", missed: 32, ..FakeStore::default() };
    let (scores, scans) = fake.answer(2, 0.0, true);
    assert_eq!(scores.last(), Some(&0.69));
    let further = "exact 4 of 4, exact 8 of 8, exact 16 of 16, exact 32 of 32";
    assert_eq!(scans, format!("index 0, exact 24 of 24, distinct 2, {further}"));
}

#[test]
fn the_search_ends_below_the_least_score() {
    let fake = FakeStore { texts: vec!["a", "a", "a"], ..FakeStore::default() };
    assert_eq!(fake.answer(2, 0.995, true), (vec![1.0, 0.99], "index 3".into()));
    assert_eq!(fake.read.get(), 2, "what has less than that is not read");
}

#[test]
fn few_rows_above_the_least_score_are_accepted_after_a_second_look() {
    let names: Vec<String> = (0..300).map(|i| format!("t{i}")).collect();
    let texts: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    // The index has 100,000 vectors and is searched with an ef_search of 48 first.
    let poor = || FakeStore {
        texts: texts.clone(),
        missed: 3,
        misses_none_with: Some(4 * 48),
        ..FakeStore::default()
    };
    let fake = poor();
    let (scores, scans) = fake.answer(3, 0.965, false);
    assert_eq!((&scores[..3], scans), (&[1.0, 0.99, 0.98][..], "index 192".into()));
    assert_eq!(fake.read.get(), 6, "of what is looked through for that only what qualifies is read");
    // With a filter the index is searched in one pass, so searching further is another scan.
    let kept = Some(Kept::About(90_000));
    let filtered = FakeStore { kept, ..poor() };
    let (scores, scans) = filtered.answer(3, 0.965, false);
    assert_eq!((&scores[..3], scans), (&[1.0, 0.99, 0.98][..], "index 3, index 3".into()));
    assert!(matches!(filtered.steps.borrow()[1].scan, Scan::Index { ef_search: 192, .. }));
    // Enough rows qualify, so one scan suffices.
    let good = FakeStore { texts: texts.clone(), ..FakeStore::default() };
    assert_eq!(good.answer(3, 0.975, false), (vec![1.0, 0.99, 0.98], "index 3".into()));
    // Few rows qualify however far the search goes, and no exact scan is made for that.
    let few = FakeStore { texts, ..FakeStore::default() };
    assert_eq!(few.answer(3, 0.985, false), (vec![1.0, 0.99, 0.98], "index 192".into()));
}

#[test]
fn an_error_of_the_store_ends_recall() {
    struct Broken;
    impl VectorStore for Broken {
        type Scan = ();
        fn indexed(&self) -> Result<Option<usize>> {
            Ok(None)
        }
        fn kept(&self, _: usize) -> Result<Option<Kept>> {
            Ok(None)
        }
        fn open(&self, _: Step) -> Result<()> {
            Ok(())
        }
        fn next(&self, _: &mut (), _: usize) -> Result<Vec<Candidate>> {
            Err(Error::Internal("it is broken".into()))
        }
        fn read(&self, _: Vec<Candidate>) -> Result<Vec<Candidate>> {
            Ok(vec![])
        }
    }
    let journal = Journal::closed();
    assert!(Nearest::new(Broken, None, &journal).find(&bounds(1, 0.0, true)).is_err());
}

/// Texts ranked by words, without those named "gone", and how many were considered each time.
struct FakeIndex {
    all: Vec<Candidate>,
    looks: Vec<usize>,
}

impl KeywordStore for &mut FakeIndex {
    fn further(&mut self, count: usize) -> Result<(Vec<Candidate>, bool)> {
        self.looks.push(count);
        let mut next: Vec<Candidate> = self.all.drain(..count.min(self.all.len())).collect();
        next.retain(|candidate| candidate.row.as_ref().is_some_and(|row| row.content != "gone"));
        Ok((next, self.all.is_empty()))
    }
}

/// Searches texts by keyword. Returns the scores that were found, and how many were considered each time.
fn by_keyword(texts: &[&'static str], top_k: usize, dedupe: bool) -> (Vec<f64>, Vec<usize>) {
    let all = FakeStore { texts: texts.to_vec(), ..FakeStore::default() }.all();
    let (mut ranked, journal) = (FakeIndex { all, looks: vec![] }, Journal::closed());
    let found = Best::new(&mut ranked, &journal).find(&bounds(top_k, 0.0, dedupe)).unwrap();
    (test_scores(&found), ranked.looks)
}

#[test]
fn by_keyword_the_search_continues_beyond_copies_of_one_text() {
    assert_eq!(by_keyword(&[], 5, false), (vec![], vec![5]));
    assert_eq!(by_keyword(&[], 5, true), (vec![], vec![5]));
    let many = [vec!["a"; 50], vec!["b"]].concat();
    let (scores, looks) = by_keyword(&many, 2, true);
    assert_eq!((scores.len(), scores.last(), looks), (51, Some(&0.5), vec![2, 8, 8, 16, 32]));
}

#[test]
fn by_keyword_rows_that_are_left_out_are_replaced() {
    let texts = ["gone", "gone", "gone", "a", "gone", "b", "c"];
    assert_eq!(by_keyword(&texts, 2, false), (vec![0.97, 0.95], vec![2, 8]));
    assert_eq!(by_keyword(&["gone", "gone"], 2, false), (vec![], vec![2]));
}

#[test]
fn by_keyword_more_rows_can_be_requested_later() {
    let all = FakeStore { texts: vec!["a", "b", "c", "d"], ..FakeStore::default() }.all();
    let (mut ranked, journal) = (FakeIndex { all, looks: vec![] }, Journal::closed());
    let mut best = Best::new(&mut ranked, &journal);
    let mut find = |top_k| best.find(&bounds(top_k, 0.0, true)).unwrap().len();
    assert_eq!((find(1), find(3), find(9)), (1, 3, 4));
}
