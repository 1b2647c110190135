//! Compares the whole life of an index with a model that keeps every chunk.

use super::page::List;
use super::score::{Parameters, Scorer, Totals, idf};
use super::search::TermQuery;
use super::terms::{Terms, frequencies};
use super::test_chunks::{
    Log, TestSegment, build, list_of, merge_segments, naive_idf, naive_score, pages_of, postings_of,
    random_postings, random_terms, scorer, search_and_compare, word, write,
};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const VOCABULARY: usize = 400;

/// All chunks that ever existed, those that still exist, and the segments.
#[derive(Default)]
struct Index {
    chunks: Vec<Terms>,
    existing: BTreeSet<usize>,
    /// Deleted chunks of which segments still have both the postings and the tombstone.
    buried: BTreeSet<usize>,
    segments: Vec<TestSegment>,
}

impl Index {
    fn add_segment(&mut self, random: &mut Rng, most: usize) {
        let first = self.chunks.len();
        for _ in 0..random.usize(..most) {
            self.chunks.push(random_terms(random, VOCABULARY));
        }
        let share = random.usize(..4);
        let gone: Vec<usize> = self.existing.iter().copied().filter(|_| random.usize(..10) < share).collect();
        for id in &gone {
            self.existing.remove(id);
            self.buried.insert(*id);
        }
        self.existing.extend(first..self.chunks.len());
        let new = (first..self.chunks.len()).map(|id| (id, &self.chunks[id]));
        self.segments.push(build(new, gone.iter().map(|id| &self.chunks[*id])));
    }

    /// Merges neighbouring segments. A deleted chunk vanishes if its postings are among them. Its tombstone
    /// is in a later segment, which need not be merged with it, because deleted chunks are known.
    fn merge(&mut self, random: &mut Rng) {
        let from = random.usize(..self.segments.len());
        let count = 1 + random.usize(..self.segments.len() - from);
        let merged = merge_segments(&self.segments[from..from + count], |id| self.buried.contains(&id));
        self.segments.splice(from..from + count, [merged]);
    }

    fn lists<'a>(&'a self, terms: &[Vec<u8>]) -> Vec<(u32, Vec<List<'a>>)> {
        let lists = |s: &'a TestSegment| terms.iter().map(|t| list_of(&s.pages, t)).collect();
        self.segments.iter().enumerate().map(|(i, s)| (i as u32, lists(s))).collect()
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.segments.iter().for_each(|s| totals += s.totals);
        totals
    }

    /// The statistics that the index should have.
    fn count(&self) -> (Totals, HashMap<Vec<u8>, i64>) {
        let (mut totals, mut df) = (Totals::default(), HashMap::new());
        for terms in self.existing.iter().map(|id| &self.chunks[*id]) {
            totals += Totals { chunks: 1, sum_length: terms.length().into() };
            terms.iter().for_each(|(term, _)| *df.entry(term.to_vec()).or_default() += 1);
        }
        (totals, df)
    }

    fn check_statistics(&self) {
        let (totals, mut df) = self.count();
        assert_eq!(self.totals(), totals);
        let mut sums: HashMap<Vec<u8>, i64> = HashMap::new();
        for segment in &self.segments {
            for page in &segment.pages {
                let mut position = super::page::Position::default();
                while let Some(entry) = position.next_entry(&page.bytes).unwrap() {
                    *sums.entry(position.term.clone()).or_default() += entry.df;
                }
            }
        }
        sums.retain(|_, df| *df != 0);
        df.retain(|_, df| *df != 0);
        assert_eq!(sums, df);
    }

    /// Checks the results of a random question, and their scores by the formula.
    fn check_search(&self, random: &mut Rng) {
        let mut ranks: Vec<usize> =
            (0..1 + random.usize(..6)).map(|_| random.log(VOCABULARY as f64 * 1.1) as usize - 1).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut terms: Vec<Vec<u8>> = ranks.into_iter().map(word).collect();
        terms.sort();
        let segments = self.lists(&terms);
        let (totals, known) = self.count();
        let df = |i: usize| segments.iter().map(|(_, lists)| lists[i].df).sum::<i64>();
        let mut weights = Vec::new();
        for (i, term) in terms.iter().enumerate() {
            assert_eq!(df(i), known.get(term).copied().unwrap_or(0));
            let weight = idf(df(i), totals.chunks);
            assert!((weight - naive_idf(df(i), totals.chunks)).abs() < 1e-9);
            weights.push(weight * [0.0, 1.0, 1.0, 1.0, 2.0][random.usize(..5)]);
        }
        let (k1, b) = (random.f64() * 3.0, random.f64());
        let scorer = Scorer::new(Parameters::new(k1, b).unwrap(), totals, &weights);
        let (mut required, mut excluded) = (Vec::new(), Vec::new());
        for i in 0..terms.len() {
            match random.usize(..8) {
                0 => required.push(i),
                1 => excluded.push(i),
                _ => {}
            }
        }
        let question = TermQuery { scorer: &scorer, required: &required, excluded: &excluded };
        let k = random.log(2000.0) as usize;
        let hits = search_and_compare(&question, &segments, k);
        let names: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
        let average = totals.sum_length as f64 / totals.chunks.max(1) as f64;
        for hit in &hits {
            let id = self.segments[hit.segment as usize].chunks[hit.chunk as usize];
            let encoded = self.chunks[id].encode();
            let (length, frequencies) = frequencies(&encoded, &names).unwrap();
            assert_eq!(scorer.score(length, &frequencies), hit.score, "as pending");
            let parts: Vec<_> =
                weights.iter().copied().zip(frequencies.iter().map(|f| f64::from(*f))).collect();
            if totals.sum_length > 0 {
                let naive = naive_score(k1, b, average, length.into(), &parts);
                assert!((naive - hit.score).abs() < 1e-9, "{naive} {}", hit.score);
            }
        }
    }
}

