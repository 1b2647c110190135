//! What the worker has under way: documents, the chunks of theirs that still want vectors, and the
//! batches that are at the gateway.

use super::document::Target;
use crate::store::jobs::Job;
use crate::store::vectors::Missing;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;
use uuid::Uuid;

/// A document whose chunks are written.
pub struct Open {
    pub job: Job,
    pub settings: String,
    pub is_new: bool,
    /// It is being put into the next build, too.
    pub in_next: bool,
    /// Groups and flights that still may bring something for it.
    pending: usize,
}

/// Documents of one build whose chunks are looked through for missing vectors, in order.
pub struct Group {
    pub target: Target,
    pub documents: Vec<i64>,
    pub after: (i64, i32),
}

/// A batch at the gateway.
pub struct Flight {
    pub target: Target,
    /// Different texts; equal ones are sent once.
    pub texts: Vec<String>,
    /// Chunk, document, and which text it has.
    pub chunks: Vec<(Uuid, i64, usize)>,
    pub sent: Instant,
}

impl Flight {
    pub fn new(target: Target, missing: Vec<Missing>) -> Flight {
        let mut texts: Vec<String> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut chunks = Vec::new();
        for chunk in missing {
            let text = *known.entry(chunk.content).or_insert_with_key(|content| {
                texts.push(content.clone());
                texts.len() - 1
            });
            chunks.push((chunk.chunk_id, chunk.document_id, text));
        }
        Flight { target, texts, chunks, sent: Instant::now() }
    }

    pub fn documents(&self) -> BTreeSet<i64> {
        self.chunks.iter().map(|(_, document, _)| *document).collect()
    }

    /// Two flights of half the texts each, to find the one text that is refused.
    pub fn halves(self) -> [Flight; 2] {
        let middle = self.texts.len() / 2;
        let mut first = self.texts;
        let second = first.split_off(middle);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (chunk, document, text) in self.chunks {
            if text < middle {
                left.push((chunk, document, text));
            } else {
                right.push((chunk, document, text - middle));
            }
        }
        let flight = |texts, chunks| Flight { target: self.target.clone(), texts, chunks, sent: self.sent };
        [flight(first, left), flight(second, right)]
    }

    /// One vector per chunk, in the chunks' order, from one per text.
    pub fn spread(&self, numbers: &[f32], dimension: usize) -> Vec<f32> {
        let mut all = Vec::with_capacity(self.chunks.len() * dimension);
        for (_, _, text) in &self.chunks {
            all.extend_from_slice(&numbers[text * dimension..(text + 1) * dimension]);
        }
        all
    }
}

/// The bookkeeping of it all.
#[derive(Default)]
pub struct Flights {
    pub open: HashMap<i64, Open>,
    pub groups: VecDeque<Group>,
    /// At the gateway, by request id.
    pub sent: HashMap<u64, Flight>,
    /// Refused as a whole, to be sent again in halves.
    pub halved: Vec<Flight>,
}

impl Flights {
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.groups.is_empty() && self.sent.is_empty() && self.halved.is_empty()
    }

    /// Takes up a written document.
    pub fn add(&mut self, document_id: i64, job: Job, settings: String, is_new: bool, in_next: bool) {
        self.open.insert(document_id, Open { job, settings, is_new, in_next, pending: 0 });
    }

    /// Documents now wait for one thing more.
    pub fn hold(&mut self, documents: impl IntoIterator<Item = i64>) {
        for document in documents {
            if let Some(open) = self.open.get_mut(&document) {
                open.pending += 1;
            }
        }
    }

    /// Documents wait for one thing less; those that wait for nothing any more are taken out.
    pub fn let_go(&mut self, documents: impl IntoIterator<Item = i64>) -> Vec<(i64, Open)> {
        let mut done = Vec::new();
        for document in documents {
            let Some(open) = self.open.get_mut(&document) else { continue };
            open.pending = open.pending.saturating_sub(1);
            if open.pending == 0
                && let Some(open) = self.open.remove(&document)
            {
                done.push((document, open));
            }
        }
        done
    }

    pub fn jobs(&self) -> Vec<Job> {
        self.open.values().map(|open| open.job.clone()).collect()
    }
}
