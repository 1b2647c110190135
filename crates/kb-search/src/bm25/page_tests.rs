//! Tests that every term is found by its pages, and that pages are well filled.

use super::super::page_writer::{PAGE_SIZE, Page};
use super::super::postings::Posting;
use super::super::test_chunks::{Log, list_of, pages_of, postings_of, random_postings, word, write};
use super::*;
use fastrand::Rng;
use std::collections::BTreeMap;

fn random_lists(random: &mut Rng, most: f64) -> BTreeMap<Vec<u8>, Vec<Posting>> {
    let lists = (0..300).map(|rank| {
        let (count, gap) = (random.log(most) as usize, random.log(300.0));
        (word(rank), random_postings(random, count, gap))
    });
    lists.collect()
}

#[test]
fn every_term_is_found_by_the_rule_and_no_other() {
    let mut random = Rng::with_seed(1);
    for most in [1.5, 30.0, 3000.0, 60_000.0] {
        let lists = random_lists(&mut random, most);
        let pages = write(&lists);
        for (term, postings) in &lists {
            let list = list_of(&pages, term);
            assert_eq!(list.df, postings.len() as i64);
            assert_eq!(&postings_of(&list).unwrap(), postings);
        }
        for absent in [&b""[..], b"0", b"a0a", b"c2xxx", b"zzz", &[0xff; 2046]] {
            assert!(find(absent, &pages_of(&pages, absent)).unwrap().is_none());
        }
    }
}

#[test]
fn entries_come_in_the_order_of_terms() {
    let lists = random_lists(&mut Rng::with_seed(2), 2000.0);
    let mut read: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for page in write(&lists) {
        let mut position = Position::default();
        while let Some(entry) = position.next_entry(&page.bytes).unwrap() {
            assert!(entry.continued || read.last_key_value().is_none_or(|(last, _)| *last < position.term));
            *read.entry(position.term.clone()).or_default() += entry.df;
        }
    }
    let expected: BTreeMap<_, _> = lists.iter().map(|(term, p)| (term.clone(), p.len() as i64)).collect();
    assert_eq!(read, expected);
}

#[test]
fn pages_are_well_filled() {
    for most in [1.5, 30.0, 3000.0] {
        let lists = (0..5000).map(|rank| {
            let mut random = Rng::with_seed(rank);
            let count = random.log(most) as usize;
            (format!("w{rank}").into_bytes(), random_postings(&mut random, count, 100.0))
        });
        let pages = write(&lists.collect());
        let filled: usize = pages.iter().map(|p| p.bytes.len()).sum();
        assert!(filled * 100 > pages.len() * PAGE_SIZE * 75, "{filled} {}", pages.len());
    }
}

#[test]
fn a_rare_term_costs_its_letters_and_few_bytes() {
    let one = |rank: u32| vec![Posting { chunk: rank % 5000, frequency: 1, length: 100 }];
    let lists = (0..10_000u32).map(|rank| (format!("word{rank:05}").into_bytes(), one(rank)));
    let pages = write(&lists.collect());
    let bytes: usize = pages.iter().map(|p| p.bytes.len()).sum();
    assert!(bytes < 10_000 * 8, "{bytes}");
}

#[test]
fn the_longest_terms_fit() {
    let term = |last: u8| [vec![b'x'; 2045], vec![last]].concat();
    let mut random = Rng::with_seed(3);
    let lists: BTreeMap<_, _> =
        (0..20).map(|i| (term(i), random_postings(&mut random, 100 * usize::from(i), 1e6))).collect();
    let pages = write(&lists);
    for (term, postings) in &lists {
        assert_eq!(&postings_of(&list_of(&pages, term)).unwrap(), postings);
    }
}

/// The term and the pages of a list that spans several pages.
fn long_list() -> (Vec<u8>, Vec<Page>) {
    let mut lists = random_lists(&mut Rng::with_seed(4), 3.0);
    let term = b"d".to_vec();
    lists.insert(term.clone(), random_postings(&mut Rng::with_seed(5), 50_000, 9.0));
    (term, write(&lists))
}

#[test]
fn a_list_with_pages_missing_or_in_the_wrong_order_is_corrupt() {
    let (term, pages) = long_list();
    let pages = pages_of(&pages, &term);
    assert!(pages.len() > 3);
    assert!(find(&term, &pages).unwrap().is_some());
    let without = |i| [&pages[..i], &pages[i + 1..]].concat();
    assert!(find(&term, &without(0)).is_err());
    assert!(find(&term, &without(pages.len() - 1)).is_err());
    assert!(find(&term, &[&pages[..], &pages[..1]].concat()).is_err());
    // A page that is missing inside a list shows only where postings are out of order, so the order is
    // tested.
    let mut swapped = pages.clone();
    swapped.swap(1, 2);
    let list = find(&term, &swapped).unwrap().unwrap();
    let scorer = super::super::test_chunks::scorer(1.2, 0.75, &[1.0]);
    assert!(super::super::cursor::Cursor::new(&list, &scorer, 1.0).is_err());
}

#[test]
fn an_unknown_version_is_corrupt() {
    let (term, mut pages) = long_list();
    pages.iter_mut().for_each(|page| page.bytes[0] += 1);
    assert!(find(&term, &pages_of(&pages, &term)).is_err());
    assert!(find(&term, &[&[]]).is_err());
}
