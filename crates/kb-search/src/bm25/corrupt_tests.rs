//! Tests that damaged bytes lead to an error or to a wrong answer, but never to a panic or a long
//! computation.

use super::corrupt::Corrupt;
use super::merge::{Source, merge};
use super::page::find;
use super::page_writer::Page;
use super::search::{TermQuery, search};
use super::terms::{Decoder, Terms, frequencies};
use super::test_chunks::{Log, pages_of, random_postings, random_terms, scorer, word, write};
use super::top::Top;
use fastrand::Rng;
use std::collections::BTreeMap;

/// Flips bits, or overwrites, truncates, repeats or inserts bytes.
fn damage(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.usize(..3) {
        let at = random.usize(..bytes.len().max(1));
        match random.usize(..6) {
            _ if bytes.is_empty() => bytes.push(random.u8(..)),
            0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.usize(..5)],
            1 => bytes[at] = random.u8(..),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.u8(..)),
            _ => bytes[at] ^= 1 << random.usize(..8),
        }
    }
}

#[test]
fn damaged_terms_do_no_harm() {
    let mut random = Rng::with_seed(1);
    let (mut errors, asked) = (0, [word(0), word(5), word(39)]);
    let mut asked: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
    asked.sort();
    for _ in 0..20_000 {
        let mut encoded = random_terms(&mut random, 50).encode();
        damage(&mut random, &mut encoded);
        errors += u32::from(Terms::decode(&encoded).is_err());
        let _ = frequencies(&encoded, &asked);
        if let Ok(mut decoder) = Decoder::new(&encoded) {
            while let Ok(Some((_, frequency))) = decoder.next_term() {
                assert!(frequency > 0);
            }
        }
    }
    assert!(errors > 10_000, "{errors}");
}

#[test]
fn a_truncated_chunk_is_corrupt() {
    let encoded = random_terms(&mut Rng::with_seed(2), 50).encode();
    for end in 0..encoded.len() {
        assert!(Terms::decode(&encoded[..end]).is_err());
    }
}

fn segment(random: &mut Rng, most: f64) -> Vec<Page> {
    let lists = (0..60).map(|rank| {
        let (count, gap) = (random.log(most) as usize, random.log(20.0));
        (word(rank), random_postings(random, count, gap))
    });
    write(&lists.collect::<BTreeMap<_, _>>())
}

fn merge_pages(pages: &[Page], numbers: &[u32]) -> Result<usize, Corrupt> {
    let mut source = pages.iter();
    let mut written = 0;
    let pages = || Ok(source.next().map(|page| page.bytes.clone()));
    merge(vec![Source { pages, numbers }], |page: Page| {
        written += page.bytes.len();
        Ok::<_, Corrupt>(())
    })?;
    Ok(written)
}

#[test]
fn damaged_pages_do_no_harm() {
    let mut random = Rng::with_seed(3);
    let numbers: Vec<u32> = (0..100_000).collect();
    let (mut searches, mut merges) = (0, 0);
    for round in 0..3000 {
        let mut pages = segment(&mut random, [3.0, 300.0, 3000.0][round % 3]);
        let at = random.usize(..pages.len());
        damage(&mut random, &mut pages[at].bytes);
        let terms: Vec<Vec<u8>> = (0..4).map(|_| word(random.usize(..60))).collect();
        let lists: Result<Vec<_>, _> =
            terms.iter().map(|t| Ok(find(t, &pages_of(&pages, t))?.unwrap_or_default())).collect();
        let scorer = scorer(random.f64(), random.f64(), &[1.0, 2.0, 3.0, 0.5]);
        let found = lists.and_then(|lists| {
            let (required, excluded): (&[usize], &[usize]) = [(&[][..], &[][..]), (&[0], &[1])][round % 2];
            let mut top = Top::new(random.log(1000.0) as usize);
            search(&TermQuery { scorer: &scorer, required, excluded }, &lists, 0, &mut top)?;
            let hits = top.into_hits();
            assert!(hits.iter().all(|hit| hit.score.is_finite()));
            Ok::<_, Corrupt>(())
        });
        searches += u32::from(found.is_err());
        merges += u32::from(merge_pages(&pages, &numbers).is_err());
    }
    assert!(searches > 150 && merges > 1000, "{searches} {merges}");
}

#[test]
fn a_truncated_page_is_corrupt_unless_it_ends_with_an_entry() {
    let pages = segment(&mut Rng::with_seed(4), 300.0);
    let numbers: Vec<u32> = (0..100_000).collect();
    assert!(merge_pages(&pages, &numbers).is_ok());
    let bytes = &pages[0].bytes;
    let whole = (0..bytes.len()).filter(|end| {
        let cut = Page { first_term: Vec::new(), bytes: bytes[..*end].to_vec() };
        merge_pages(&[cut], &numbers).is_ok()
    });
    assert!(whole.count() < 61);
}

#[test]
fn a_posting_beyond_the_chunks_is_corrupt() {
    let pages = segment(&mut Rng::with_seed(5), 300.0);
    assert!(merge_pages(&pages, &[0, 1, 2]).is_err());
    let descending: Vec<u32> = (0..100_000).rev().collect();
    assert!(merge_pages(&pages, &descending).is_err());
}

#[test]
fn pages_missing_inside_a_list_are_corrupt() {
    let lists = [(b"a".to_vec(), random_postings(&mut Rng::with_seed(6), 20_000, 10.0))];
    let pages = write(&BTreeMap::from(lists));
    let numbers: Vec<u32> = (0..100_000).collect();
    assert!(pages.len() > 3 && merge_pages(&pages, &numbers).is_ok());
    assert!(merge_pages(&pages[1..], &numbers).is_err());
    assert!(merge_pages(&pages[..pages.len() - 1], &numbers).is_err());
}
