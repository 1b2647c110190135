//! Candidates by words: BM25 over the segments of a knowledge base and the chunks that wait to be folded into
//! one.

use super::removed_rows::without_removed;
use crate::keyword::postings;
use crate::keyword::postings::SegmentStatistics;
use crate::keyword::word_statistics::WordStatistics;
use crate::keyword::words::Language;
use crate::pg::{report, wake};
use crate::query::sql::filtered_chunks::FilteredChunks;
use crate::query::sql::search;
use crate::query::sql::search::{CandidateCondition, SearchTarget};
use kb_search::bm25;
use kb_search::bm25::compound::in_words;
use kb_search::bm25::{List, Parameters, Scorer, Share, TermQuery, Top};
use kb_search::journal::Journal;
use kb_search::recall;
use kb_search::request::AnswerBounds;
use kb_search::words;
use kb_search::words::QuestionWords;
use kb_types::candidate::Found;
use kb_types::error::{Error, Result};
use kb_types::syntax::Syntax;
use kb_types::{Candidate, Filter};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

/// If this many chunks wait to be folded, a question wakes the worker.
const MANY_WAIT: usize = 256;
/// The most different words of a question, and the most words of all its phrases.
const MOST_TERMS: usize = 1_024;
/// If at most this many chunks pass a filter, the words of each are read.
const FEW: usize = 1_000;
/// The number of chunks whose words are in memory together.
const AT_A_TIME: usize = 250;
/// The same limit, once the best chunks by words have shown that few of them pass.
const SEVERAL: usize = 50_000;
/// The number of the best chunks by words that show it.
const ENOUGH_TO_TELL: usize = 4_000;
/// The number of chunks that are ranked in addition to those that are wanted and to half of these, because
/// some texts repeat themselves.
const SPARE: usize = 16;

/// A question by words, which can be asked for more candidates.
pub struct ByWords<'a> {
    best: recall::Best<'a, Ranked<'a>>,
    /// The number of words of a long question that are not searched for, because it has more than
    /// [`MOST_TERMS`] different ones.
    pub left_out: usize,
}

impl<'a> ByWords<'a> {
    pub fn new(
        target: &'a SearchTarget,
        query: &str,
        filtered: Option<&'a FilteredChunks<'a>>,
        journal: &'a Journal,
    ) -> Result<ByWords<'a>> {
        let index = QuestionIndex::open(target, query)?;
        index.describe(journal);
        let (given, rest) = (HashSet::new(), Vec::new().into_iter());
        let mut ranked = Ranked { target, index, filtered, rest, ranked: 0, is_all: false, given };
        if ranked.index.terms.is_empty() {
            ranked.is_all = true;
        } else if !filtered.is_some_and(FilteredChunks::is_wide) {
            ranked.rank_filtered(FEW)?;
        }
        let left_out = ranked.index.left_out;
        Ok(ByWords { best: recall::Best::new(ranked, journal), left_out })
    }

    /// The chunks that contain words of the question, the best first. See [`recall::Nearest::find`].
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        self.best.find(bounds)
    }
}

/// The chunks that contain words of a question, as far as they are ranked.
struct Ranked<'a> {
    target: &'a SearchTarget,
    index: QuestionIndex<'a>,
    /// None once those that pass the filter are ranked, and no others.
    filtered: Option<&'a FilteredChunks<'a>>,
    /// Those that have not been examined yet, the best first.
    rest: std::vec::IntoIter<Candidate>,
    /// The number of ranked chunks, and whether these are all.
    ranked: usize,
    is_all: bool,
    given: HashSet<Uuid>,
}

impl Ranked<'_> {
    /// Ranks all chunks that pass the filter, if there is one and at most `most` pass.
    fn rank_filtered(&mut self, most: usize) -> Result<bool> {
        let Some(filtered) = self.filtered else { return Ok(false) };
        let facts = if most <= FEW { filtered.facts(most)? } else { None };
        let all = match (facts, filtered.at_most(most)?) {
            (Some(facts), _) => self.index.of_facts(&facts)?,
            (None, Some(chunk_ids)) => self.index.of_chunks(chunk_ids)?,
            (None, None) => return Ok(false),
        };
        self.keep(all);
        (self.is_all, self.filtered) = (true, None);
        Ok(true)
    }

    /// Ranks at least `count` further chunks. The chunks behind a rank cannot be found without ranking all
    /// before it again, so some more than are wanted are ranked, which costs little.
    fn rank(&mut self, count: usize) -> Result<()> {
        let more = if self.ranked == 0 { count / 2 + SPARE } else { 3 * self.ranked };
        self.ranked += count + more;
        if self.ranked > ENOUGH_TO_TELL && self.rank_filtered(SEVERAL)? {
            return Ok(());
        }
        let (best, is_all) = self.index.best(self.ranked)?;
        self.keep(best);
        self.is_all = is_all;
        Ok(())
    }

    /// Keeps the rest of a ranking, which begins again with the best chunks.
    fn keep(&mut self, mut best: Vec<Candidate>) {
        best.retain(|candidate| !self.given.contains(&candidate.chunk_id));
        self.rest = best.into_iter();
    }
}