#[test]
fn an_index_that_grows_shrinks_and_merges_answers_as_the_model_does() {
    for seed in 0..6 {
        let mut random = Rng::with_seed(seed);
        let mut index = Index::default();
        for _ in 0..12 {
            index.add_segment(&mut random, 250);
            index.check_statistics();
            if random.usize(..3) == 0 {
                index.merge(&mut random);
                index.check_statistics();
            }
            for _ in 0..10 {
                index.check_search(&mut random);
            }
        }
        while index.segments.len() > 1 {
            index.merge(&mut random);
            index.check_statistics();
            index.check_search(&mut random);
        }
    }
}

#[test]
fn merged_postings_and_tombstones_leave_nothing() {
    let mut random = Rng::with_seed(7);
    let mut index = Index::default();
    for _ in 0..6 {
        index.add_segment(&mut random, 200);
    }
    let all = 0..index.segments.len();
    let merged = merge_segments(&index.segments[all], |id| index.buried.contains(&id));
    assert_eq!(merged.chunks, index.existing.iter().copied().collect::<Vec<_>>());
    // The bytes are those of a segment of the existing chunks.
    let rebuilt = build(index.existing.iter().map(|id| (*id, &index.chunks[*id])), []);
    assert_eq!(merged.pages, rebuilt.pages);
    assert_eq!(merged.totals, rebuilt.totals);
    let buried = build([], index.existing.iter().map(|id| &index.chunks[*id]));
    assert!(buried.totals.chunks < 0 && !buried.pages.is_empty());
    let nothing = merge_segments(&[merged, buried], |_| true);
    assert_eq!((nothing.pages.len(), nothing.totals), (0, Totals::default()));
}

#[test]
fn merging_in_any_order_of_steps_gives_the_same_bytes() {
    let mut random = Rng::with_seed(8);
    let mut index = Index::default();
    for _ in 0..7 {
        index.add_segment(&mut random, 300);
    }
    let once = merge_segments(&index.segments, |id| index.buried.contains(&id));
    for _ in 0..3 {
        let mut other =
            Index { segments: index.segments.clone(), buried: index.buried.clone(), ..Index::default() };
        while other.segments.len() > 1 {
            other.merge(&mut random);
        }
        assert_eq!(other.segments[0].pages, once.pages);
        assert_eq!(other.segments[0].chunks, once.chunks);
    }
}

