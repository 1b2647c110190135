//! Recall: makes scans, and decides when they have found enough and when to search further. It uses the store
//! through traits, so that it is tested without one.

use super::dedupe;
use super::journal::Journal;
use super::request::AnswerBounds;
use crate::scan_plan;
use crate::scan_plan::{Step, Wanted};
use kb_types::Candidate;
use kb_types::candidate::Found;
use kb_types::error::{Error, Result};
use kb_types::vector_db::{Forced, Kept, Scan};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// What recall by vectors needs from the store, for one question.
pub trait VectorStore {
    /// A running scan.
    type Scan;

    /// The number of vectors in the index. None without an index.
    fn indexed(&self) -> Result<Option<usize>>;

    /// How many chunks pass the filter, counted if they are likely at most `most`. None without a filter.
    fn kept(&self, most: usize) -> Result<Option<Kept>>;

    /// The way of searching that a test demands.
    fn forced(&self) -> Option<Forced> {
        None
    }

    /// The segments of the index that a step searches, each with its approximate number of vectors and its
    /// ef_search.
    fn parts(&self, _step: Step) -> Result<Vec<(u64, usize)>> {
        Ok(Vec::new())
    }

    /// Begins a scan for the nearest vectors.
    fn open(&self, step: Step) -> Result<Self::Scan>;

    /// The next candidates of a scan, best first, including those that the caller may not read. The scan ends
    /// when there are fewer than `count`.
    fn next(&self, scan: &mut Self::Scan, count: usize) -> Result<Vec<Candidate>>;

    /// The candidates that the caller may read, with their heads, in the same order.
    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>>;
}

/// The steps for a question, of which later ones are used only if the earlier ones do not give enough.
pub fn steps(
    vectors: &impl VectorStore,
    top_k: usize,
    dedupe: bool,
    ef_search: Option<usize>,
) -> Result<Vec<Step>> {
    let indexed = vectors.indexed()?;
    let kept = vectors.kept(scan_plan::exact_up_to(top_k, indexed))?;
    let wanted = Wanted { top_k, dedupe, kept, vectors: indexed, ef_search };
    Ok(scan_plan::steps(wanted, vectors.forced()))
}

/// The candidates of one question by similarity. If more are needed, also because some are duplicates, hidden
/// or below the least score, the running scan continues. Another one begins only where that gives no more.
pub struct Nearest<'a, V: VectorStore> {
    vectors: V,
    ef_search: Option<usize>,
    journal: &'a Journal,
    look: Option<Look<V::Scan>>,
    /// What the journal records about the scans.
    told: Vec<Told>,
}

/// A running scan, and what it has returned.
struct Look<S> {
    step: Step,
    scan: S,
    /// The candidates that the caller may read, best first.
    candidates: Vec<Candidate>,
    /// How many candidates it has returned, and the least score of these.
    given: usize,
    least: Option<f64>,
    has_hidden: bool,
    has_ended: bool,
}

struct Told {
    step: Step,
    /// The number of rows that the caller may read.
    found: usize,
    given: usize,
    is_told: bool,
    parts: Vec<(u64, usize)>,
}

impl<'a, V: VectorStore> Nearest<'a, V> {
    pub fn new(vectors: V, ef_search: Option<usize>, journal: &'a Journal) -> Self {
        Nearest { vectors, ef_search, journal, look: None, told: Vec::new() }
    }