impl recall::KeywordStore for Ranked<'_> {
    fn further(&mut self, count: usize) -> Result<(Vec<Candidate>, bool)> {
        if self.rest.len() < count && !self.is_all {
            self.rank(count)?;
        }
        let next: Vec<Candidate> = self.rest.by_ref().take(count).collect();
        self.given.extend(next.iter().map(|candidate| candidate.chunk_id));
        let condition = self.index.condition(self.filtered.map(|filtered| filtered.filter));
        let found = without_removed(search::heads_where(self.target, next, &condition)?)?;
        Ok((found, self.is_all && self.rest.len() == 0))
    }
}

/// Of these chunks, those that contain words of the question in the way that it requires, with their scores,
/// the best first.
pub fn scored(target: &SearchTarget, query: &str, chunk_ids: &[Uuid]) -> Result<Vec<Candidate>> {
    let index = QuestionIndex::open(target, query)?;
    if index.terms.is_empty() { Ok(Vec::new()) } else { index.of_chunks(chunk_ids) }
}

/// What the keyword index contains for one question.
struct QuestionIndex<'a> {
    target: &'a SearchTarget,
    /// In order.
    terms: Vec<Vec<u8>>,
    /// The number of words at the end of the question that are not searched for.
    left_out: usize,
    scorer: Scorer,
    /// Indexes into `terms`: a chunk must contain all of the first and none of the second.
    required: Vec<usize>,
    excluded: Vec<usize>,
    /// Phrases, and exclusions of several words, which are searched for in the text.
    phrases: Vec<String>,
    excluded_phrases: Vec<String>,
    segments: Vec<SegmentStatistics>,
    /// For each segment and term.
    pages: Vec<Vec<Vec<Vec<u8>>>>,
    /// Chunks that are in no segment yet.
    pending: Vec<(Uuid, Vec<u8>)>,
}

/// The role of a term in a question.
#[derive(Default)]
struct TermRole {
    weight: f64,
    is_required: bool,
    is_excluded: bool,
}

