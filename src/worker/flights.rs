//! What the worker has under way: documents, the chunks of theirs that still want vectors, and the
//! batches that are at the gateway.

use super::document::{Prepared, Target};
use crate::error::Error;
use crate::gateway::frame;
use crate::gateway::protocol::{Access, Embedded};
use crate::store::jobs::Job;
use crate::store::vectors::Missing;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// A document whose chunks are written.
pub struct Open {
    pub job: Job,
    pub settings: String,
    pub is_new: bool,
    /// It is being put into the next build, too.
    pub in_next: bool,
    /// Embedder of the last of its builds, and whether that is a remote one.
    pub embedder: String,
    pub is_remote: bool,
    /// What went wrong with one of its chunks; the others go on.
    pub error: Option<Error>,
    /// Tells this taking up of the document from an earlier one, whose batches may still come back.
    ticket: u64,
    /// Groups and flights that still may bring something for it.
    pending: usize,
}

/// One taking up of a document: its id and the ticket.
pub type Holder = (i64, u64);

/// Documents of one build whose chunks are looked through for missing vectors, in order.
pub struct Group {
    pub target: Arc<Target>,
    pub documents: Vec<i64>,
    pub after: (i64, i32),
    pub holders: Vec<Holder>,
}

impl Group {
    pub fn new(target: Arc<Target>) -> Group {
        Group { target, documents: Vec::new(), after: (0, -1), holders: Vec::new() }
    }
}

/// A chunk of a flight.
#[derive(Debug, Clone)]
pub struct Passenger {
    pub chunk_id: Uuid,
    pub document_id: i64,
    /// Which chunk of the document it is, from 0.
    pub ordinal: i32,
    /// Which of the flight's texts it has.
    pub text: usize,
}

/// A batch at the gateway.
pub struct Flight {
    pub target: Arc<Target>,
    /// The right to ask the embedder, as it was when the batch was made.
    pub access: Access,
    /// Different texts; equal ones are sent once.
    pub texts: Vec<String>,
    /// Of each text.
    pub hashes: Vec<u64>,
    /// Tokens of each text.
    pub tokens: Vec<u32>,
    pub chunks: Vec<Passenger>,
    pub holders: Vec<Holder>,
    pub sent: Instant,
    /// Bytes that it holds at the gateway.
    cost: usize,
}

/// Bytes that a batch of these texts holds at the gateway.
fn cost(target: &Target, texts: &[String]) -> usize {
    let vectors = frame::vector_bytes(texts.len(), target.embedder.dimension);
    frame::cost(texts.iter().map(String::len).sum(), vectors)
}

impl Flight {
    pub fn new(target: Arc<Target>, access: Access, missing: Vec<Missing>) -> Flight {
        let (mut texts, mut tokens): (Vec<String>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut hashes = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut chunks = Vec::new();
        for chunk in missing {
            let text = *known.entry(chunk.content).or_insert_with_key(|content| {
                texts.push(content.clone());
                hashes.push(hash(content));
                tokens.push(u32::try_from(chunk.token_count).unwrap_or(0));
                texts.len() - 1
            });
            chunks.push(Passenger {
                chunk_id: chunk.chunk_id,
                document_id: chunk.document_id,
                ordinal: chunk.ordinal,
                text,
            });
        }
        let (cost, sent) = (cost(&target, &texts), Instant::now());
        Flight { target, access, texts, hashes, tokens, chunks, holders: Vec::new(), sent, cost }
    }

    /// Two flights of half the texts each, to find the one text that is refused.
    pub fn halves(self) -> [Flight; 2] {
        let middle = self.texts.len() / 2;
        let (mut first, mut hashes, mut tokens) = (self.texts, self.hashes, self.tokens);
        let (second, second_hashes) = (first.split_off(middle), hashes.split_off(middle));
        let second_tokens = tokens.split_off(middle);
        let (left, right): (Vec<Passenger>, Vec<Passenger>) =
            self.chunks.into_iter().partition(|chunk| chunk.text < middle);
        let right = right.into_iter().map(|chunk| Passenger { text: chunk.text - middle, ..chunk }).collect();
        let flight = |texts: Vec<String>, hashes, tokens, chunks: Vec<Passenger>| {
            let documents: HashSet<i64> = chunks.iter().map(|chunk| chunk.document_id).collect();
            let mut holders = self.holders.clone();
            holders.retain(|(document, _)| documents.contains(document));
            let (target, access) = (Arc::clone(&self.target), self.access.clone());
            let cost = cost(&target, &texts);
            Flight { target, access, texts, hashes, tokens, chunks, holders, sent: self.sent, cost }
        };
        [flight(first, hashes, tokens, left), flight(second, second_hashes, second_tokens, right)]
    }

    /// The chunks whose text has a vector, and their vectors one after the other. `numbers` holds those of the
    /// texts that are not in `failed` (in order of position).
    pub fn spread(&self, numbers: &[f32], failed: &[usize], dimension: usize) -> (Vec<Uuid>, Vec<f32>) {
        let (mut ids, mut all) = (Vec::new(), Vec::with_capacity(self.chunks.len() * dimension));
        for chunk in &self.chunks {
            let before = failed.partition_point(|text| *text < chunk.text);
            if failed.get(before) == Some(&chunk.text) {
                continue;
            }
            let at = (chunk.text - before) * dimension;
            if let Some(vector) = numbers.get(at..at + dimension) {
                ids.push(chunk.chunk_id);
                all.extend_from_slice(vector);
            }
        }
        (ids, all)
    }
}

/// Vectors that the database did not take.
pub struct Unsaved {
    pub flight: Flight,
    pub embedded: Embedded,
    /// It is their table that cannot be written, for somebody's lock; others can.
    pub is_of_table: bool,
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
    next_ticket: u64,
    /// Hashes of texts that got their vectors, by build, as far as there is room: who comes with one of them later looks
    /// whether it can be had for nothing.
    landed: HashSet<(i64, u64)>,
}

/// Texts that are remembered at most.
const LANDED: usize = 200_000;

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Flights {
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.groups.is_empty() && self.sent.is_empty() && self.halved.is_empty()
    }

