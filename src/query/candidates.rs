//! The candidates of a question and of its rewordings, by meaning, by words or both. More are searched for as
//! long as more are wanted.

use super::question_vector::{beginning, embed};
use crate::pg::report;
use crate::query::dense::{ByMeaning, similarities};
use crate::query::keyword::ByWords;
use crate::query::rewording::{Reworded, reworded};
use crate::query::sql::filtered_chunks::FilteredChunks;
use crate::query::sql::search;
use crate::query::sql::search::SearchTarget;
use kb_search::journal::Journal;
use kb_search::request::AnswerBounds;
use kb_search::{dedupe, diversity, fuse, question_rewording};
use kb_types::error::{Error, Result};
use kb_types::syntax::Syntax;
use kb_types::{Candidate, Kind, Mode};
use serde_json::json;

/// Where to search for candidates.
#[derive(Clone, Copy)]
pub struct CandidateSearch<'a> {
    pub target: &'a SearchTarget,
    pub filtered: Option<&'a FilteredChunks<'a>>,
    pub journal: &'a Journal,
}

/// A question that can be asked for more candidates: by meaning, by words, or both.
pub struct Legs<'a> {
    search: CandidateSearch<'a>,
    by_meaning: Option<(&'a [f32], ByMeaning<'a>)>,
    by_words: Option<ByWords<'a>>,
}

impl Legs<'_> {
    /// The number of words of a long question that are not searched for.
    pub fn words_left_out(&self) -> usize {
        self.by_words.as_ref().map_or(0, |by_words| by_words.left_out)
    }

    /// Returns candidates, the best first.
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        match (&self.by_meaning, &self.by_words) {
            (Some(_), Some(_)) => self.find_both(bounds),
            (Some(_), None) => Ok(fuse::of_one(self.by_meaning(bounds)?)),
            _ => Ok(fuse::of_one(self.by_words(bounds)?)),
        }
    }

    /// Returns enough candidates that the requested number of rows remains after diversification.
    pub fn find_diverse(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let CandidateSearch { target, journal, .. } = self.search;
        let diversity = &target.retrieval.diversity;
        let find = |bounds: &AnswerBounds| {
            let mut found = self.find(bounds)?;
            if diversity.collapse.is_some() {
                add_rows(target, &mut found, journal)?;
            }
            Ok(found)
        };
        diversity::recalled(diversity, bounds, find, &report::check_interrupts)
    }

    /// The candidates of one leg may contain a text twice; duplicates are recognised when both lists are
    /// fused. Only if too few texts remain, each leg searches for as many different ones.
    fn find_both(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let CandidateSearch { target, journal, .. } = self.search;
        let top_k = bounds.top_k.max(target.retrieval.hybrid.candidates);
        let mut side = AnswerBounds { top_k, dedupe: false, ..*bounds };
        loop {
            let (dense, keyword) = (self.by_meaning(&side)?, self.by_words(&side)?);
            let repeat = |found: &[Candidate]| dedupe::count(found) < found.len();
            let may_find_more = side.dedupe != bounds.dedupe && (repeat(&dense) || repeat(&keyword));
            let fused = journal.time("fuse", || {
                let mut fused = fuse::fuse(dense, keyword, bounds.dedupe, top_k, &target.retrieval.hybrid);
                if let Some((vector, _)) = &self.by_meaning {
                    compare(target, vector, bounds, &mut fused)?;
                }
                Ok::<_, Error>(fused)
            })?;
            let qualifies = |candidate: &&Candidate| candidate.score().is_none_or(|s| s >= bounds.min_score);
            if !may_find_more || fused.iter().filter(qualifies).count() >= bounds.top_k {
                journal.stage("fuse", &fused);
                return Ok(fused);
            }
            side.dedupe = bounds.dedupe;
        }
    }

    fn by_meaning(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let Some((_, leg)) = &mut self.by_meaning else { return Ok(Vec::new()) };
        let journal = self.search.journal;
        let found = journal.time("dense", || leg.find(bounds))?;
        journal.stage("dense", &found);
        Ok(found)
    }

    fn by_words(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let Some(leg) = &mut self.by_words else { return Ok(Vec::new()) };
        let journal = self.search.journal;
        let found = journal.time("keyword", || leg.find(bounds))?;
        journal.stage("keyword", &found);
        Ok(found)
    }
}