impl<'a> QuestionIndex<'a> {
    fn open(target: &'a SearchTarget, query: &str) -> Result<QuestionIndex<'a>> {
        let language = Language::named(&target.preprocess.language)?;
        let syntax = target.retrieval.syntax.unwrap_or(Syntax::Plain);
        let QuestionWords { text, phrases, excluded } = words::read(query, syntax);
        let mut parts: BTreeMap<Vec<u8>, TermRole> = BTreeMap::new();
        // Words as in the search for phrases: a part of a joined word is a word of its own.
        let words_of =
            |phrase: &str| language.words(phrase, |share| f64::from(u8::from(share == Share::Word)));
        // If a phrase has one word, its text need not be searched.
        let is_one = |words: &BTreeMap<Vec<u8>, f64>| words.values().sum::<f64>() <= 1.0;
        let (mut of_several, mut excluded_of_several) = (Vec::new(), Vec::new());
        let mut in_phrases = 0;
        for phrase in once(phrases) {
            let words = words_of(&phrase)?;
            if !is_one(&words) {
                in_phrases += words.values().sum::<f64>() as usize;
                of_several.push(phrase);
            }
            for term in words.into_keys() {
                parts.entry(term).or_default().is_required = true;
            }
        }
        for phrase in once(excluded) {
            let words = words_of(&phrase)?;
            if !is_one(&words) {
                in_phrases += words.values().sum::<f64>() as usize;
                excluded_of_several.push(phrase);
                continue;
            }
            for term in words.into_keys() {
                parts.entry(term).or_default().is_excluded = true;
            }
        }
        if parts.len() > MOST_TERMS {
            let problem = format!(
                "it requires and excludes {} different words; at most {MOST_TERMS} are allowed",
                parts.len()
            );
            return Err(Error::Argument { argument: "query", problem });
        }
        // Each chunk that may be in the answer is compared with all of them.
        if in_phrases > MOST_TERMS {
            let problem =
                format!("its phrases have {in_phrases} words together; at most {MOST_TERMS} are allowed");
            return Err(Error::Argument { argument: "query", problem });
        }
        let mut words = language.words(&text, Share::weight)?;
        let others = words.keys().filter(|term| !parts.contains_key(*term)).count();
        let all = parts.len() + others;
        if all > MOST_TERMS {
            let first = first_words(language, &text, MOST_TERMS - parts.len())?;
            words.retain(|term, _| parts.contains_key(term) || first.contains_key(term));
        }
        for (term, weight) in words {
            parts.entry(term).or_default().weight = weight;
        }
        let place = |is: fn(&TermRole) -> bool| {
            parts.values().enumerate().filter(move |(_, part)| is(part)).map(|(i, _)| i)
        };
        let required = place(|part| part.is_required).collect();
        let excluded = place(|part| part.is_excluded).collect();
        let weights: Vec<f64> = parts.values().map(|part| part.weight).collect();
        let terms: Vec<Vec<u8>> = parts.into_keys().collect();

        let build_no = target.build_no;
        let tenants = postings::readable_tenants(target.kb_no)?;
        let segments = postings::segments(build_no, &tenants)?;
        let segment_nos: Vec<i64> = segments.iter().map(|segment| segment.segment_no).collect();
        let pages = postings::pages(&segment_nos, &terms)?;
        let mut statistics = WordStatistics::new(&terms);
        for (segment, pages) in segments.iter().zip(&pages) {
            statistics.add_segment(segment.totals, &lists(&terms, pages)?);
        }
        let pending = postings::pending(build_no, &tenants)?;
        // A worker died before it folded them, or a large deletion woke no worker.
        if pending.len() >= MANY_WAIT && !report::in_recovery() {
            wake::ensure_worker();
        }
        let pending = statistics.add_pending(pending)?;
        let bm25 = target.retrieval.bm25;
        let parameters = Parameters::new(bm25.k1, bm25.b)
            .ok_or_else(|| Error::Internal("stored settings: bm25 is out of range".into()))?;
        let scorer = statistics.scorer(parameters, &weights);
        Ok(QuestionIndex {
            target,
            left_out: all - terms.len(),
            terms,
            scorer,
            required,
            excluded,
            phrases: of_several,
            excluded_phrases: excluded_of_several,
            segments,
            pages,
            pending,
        })
    }

    fn describe(&self, journal: &Journal) {
        let words = |places: &[usize]| {
            let word = |place: &usize| String::from_utf8_lossy(&self.terms[*place]).into_owned();
            json!(places.iter().map(word).collect::<Vec<String>>())
        };
        journal.note("keyword", "words", || words(&(0..self.terms.len()).collect::<Vec<usize>>()));
        journal.note("keyword", "words_left_out", || json!(self.left_out));
        journal.note("keyword", "required", || words(&self.required));
        journal.note("keyword", "excluded", || words(&self.excluded));
        journal.note("keyword", "segments", || json!(self.segments.len()));
        journal.note("keyword", "not_in_segments", || json!(self.pending.len()));
    }

    /// The condition on the rows of candidates, in addition to their words.
    fn condition<'b>(&'b self, filter: Option<&'b Filter>) -> CandidateCondition<'b> {
        CandidateCondition { filter, phrases: &self.phrases, excluded_phrases: &self.excluded_phrases }
    }

    /// The best chunks by their words, and whether there are no others.
    fn best(&self, limit: usize) -> Result<(Vec<Candidate>, bool)> {
        let mut top = Top::new(limit);
        let question = TermQuery { scorer: &self.scorer, required: &self.required, excluded: &self.excluded };
        for (n, pages) in self.pages.iter().enumerate() {
            bm25::search(&question, &lists(&self.terms, pages)?, n as u32, &mut top)?;
        }
        let waiting = self.segments.len() as u32;
        self.offer(&self.pending, waiting, 0, &mut top)?;
        let hits = top.into_hits();
        let is_all = hits.len() < limit;
        let in_segments: Vec<(i64, u32)> = hits
            .iter()
            .filter_map(|hit| Some((self.segments.get(hit.segment as usize)?.segment_no, hit.chunk)))
            .collect();
        let mut ids = postings::chunk_ids(&in_segments)?.into_iter();
        let mut candidates = Vec::with_capacity(hits.len());
        for hit in hits {
            let id = match hit.segment == waiting {
                true => self.pending.get(hit.chunk as usize).map(|(id, _)| *id),
                false => ids.next(),
            };
            candidates.extend(id.map(|id| (id, hit.score)));
        }
        Ok((self.ranked(candidates), is_all))
    }

    /// Those of these chunks that contain words of the question, the best first.
    fn of_chunks(&self, chunk_ids: &[Uuid]) -> Result<Vec<Candidate>> {
        let mut top = Top::new(chunk_ids.len());
        let mut ids = Vec::with_capacity(chunk_ids.len());
        // A few at a time, because a chunk may have as many words as a book.
        for some in chunk_ids.chunks(AT_A_TIME) {
            report::check_interrupts();
            let chunks = postings::terms(self.target.build_no, some)?;
            self.offer(&chunks, 0, ids.len() as u32, &mut top)?;
            ids.extend(chunks.into_iter().map(|(id, _)| id));
        }
        let found = top.into_hits();
        Ok(self.ranked(found.iter().filter_map(|hit| Some((*ids.get(hit.chunk as usize)?, hit.score)))))
    }

    /// The same, of chunks that are given with their words.
    fn of_facts(&self, facts: &[(Uuid, Vec<u8>)]) -> Result<Vec<Candidate>> {
        let mut top = Top::new(facts.len());
        self.offer(facts, 0, 0, &mut top)?;
        let found = top.into_hits();
        Ok(self.ranked(found.iter().filter_map(|hit| Some((facts.get(hit.chunk as usize)?.0, hit.score)))))
    }

    /// Offers chunks, given with their words and numbered from `first` on.
    fn offer(&self, chunks: &[(Uuid, Vec<u8>)], segment: u32, first: u32, top: &mut Top) -> Result<()> {
        let terms: Vec<&[u8]> = self.terms.iter().map(Vec::as_slice).collect();
        for (chunk, (_, words)) in (first..).zip(chunks) {
            let (length, frequencies) = bm25::frequencies(words, &terms)?;
            let has = |place: &usize| frequencies.get(*place).is_some_and(|frequency| *frequency > 0);
            if self.required.iter().all(has) && !self.excluded.iter().any(has) {
                top.offer(bm25::ScoredChunk {
                    score: self.scorer.score(length, &frequencies),
                    segment,
                    chunk,
                });
            }
        }
        Ok(())
    }
}

impl QuestionIndex<'_> {
    /// Chunks with their scores, in order, as candidates.
    fn ranked(&self, chunks: impl IntoIterator<Item = (Uuid, f64)>) -> Vec<Candidate> {
        let candidate = |(rank, (chunk_id, score))| Candidate {
            keyword: Some(Found { rank, score }),
            word_share: Some(self.scorer.share(score)),
            ..Candidate::new(chunk_id)
        };
        // A chunk that was deleted and added again may be both in a segment and pending.
        let mut seen = HashSet::new();
        let first = chunks.into_iter().filter(|(chunk_id, _)| seen.insert(*chunk_id));
        (1..).zip(first.collect::<Vec<_>>()).map(candidate).collect()
    }
}