    /// Forgets everything under way, but not which tickets were given out.
    pub fn clear(&mut self) {
        *self = Flights { next_ticket: self.next_ticket, ..Flights::default() };
    }

    /// Takes up a written document; the builds in which it wants vectors.
    pub fn add(&mut self, document: Prepared) -> Vec<(Arc<Target>, i64)> {
        self.next_ticket += 1;
        let id = document.document_id;
        let last = document.targets.last().map(|(target, _)| Arc::clone(target));
        let open = Open {
            job: document.job,
            settings: document.settings,
            is_new: document.is_new,
            in_next: document.targets.iter().any(|(target, _)| target.build.state == "next"),
            embedder: last.as_ref().map(|target| target.embedder.id.clone()).unwrap_or_default(),
            is_remote: last.is_some_and(|target| target.is_remote()),
            error: None,
            ticket: self.next_ticket,
            pending: 0,
        };
        self.open.insert(id, open);
        document.targets.into_iter().map(|(target, _)| (target, id)).collect()
    }

    /// Documents now wait for one thing more; what to give back when it is there.
    pub fn hold(&mut self, documents: impl IntoIterator<Item = i64>) -> Vec<Holder> {
        let mut holders = Vec::new();
        for document in documents {
            if let Some(open) = self.open.get_mut(&document) {
                open.pending += 1;
                holders.push((document, open.ticket));
            }
        }
        holders
    }

    /// What was held is held once more.
    pub fn hold_again(&mut self, holders: &[Holder]) {
        for (document, ticket) in holders {
            if let Some(open) = self.open.get_mut(document).filter(|open| open.ticket == *ticket) {
                open.pending += 1;
            }
        }
    }

    /// Documents wait for one thing less; those that wait for nothing any more are taken out.
    pub fn let_go(&mut self, holders: impl IntoIterator<Item = Holder>) -> Vec<(i64, Open)> {
        let mut done = Vec::new();
        for (document, ticket) in holders {
            let Some(open) = self.open.get_mut(&document).filter(|open| open.ticket == ticket) else {
                continue;
            };
            open.pending = open.pending.saturating_sub(1);
            if open.pending == 0
                && let Some(open) = self.open.remove(&document)
            {
                done.push((document, open));
            }
        }
        done
    }

    /// A document under way, if one of these holders is its taking up.
    pub fn held(&mut self, holders: &[Holder], document: i64) -> Option<&mut Open> {
        self.open.get_mut(&document).filter(|open| holders.contains(&(document, open.ticket)))
    }

    /// Undoes [`Flights::let_go`]: `ended` are the documents that it took out.
    pub fn put_back(&mut self, holders: &[Holder], ended: impl IntoIterator<Item = (i64, Open)>) {
        self.hold_again(holders);
        for (document, mut open) in ended {
            // One taken up anew has another ticket, and comes before.
            open.pending = holders.iter().filter(|holder| **holder == (document, open.ticket)).count();
            self.open.entry(document).or_insert(open);
        }
    }

