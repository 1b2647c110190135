//! Sentences are embedded, and neighbours compared, for documents that are cut by strategy semantic.

use super::consult::{Case, Right, are_of_several};
use crate::gateway::client;
use crate::gateway::pump::Pump;
use kb_gateway::protocol::{Client, EmbedReply, Request, Response, Urgency, Usage};
use kb_gateway::{frame, provider};
use kb_text::batch::Batcher;
use kb_text::model_answers::{distance, pair_key};
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind, ServiceKind};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one request to a local model at most, so that a live edit does not wait behind a long one.
const LOCAL_BYTES: usize = 24 * 1024;
/// Requests to a local model under way at most: one being computed, one on its way.
const LOCAL_REQUESTS: usize = 2;

/// A sentence that is to be embedded.
struct Sentence {
    case: usize,
    /// It is not compared with the one before.
    is_first: bool,
    text: String,
}

pub struct Compared {
    pub usage: Usage,
    /// Why the embedder was not asked for all.
    pub refused: Option<Error>,
}

/// Embeds what the documents want compared for a build, and adds the distances to what they know.
pub fn compare(cases: &mut [Case], right: &Right, stop: &AtomicBool, pump: &mut Pump) -> Result<Compared> {
    let (build, embedder) = (&right.target.build, &right.target.embedder);
    let is_shared = are_of_several(cases);
    let mut sentences = Vec::new();
    for (case, asked) in cases.iter_mut().enumerate() {
        for run in asked.consulted.runs.extract_if(.., |run| run.build_no == build.build_no) {
            let texts = run.sentences.into_iter().enumerate();
            sentences.extend(texts.map(|(i, text)| Sentence { case, is_first: i == 0, text }));
        }
    }
    let progress = RefCell::new(Comparison::new(&sentences, embedder));
    let next = || {
        let mut progress = progress.borrow_mut();
        if stop.load(Ordering::Relaxed) {
            progress.waiting.clear();
        }
        let range = progress.waiting.pop_front()?;
        let texts = sentences[range.clone()].iter().map(|sentence| sentence.text.clone()).collect();
        progress.sent.push(range);
        Some(Request::Embed {
            embedder: embedder.clone(),
            access: right.vectors.clone(),
            kind: Kind::Document,
            urgency: Urgency::Ingest,
            texts,
            tokens: Vec::new(),
            client: Client { is_shared, ..right.client.clone() },
            patience_ms: None,
        })
    };
    let take = |number: usize, response| progress.borrow_mut().take(number, response);
    let is_local = provider::find(ServiceKind::Embedder, &embedder.provider).is_none();
    let most = if is_local { LOCAL_REQUESTS } else { embedder.config.remote.max_concurrency };
    let run = pump.run(most, next, take);
    let Comparison { distances, failed, usage, refused, .. } = progress.into_inner();
    for (second, distance) in distances {
        let (first, second) = (&sentences[second - 1], &sentences[second]);
        let key = pair_key(build.fingerprint, &first.text, &second.text);
        cases[second.case].consulted.known.add_distance(key, distance);
    }
    for (sentence, error) in failed {
        cases[sentences[sentence].case].consulted.refuse(build.build_no, error);
    }
    let refused = refused.or(run.err());
    if let Some(error) = &refused {
        for sentence in &sentences {
            cases[sentence.case].consulted.refuse(build.build_no, error.clone());
        }
    }
    Ok(Compared { usage, refused })
}

/// Which sentences are embedded.
struct Comparison<'a> {
    sentences: &'a [Sentence],
    embedder: &'a Embedder,
    /// Sentences of the requests that are to be sent, and of those that were.
    waiting: VecDeque<Range<usize>>,
    sent: Vec<Range<usize>>,
    /// Vectors of the first and the last sentences of answered requests, until those of their neighbours are
    /// there.
    firsts: HashMap<usize, Vec<f32>>,
    lasts: HashMap<usize, Vec<f32>>,
    /// Of a sentence from the one before.
    distances: Vec<(usize, f32)>,
    failed: Vec<(usize, Error)>,
    usage: Usage,
    refused: Option<Error>,
}

impl<'a> Comparison<'a> {
    fn new(sentences: &'a [Sentence], embedder: &'a Embedder) -> Comparison<'a> {
        let is_local = provider::find(ServiceKind::Embedder, &embedder.provider).is_none();
        let bytes = if is_local { LOCAL_BYTES } else { frame::MAX_TEXTS };
        let texts = embedder.config.batch_size.min(frame::max_texts(embedder.dimension));
        let mut batcher = Batcher::new(texts, bytes);
        let mut waiting = VecDeque::new();
        let mut add = |batch: Vec<usize>| {
            if let (Some(first), Some(last)) = (batch.first(), batch.last()) {
                waiting.push_back(*first..last + 1);
            }
        };
        for (i, sentence) in sentences.iter().enumerate() {
            batcher.push(i, sentence.text.len()).into_iter().for_each(&mut add);
        }
        batcher.flush().into_iter().for_each(add);
        Comparison {
            sentences,
            embedder,
            waiting,
            sent: Vec::new(),
            firsts: HashMap::new(),
            lasts: HashMap::new(),
            distances: Vec::new(),
            failed: Vec::new(),
            usage: Usage::default(),
            refused: None,
        }
    }

    fn take(&mut self, number: usize, response: Response) {
        let Some(range) = self.sent.get(number).cloned() else { return };
        let answer = match response {
            Response::Embedded(embedded) => client::check(embedded, self.embedder, range.len()),
            Response::Error(fault) => Err(fault.into()),
            other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
        };
        match answer {
            Ok(embedded) => self.add(range, embedded),
            // One of the texts is refused; the others go on.
            Err(Error::InputTooLong { .. } | Error::Embedding { .. }) if range.len() > 1 => {
                let middle = range.start + range.len() / 2;
                self.waiting.extend([range.start..middle, middle..range.end]);
            }
            Err(error @ (Error::InputTooLong { .. } | Error::Embedding { .. })) => {
                self.failed.push((range.start, error));
            }
            Err(error) => {
                self.waiting.clear();
                self.refused.get_or_insert(error);
            }
        }
    }

    fn add(&mut self, range: Range<usize>, embedded: EmbedReply) {
        self.usage.add(&embedded.usage);
        let failed: HashMap<usize, _> =
            embedded.failed.into_iter().map(|(text, fault)| (text as usize, fault)).collect();
        let numbers = embedded.vectors.numbers();
        let mut vectors = numbers.chunks(self.embedder.dimension.max(1));
        let mut before: Option<&[f32]> = None;
        for (i, sentence) in range.clone().enumerate() {
            if let Some(fault) = failed.get(&i) {
                self.failed.push((sentence, fault.clone().into()));
                before = None;
                continue;
            }
            let Some(vector) = vectors.next() else { return };
            let is_compared = !self.sentences[sentence].is_first;
            if let Some(before) = before.filter(|_| is_compared) {
                self.distances.push((sentence, distance(before, vector)));
            }
            if i == 0 && is_compared {
                match self.lasts.remove(&(sentence - 1)) {
                    Some(before) => self.distances.push((sentence, distance(&before, vector))),
                    None => drop(self.firsts.insert(sentence, vector.to_vec())),
                }
            }
            if sentence + 1 == range.end && self.sentences.get(range.end).is_some_and(|next| !next.is_first) {
                match self.firsts.remove(&range.end) {
                    Some(next) => self.distances.push((range.end, distance(vector, &next))),
                    None => drop(self.lasts.insert(sentence, vector.to_vec())),
                }
            }
            before = Some(vector);
        }
    }
}