/// The words at the beginning of a text that has more than `most` different ones.
fn first_words(language: Language, text: &str, most: usize) -> Result<BTreeMap<Vec<u8>, f64>> {
    let mut first = BTreeMap::new();
    let (mut fits, mut exceeds) = (0, text.len());
    loop {
        report::check_interrupts();
        let end = text.floor_char_boundary((fits + exceeds) / 2);
        if end <= fits {
            return Ok(first);
        }
        let words = language.words(&text[..end], Share::weight)?;
        match words.len() <= most {
            true => (fits, first) = (end, words),
            false => exceeds = end,
        }
    }
}

/// Each phrase once, in the form in which it is searched for.
fn once(phrases: Vec<String>) -> impl Iterator<Item = String> {
    let mut seen = HashSet::new();
    phrases
        .iter()
        .map(|phrase| in_words(phrase))
        .collect::<Vec<String>>()
        .into_iter()
        .filter(move |phrase| seen.insert(phrase.clone()))
}

fn lists<'a>(terms: &[Vec<u8>], pages: &'a [Vec<Vec<u8>>]) -> Result<Vec<List<'a>>> {
    let find = |(term, pages): (&Vec<u8>, &'a Vec<Vec<u8>>)| {
        let pages: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
        Ok(bm25::find(term, &pages)?.unwrap_or_default())
    };
    terms.iter().zip(pages).map(find).collect()
}