    /// Takes a document out, if it still is as it was held.
    pub fn take(&mut self, holder: Holder) -> Option<Open> {
        self.open.get(&holder.0).filter(|open| open.ticket == holder.1)?;
        self.open.remove(&holder.0)
    }

    /// Leaves out the chunks that are at the gateway already, for an earlier taking up of their document, and those
    /// whose text is there for another one, and has their documents wait for them: nothing is paid for twice.
    pub fn join(&mut self, build_no: i64, missing: Vec<Missing>) -> Vec<Missing> {
        let chunk_ids: HashSet<Uuid> = missing.iter().map(|chunk| chunk.chunk_id).collect();
        let hashes: HashSet<u64> = missing.iter().map(|chunk| hash(&chunk.content)).collect();
        // Of these chunks only: as a rule nothing is in the air twice.
        let mut flying: HashMap<Uuid, u64> = HashMap::new();
        let mut twins: HashMap<u64, (u64, usize)> = HashMap::new();
        for (id, flight) in self.sent.iter().filter(|(_, flight)| flight.target.build.build_no == build_no) {
            let chunks = flight.chunks.iter().map(|chunk| chunk.chunk_id);
            flying.extend(
                chunks.filter(|chunk_id| chunk_ids.contains(chunk_id)).map(|chunk_id| (chunk_id, *id)),
            );
            let texts = flight.hashes.iter().enumerate().filter(|(_, hash)| hashes.contains(hash));
            twins.extend(texts.map(|(text, hash)| (*hash, (*id, text))));
        }
        let mut left = Vec::new();
        for chunk in missing {
            let known = flying.get(&chunk.chunk_id).map(|id| (*id, None));
            let is_equal = |(id, text): &&(u64, usize)| {
                self.sent.get(id).and_then(|flight| flight.texts.get(*text)) == Some(&chunk.content)
            };
            let twin = || {
                let found = twins.get(&hash(&chunk.content)).filter(is_equal);
                found.map(|(id, text)| (*id, Some(*text)))
            };
            let Some((id, text)) = known.or_else(twin) else {
                left.push(chunk);
                continue;
            };
            let holders = self.hold([chunk.document_id]);
            if let Some(flight) = self.sent.get_mut(&id) {
                flight.holders.extend(holders);
                if let Some(text) = text {
                    let Missing { chunk_id, document_id, ordinal, .. } = chunk;
                    flight.chunks.push(Passenger { chunk_id, document_id, ordinal, text });
                }
            }
        }
        left
    }

    /// Remembers the texts of a flight that has come back.
    pub fn note_landed(&mut self, flight: &Flight) {
        if self.landed.len() > LANDED {
            self.landed.clear();
        }
        let build_no = flight.target.build.build_no;
        self.landed.extend(flight.hashes.iter().map(|hash| (build_no, *hash)));
    }

    /// Whether the text of any of these chunks has come back before.
    pub fn any_landed(&self, build_no: i64, missing: &[Missing]) -> bool {
        missing.iter().any(|chunk| self.landed.contains(&(build_no, hash(&chunk.content))))
    }

    /// Texts at the gateway for an embedder.
    pub fn texts_out(&self, embedder: &str) -> usize {
        self.sent.values().filter(|f| f.target.embedder.id == embedder).map(|f| f.texts.len()).sum()
    }

    /// Bytes that the batches of an embedder hold at the gateway, and those of all.
    pub fn cost(&self, embedder: &str) -> (usize, usize) {
        let (mut own, mut all) = (0, 0);
        for flight in self.sent.values() {
            all += flight.cost;
            own += if flight.target.embedder.id == embedder { flight.cost } else { 0 };
        }
        (own, all)
    }

    /// Embedders with as many documents under way as they may have.
    pub fn busy(&self, local: usize, remote: usize) -> Vec<String> {
        let mut load: HashMap<(&str, bool), usize> = HashMap::new();
        for open in self.open.values() {
            *load.entry((&open.embedder, open.is_remote)).or_default() += 1;
        }
        let most = |is_remote| if is_remote { remote } else { local };
        let full = load.into_iter().filter(|((_, is_remote), documents)| *documents >= most(*is_remote));
        full.map(|((embedder, _), _)| embedder.to_string()).collect()
    }

    pub fn jobs(&self) -> Vec<Job> {
        self.open.values().map(|open| open.job.clone()).collect()
    }
}