#[test]
fn segments_without_chunks_or_with_one_work() {
    let one = Terms::new([(b"a".to_vec(), 2)]);
    let (empty, single) = (build([], []), build([(0, &one)], []));
    assert!(empty.pages.is_empty());
    assert!(merge_segments(&[], |_| false).pages.is_empty());
    assert_eq!(merge_segments(&[empty.clone(), single.clone(), empty], |_| false).pages, single.pages);
    let without_terms = build([(0, &Terms::default()), (1, &one)], []);
    assert_eq!(without_terms.totals, Totals { chunks: 2, sum_length: 2 });
    let scorer = scorer(1.2, 0.75, &[1.0]);
    let question = TermQuery { scorer: &scorer, required: &[], excluded: &[] };
    for (segment, chunk) in [(&single, 0), (&without_terms, 1)] {
        let hits = search_and_compare(&question, &[(0, vec![list_of(&segment.pages, b"a")])], 10);
        assert_eq!(hits.iter().map(|h| h.chunk).collect::<Vec<_>>(), [chunk]);
    }
    assert!(search_and_compare(&question, &[(0, vec![List::default()])], 10).is_empty());
}

/// Lists of all sizes and gaps exercise all paths through the search.
#[test]
fn a_search_finds_what_an_exhaustive_one_finds() {
    let mut random = Rng::with_seed(9);
    for round in 0..200 {
        let terms: Vec<Vec<u8>> = (0..1 + random.usize(..6)).map(|i| vec![b'a' + i as u8]).collect();
        let gap = random.log(if round % 5 == 0 { 1e8 } else { 100.0 });
        let segments: Vec<_> = (0..1 + random.usize(..3))
            .map(|_| {
                let lists = terms.iter().map(|term| {
                    let (count, gap) = (random.log(20_000.0) as usize, random.log(gap) + 1.0);
                    let mut postings = random_postings(&mut random, count, gap);
                    // A chunk has the same length in all lists. Regions differ, so that bounds of blocks
                    // differ. Within a region many chunks are equal.
                    let (region, lengths) = (1 + [0, 9, 150, 3000][round as usize % 4], 1 + round % 7);
                    postings.iter_mut().for_each(|p| {
                        p.frequency = 1 + p.frequency.min(3) * (p.chunk / region % 5) / 4;
                        p.length = 100 + p.chunk / region % lengths * 50;
                    });
                    (term.clone(), postings)
                });
                write(&lists.collect::<BTreeMap<_, _>>())
            })
            .collect();
        let weights: Vec<f64> = terms.iter().map(|_| random.log(1000.0) * 0.01).collect();
        let scorer = scorer(random.f64() * 2.0, random.f64(), &weights);
        let mut lists: Vec<(u32, Vec<List>)> = segments
            .iter()
            .enumerate()
            .map(|(i, pages)| (i as u32, terms.iter().map(|t| list_of(pages, t)).collect()))
            .collect();
        if round % 2 == 0 {
            lists.reverse();
        }
        let k = random.log(3000.0) as usize;
        let last = terms.len() - 1;
        for (required, excluded) in [(&[][..], &[][..]), (&[last], &[]), (&[], &[0]), (&[0, last], &[])] {
            let question = TermQuery { scorer: &scorer, required, excluded };
            let hits = search_and_compare(&question, &lists, k);
            assert!(required.len() + excluded.len() > 0 || !hits.is_empty());
        }
    }
}

#[test]
fn a_term_in_every_chunk_is_read_over_many_pages() {
    let chunks: Vec<Terms> = (0..60_000u32)
        .map(|i| {
            Terms::new([(b"every".to_vec(), 1 + i % 3), (format!("w{}", i % 1000).into_bytes(), 1 + i % 50)])
        })
        .collect();
    let whole = build(chunks.iter().enumerate(), []);
    let list = list_of(&whole.pages, b"every");
    assert!(list.parts.len() > 5);
    assert_eq!(pages_of(&whole.pages, b"every").len(), list.parts.len());
    let postings = postings_of(&list).unwrap();
    assert!(
        postings.iter().enumerate().all(|(i, p)| p.chunk as usize == i && p.length == chunks[i].length())
    );
    assert_eq!((postings.len(), list.df), (60_000, 60_000));
    let halves: Vec<TestSegment> =
        [0..25_000, 25_000..60_000].map(|ids| build(ids.map(|id| (id, &chunks[id])), [])).to_vec();
    assert_eq!(merge_segments(&halves, |_| false).pages, whole.pages);
    let lists = vec![list, list_of(&whole.pages, b"w7")];
    let scorer = scorer(1.2, 0.75, &[0.01, 7.0]);
    let question = TermQuery { scorer: &scorer, required: &[], excluded: &[] };
    let hits = search_and_compare(&question, &[(0, lists)], 100);
    assert!(hits[..60].iter().all(|hit| hit.chunk % 1000 == 7));
}
