//! The statistics that BM25 needs of all chunks among which a question searches by words.

use crate::keyword::sql::postings::Pending;
use kb_search::bm25;
use kb_search::bm25::{List, Parameters, Scorer, Totals};
use kb_types::error::Result;
use std::collections::HashMap;
use uuid::Uuid;

/// The number of chunks, their total length, and the number of chunks that have each term.
pub struct WordStatistics<'a> {
    terms: Vec<&'a [u8]>,
    totals: Totals,
    dfs: Vec<i64>,
}

impl<'a> WordStatistics<'a> {
    pub fn new(terms: &'a [Vec<u8>]) -> Self {
        let terms: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
        WordStatistics { totals: Totals::default(), dfs: vec![0; terms.len()], terms }
    }

    pub fn add_segment(&mut self, totals: Totals, lists: &[List]) {
        self.totals += totals;
        for (df, list) in self.dfs.iter_mut().zip(lists) {
            *df += list.df;
        }
    }

    /// Adds chunks that wait to be folded, and returns those that exist.
    pub fn add_pending(&mut self, pending: Vec<Pending>) -> Result<Vec<(Uuid, Vec<u8>)>> {
        let mut passed: HashMap<Uuid, usize> = HashMap::new();
        for chunk in &pending {
            if let Pending::CameAndWent(id) = chunk {
                *passed.entry(*id).or_default() += 1;
            }
        }
        let mut here = Vec::new();
        for chunk in pending {
            match chunk {
                Pending::Came(id, words) => {
                    self.add(&words, 1)?;
                    here.push((id, words));
                }
                // Each chunk that came and went cancels one deletion, and was not added.
                Pending::Went(id, words) => match passed.get_mut(&id).filter(|times| **times > 0) {
                    Some(times) => *times -= 1,
                    None => self.add(&words, -1)?,
                },
                Pending::CameAndWent(_) => {}
            }
        }
        Ok(here)
    }

    fn add(&mut self, words: &[u8], times: i64) -> Result<()> {
        let (length, frequencies) = bm25::frequencies(words, &self.terms)?;
        self.totals += Totals { chunks: times, sum_length: times * i64::from(length) };
        for (df, frequency) in self.dfs.iter_mut().zip(frequencies) {
            *df += times * i64::from(frequency > 0);
        }
        Ok(())
    }

    pub fn scorer(&self, parameters: Parameters, weights: &[f64]) -> Scorer {
        let weight = |(df, weight): (&i64, &f64)| bm25::idf(*df, self.totals.chunks) * weight;
        let weights: Vec<f64> = self.dfs.iter().zip(weights).map(weight).collect();
        Scorer::new(parameters, self.totals, &weights)
    }
}