    /// The first candidates that have `top_k` distinct texts (or without `dedupe` the first `top_k`), or all
    /// that can be found. It may be called again for more.
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let (journal, top_k) = (self.journal, bounds.top_k);
        let (indexed, kept) = journal.time("plan", || {
            let indexed = self.vectors.indexed()?;
            Ok::<_, Error>((indexed, self.vectors.kept(scan_plan::exact_up_to(top_k, indexed))?))
        })?;
        journal.note("dense", "has_index", || json!(indexed.is_some()));
        if journal.tells_all() {
            journal.note("dense", "index_vectors", || json!(indexed));
        }
        journal.note("dense", "filter_keeps", || kept_json(kept, journal.tells_all()));
        let is_told = kept.is_none() || journal.tells_all();
        let wanted =
            Wanted { top_k, dedupe: bounds.dedupe, kept, vectors: indexed, ef_search: self.ef_search };
        let mut steps = VecDeque::from(scan_plan::steps(wanted, self.vectors.forced()));
        let mut look = match self.look.take() {
            // A scan of the index keeps what it has returned, and continues.
            Some(look) if look.is_index() && !look.is_one_pass() => {
                steps.retain(|step| !matches!(step.scan, Scan::Index { .. }));
                self.told.pop_if(|told| told.step == look.step);
                look
            }
            Some(look) if look.has_seen_all() => {
                self.told.pop_if(|told| told.step == look.step);
                look
            }
            _ => match steps.pop_front() {
                Some(step) => self.open(step)?,
                None => {
                    if !journal.tells_all() {
                        // For example, because all chunks that pass the filter are hidden.
                        let limit = if bounds.dedupe { scan_plan::several(top_k) } else { top_k };
                        let step = Step::exact(limit);
                        self.tell(&Told { step, found: 0, given: 0, is_told, parts: vec![] });
                    }
                    return Ok(Vec::new());
                }
            },
        };
        let (mut is_hidden, mut has_looked_twice) = (false, false);
        loop {
            self.extend(&mut look, bounds, indexed)?;
            // Once a step has met hidden rows, later ones need not meet any, because copies of one text may
            // come first.
            let was_hidden = is_hidden;
            is_hidden |= steps.is_empty() && look.has_hidden;
            // How far the search goes because of hidden rows is recorded only for callers from whom no row is
            // hidden.
            if !was_hidden || journal.tells_all() {
                let parts = if journal.tells_all() { self.vectors.parts(look.step)? } else { Vec::new() };
                let (step, given, found) = (look.step, look.given, look.first(bounds));
                self.told.push(Told { step, found, given, is_told, parts });
            }
            // A scan that cannot continue begins anew.
            if look.is_short(bounds)
                && look.is_one_pass()
                && !has_looked_twice
                && let Some(further) = scan_plan::second_look(look.step)
            {
                has_looked_twice = true;
                look = self.open(further)?;
                continue;
            }
            if look.has_seen_all() || look.kept(bounds) >= bounds.top_k || look.is_below(bounds) {
                break;
            }
            // The scan returned as many as it could. Another scan for as many would return the same copies of
            // texts.
            if steps.len() > 1 && steps[0].scan == Scan::Exact && look.given >= steps[0].limit {
                steps.pop_front();
            }
            // The caller may not read some of them because of a policy that the database has. Search further,
            // twice as far each time.
            if is_hidden {
                steps.push_back(Step::exact(look.step.limit * 2));
            }
            let Some(step) = steps.pop_front() else { break };
            look = self.open(step)?;
        }
        journal.note("dense", "scans", || {
            self.told.iter().map(|told| scan_json(told, journal.tells_all())).collect()
        });
        let found = look.candidates[..look.first(bounds)].to_vec();
        self.look = Some(look);
        Ok(found)
    }

    fn open(&self, step: Step) -> Result<Look<V::Scan>> {
        let scan = self.journal.time("scan", || self.vectors.open(step))?;
        let (candidates, has_hidden, has_ended) = (Vec::new(), false, false);
        Ok(Look { step, scan, candidates, given: 0, least: None, has_hidden, has_ended })
    }

    /// Reads from a scan until there is enough, or until it ends.
    fn extend(&self, look: &mut Look<V::Scan>, bounds: &AnswerBounds, indexed: Option<usize>) -> Result<()> {
        let most =
            if look.is_index() { scan_plan::most_given(bounds.top_k, indexed) } else { look.step.limit };
        while !look.has_ended && look.qualifying(bounds) < bounds.top_k {
            let missing = bounds.top_k - look.qualifying(bounds);
            let count = match scan_plan::second_look(look.step) {
                _ if look.given == 0 => bounds.top_k,
                // Few rows qualify according to an approximate index, so it is searched further once before
                // that is accepted. An exact scan for every such question would cost too much.
                Some(Step { scan: Scan::Index { ef_search, .. }, .. })
                    if look.is_below(bounds) && !look.is_one_pass() =>
                {
                    ef_search.saturating_sub(look.given)
                }
                _ if look.is_below(bounds) => 0,
                _ => scan_plan::more(missing, look.given.saturating_sub(bounds.top_k))
                    .min(most.saturating_sub(look.given)),
            };
            if count == 0 {
                break;
            }
            let was_below = look.is_below(bounds);
            let mut near = self.journal.time("scan", || self.vectors.next(&mut look.scan, count))?;
            look.has_ended = near.len() < count;
            look.given += near.len();
            look.least = near.iter().filter_map(Candidate::score).chain(look.least).reduce(f64::min);
            // In the second scan only rows that qualify are read.
            near.retain(|candidate| !was_below || candidate.score() >= Some(bounds.min_score));
            let count = near.len();
            let read = self.journal.time("read", || self.vectors.read(near))?;
            look.has_hidden |= read.len() < count;
            look.candidates.extend(read);
            look.put_in_order();
        }
        Ok(())
    }

    fn tell(&self, told: &Told) {
        let tells_all = self.journal.tells_all();
        self.journal.note("dense", "scans", || json!([scan_json(told, tells_all)]));
    }
}

impl<S> Look<S> {
    fn is_index(&self) -> bool {
        matches!(self.step.scan, Scan::Index { .. })
    }

    /// Whether it is a scan of the index that returns at most ef_search rows.
    fn is_one_pass(&self) -> bool {
        matches!(self.step.scan, Scan::Index { visits: 0, .. })
    }

    /// An exact scan that returned fewer rows than requested has seen all of them.
    fn has_seen_all(&self) -> bool {
        self.step.scan == Scan::Exact && self.has_ended && self.given < self.step.limit
    }

    /// Whether further rows are below the least score of the request. A scan of the index that returned too
    /// few may have missed some.
    fn is_below(&self, bounds: &AnswerBounds) -> bool {
        self.given >= self.step.limit.min(bounds.top_k)
            && self.least.is_some_and(|least| least < bounds.min_score)
    }