/// Computes the similarity of candidates that have none, if it can exclude them; candidates that are in the
/// answer get it in any case.
fn compare(
    target: &SearchTarget,
    vector: &[f32],
    bounds: &AnswerBounds,
    candidates: &mut [Candidate],
) -> Result<()> {
    match bounds.min_score > target.vector_db.metric.least_score() {
        true => similarities(target, vector, candidates),
        false => Ok(()),
    }
}

/// Reads the rows of candidates, with their texts.
pub fn add_rows(target: &SearchTarget, candidates: &mut [Candidate], journal: &Journal) -> Result<()> {
    let read = journal.time("rows", || search::add_rows(target, candidates))?;
    journal.count("rows", "read", read);
    Ok(())
}

impl<'a> CandidateSearch<'a> {
    /// The legs of a question. Without a vector, the question is searched by its words.
    pub fn legs(&self, words: &str, vector: Option<&'a [f32]>) -> Result<Legs<'a>> {
        let is_by_words = vector.is_none() || self.target.retrieval.mode == Mode::Hybrid;
        let by_words =
            || self.journal.time("keyword", || ByWords::new(self.target, words, self.filtered, self.journal));
        let by_words = is_by_words.then(by_words).transpose()?;
        match vector {
            Some(vector) => Ok(Legs { by_words, ..self.by_meaning(vector)? }),
            None => Ok(Legs { search: *self, by_meaning: None, by_words }),
        }
    }

    /// A question that is a vector.
    pub fn by_meaning(&self, vector: &'a [f32]) -> Result<Legs<'a>> {
        let by_meaning = ByMeaning::new(self.target, vector, self.filtered, self.journal)?;
        Ok(Legs { search: *self, by_meaning: Some((vector, by_meaning)), by_words: None })
    }

    /// The candidates of the question and of its rewordings, as one list, and the reason if some of these are
    /// missing.
    pub fn find_reworded(
        &self,
        question: &str,
        vector: Option<&[f32]>,
        bounds: &AnswerBounds,
        own: Vec<Candidate>,
    ) -> Result<(Vec<Candidate>, Option<String>)> {
        let CandidateSearch { target, journal, .. } = *self;
        let Reworded { questions, passage, mut problem } = journal
            .time("transform", || reworded(&target.retrieval, target.kb_no, question, vector.is_some()));
        journal.note("transform", "questions", || json!(questions));
        journal.note("transform", "passage", || json!(passage));
        // The candidates of the rewordings are not those of the question, so the journal does not record
        // them; and quotation marks of a model are plain text.
        let closed = Journal::closed();
        let mut plain = target.clone();
        plain.retrieval.syntax = Some(Syntax::Plain);
        let others = CandidateSearch { target: &plain, journal: &closed, ..*self };
        let mut lists = vec![own];
        let mut embedded = |kind, texts: &[String]| match embed(target, kind, texts) {
            Ok(vectors) => vectors.into_iter().map(Some).collect(),
            // The model that embeds has a limit of which a chat model knows nothing.
            Err(Error::InputTooLong { .. }) => {
                texts.iter().map(|text| beginning(target, kind, text)).collect()
            }
            Err(error) => {
                problem = Some(error.to_string());
                Vec::new()
            }
        };
        match vector {
            None => {
                for words in &questions {
                    lists.push(others.legs(words, None)?.find(bounds)?);
                }
            }
            Some(_) => {
                let vectors: Vec<Option<Vec<f32>>> = embedded(Kind::Query, &questions);
                for (words, vector) in questions.iter().zip(vectors) {
                    let Some(vector) = vector else { continue };
                    lists.push(others.legs(words, Some(&vector))?.find(bounds)?);
                }
                for vector in embedded(Kind::Document, passage.as_slice()).into_iter().flatten() {
                    lists.push(others.by_meaning(&vector)?.find(bounds)?);
                }
            }
        }
        if lists.len() == 1 {
            return Ok((lists.swap_remove(0), problem));
        }
        let mut fused = question_rewording::fuse(lists, bounds.dedupe, target.retrieval.hybrid.k);
        if let Some(vector) = vector {
            compare(target, vector, bounds, &mut fused)?;
        }
        Ok((fused, problem))
    }
}