    /// Whether there are too few rows because the scores of others are too low.
    fn is_short(&self, bounds: &AnswerBounds) -> bool {
        self.is_below(bounds) && self.qualifying(bounds) < bounds.top_k
    }

    fn kept(&self, bounds: &AnswerBounds) -> usize {
        if bounds.dedupe { dedupe::count(&self.candidates) } else { self.candidates.len() }
    }

    /// How many of the candidates have at least the least score of the request.
    fn qualifying(&self, bounds: &AnswerBounds) -> usize {
        let has_score =
            |candidate: &Candidate| candidate.score().is_some_and(|score| score >= bounds.min_score);
        let qualifying = &self.candidates[..self.candidates.partition_point(has_score)];
        if bounds.dedupe { dedupe::count(qualifying) } else { qualifying.len() }
    }

    /// How many of the candidates are needed. It does not depend on how far the search went.
    fn first(&self, bounds: &AnswerBounds) -> usize {
        first(&self.candidates, bounds)
    }

    fn put_in_order(&mut self) {
        self.candidates.sort_by(|a, b| b.score().partial_cmp(&a.score()).unwrap_or(Ordering::Equal));
        for (rank, candidate) in (1..).zip(&mut self.candidates) {
            candidate.dense = candidate.dense.map(|found| Found { rank, ..found });
        }
    }
}

/// How many of the candidates, which come best first, have `top_k` distinct texts or are `top_k` in number.
fn first(candidates: &[Candidate], bounds: &AnswerBounds) -> usize {
    let wanted = if bounds.dedupe { dedupe::first(candidates, bounds.top_k) } else { Some(bounds.top_k) };
    wanted.unwrap_or(usize::MAX).min(candidates.len())
}

/// Estimates cover all users' rows, and counts may include rows that a policy of the database hides, so
/// others get neither.
fn kept_json(kept: Option<Kept>, tells_all: bool) -> Value {
    let (chunks, is_counted) = match kept {
        None => return Value::Null,
        Some(Kept::Exactly(chunks)) => (chunks, true),
        Some(Kept::About(chunks)) => (chunks, false),
    };
    json!({"chunks": tells_all.then_some(chunks), "counted": is_counted})
}

/// With a filter, how far the index is searched depends on all users' rows.
fn scan_json(told: &Told, tells_all: bool) -> Value {
    let mut scan = match told.step.scan {
        Scan::Index { ef_search, visits } if told.is_told => {
            json!({"scan": "index", "ef_search": ef_search, "max_scan_tuples": (visits > 0).then_some(visits)})
        }
        Scan::Index { .. } => json!({"scan": "index"}),
        Scan::Exact => json!({"scan": "exact"}),
        Scan::ExactDistinct => json!({"scan": "exact, each text once"}),
    };
    if !told.parts.is_empty() {
        let part = |(vectors, ef_search): &(u64, usize)| json!({"vectors": vectors, "ef_search": ef_search});
        scan["segments"] = told.parts.iter().map(part).collect();
    }
    scan["limit"] = json!(told.step.limit);
    if tells_all {
        scan["given"] = json!(told.given);
    }
    scan["found"] = json!(told.found);
    scan
}

/// What recall by words needs from the index, for one question.
pub trait KeywordStore {
    /// Considers the next `count` best chunks. Returns those that may be in the answer, best first and with
    /// heads, and whether there are no others.
    fn further(&mut self, count: usize) -> Result<(Vec<Candidate>, bool)>;
}

/// The candidates of one question by words; compare [`Nearest`].
pub struct Best<'a, W> {
    words: W,
    journal: &'a Journal,
    candidates: Vec<Candidate>,
    /// How many chunks were considered.
    asked: usize,
    is_all: bool,
}

impl<'a, W: KeywordStore> Best<'a, W> {
    pub fn new(words: W, journal: &'a Journal) -> Self {
        Best { words, journal, candidates: Vec::new(), asked: 0, is_all: false }
    }

    /// Like [`Nearest::find`].
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let AnswerBounds { top_k, dedupe, .. } = *bounds;
        loop {
            let kept = if dedupe { dedupe::count(&self.candidates) } else { self.candidates.len() };
            if kept >= top_k || self.is_all {
                break;
            }
            let count = if self.asked == 0 {
                top_k
            } else {
                scan_plan::more(top_k - kept, self.asked.saturating_sub(top_k))
            };
            let (found, is_all) = self.words.further(count)?;
            self.candidates.extend(found);
            self.asked += count;
            self.is_all = is_all;
            if self.journal.tells_all() {
                let (limit, found) = (self.asked, self.candidates.len());
                self.journal.add("keyword", "looks", || json!({"limit": limit, "found": found}));
            }
        }
        if !self.journal.tells_all() {
            // The number of reads depends on rows that a policy hides, so it is recorded only for some
            // callers.
            let found = self.candidates.len().min(top_k);
            self.journal.note("keyword", "looks", || json!([{"limit": top_k, "found": found}]));
        }
        Ok(self.candidates[..first(&self.candidates, bounds)].to_vec())
    }
}
