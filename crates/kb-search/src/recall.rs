//! Recall: which scans are made, when there is enough, and when to look further. The store is asked through a trait, so
//! that this is tested without one.

use super::dedupe;
use super::journal::Journal;
use super::plan::{self, Step, Wanted};
use super::request::AnswerBounds;
use kb_types::Candidate;
use kb_types::candidate::Found;
use kb_types::error::{Error, Result};
use kb_types::vector_db::{Forced, Kept, Scan};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// What recall by vectors needs from the store for one question.
pub trait Vectors {
    /// A scan that is under way.
    type Scan;

    /// How many vectors the index has; None: there is no index.
    fn indexed(&self) -> Result<Option<usize>>;

    /// How many chunks pass the filter, counted where they seem to be `most` at most; None where there is no filter.
    fn kept(&self, most: usize) -> Result<Option<Kept>>;

    /// The way of looking that a test asks for.
    fn forced(&self) -> Option<Forced> {
        None
    }

    /// The parts of the index that a step looks at: about how many vectors each has, and the ef_search for it.
    fn parts(&self, _step: Step) -> Result<Vec<(u64, usize)>> {
        Ok(Vec::new())
    }

    /// Begins to look for the nearest.
    fn open(&self, step: Step) -> Result<Self::Scan>;

    /// The next that a scan gives, best first, including those that the caller may not read; fewer than `count`: it gives no others.
    fn next(&self, scan: &mut Self::Scan, count: usize) -> Result<Vec<Candidate>>;

    /// Those that the caller may read, with their heads, in their order.
    fn read(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>>;
}

/// The steps that a question takes, until one gives enough.
pub fn steps(
    vectors: &impl Vectors,
    top_k: usize,
    dedupe: bool,
    ef_search: Option<usize>,
) -> Result<Vec<Step>> {
    let indexed = vectors.indexed()?;
    let kept = vectors.kept(plan::exact_up_to(top_k, indexed))?;
    let wanted = Wanted { top_k, dedupe, kept, vectors: indexed, ef_search };
    Ok(plan::steps(wanted, vectors.forced()))
}

/// Candidates by similarity for one question. Where more are wanted than were, or some are copies of others, hidden or below the least
/// score, the scan that is under way goes on; it is another one only where that gives no more.
pub struct Nearest<'a, V: Vectors> {
    vectors: V,
    ef_search: Option<usize>,
    journal: &'a Journal,
    look: Option<Look<V::Scan>>,
    /// What is told of the scans.
    told: Vec<Told>,
}

/// A scan that is under way, and what it has given.
struct Look<S> {
    step: Step,
    scan: S,
    /// Those that the caller may read, best first.
    candidates: Vec<Candidate>,
    /// How many it has given, and the least score of these.
    given: usize,
    least: Option<f64>,
    has_hidden: bool,
    has_ended: bool,
}

struct Told {
    step: Step,
    /// Rows that the caller may read.
    found: usize,
    given: usize,
    is_told: bool,
    parts: Vec<(u64, usize)>,
}

impl<'a, V: Vectors> Nearest<'a, V> {
    pub fn new(vectors: V, ef_search: Option<usize>, journal: &'a Journal) -> Self {
        Nearest { vectors, ef_search, journal, look: None, told: Vec::new() }
    }

    /// The first candidates that hold `top_k` texts (without `dedupe`: the first `top_k`), or all that can be found. It may be asked again
    /// for more.
    pub fn find(&mut self, bounds: &AnswerBounds) -> Result<Vec<Candidate>> {
        let (journal, top_k) = (self.journal, bounds.top_k);
        let (indexed, kept) = journal.time("plan", || {
            let indexed = self.vectors.indexed()?;
            Ok::<_, Error>((indexed, self.vectors.kept(plan::exact_up_to(top_k, indexed))?))
        })?;
        journal.note("dense", "has_index", || json!(indexed.is_some()));
        if journal.tells_all() {
            journal.note("dense", "index_vectors", || json!(indexed));
        }
        journal.note("dense", "filter_keeps", || kept_json(kept, journal.tells_all()));
        let is_told = kept.is_none() || journal.tells_all();
        let wanted =
            Wanted { top_k, dedupe: bounds.dedupe, kept, vectors: indexed, ef_search: self.ef_search };
        let mut steps = VecDeque::from(plan::steps(wanted, self.vectors.forced()));
        let mut look = match self.look.take() {
            // What a scan of the index has given is kept, and it goes on.
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
                        // As where all that passes the filter is hidden.
                        let limit = if bounds.dedupe { plan::several(top_k) } else { top_k };
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
            // Once the last step had hidden rows, further ones need not meet any: copies of one text may come first.
            let was_hidden = is_hidden;
            is_hidden |= steps.is_empty() && look.has_hidden;
            // How far is looked because of rows that a policy hides is told to whom it hides none.
            if !was_hidden || journal.tells_all() {
                let parts = if journal.tells_all() { self.vectors.parts(look.step)? } else { Vec::new() };
                let (step, given, found) = (look.step, look.given, look.first(bounds));
                self.told.push(Told { step, found, given, is_told, parts });
            }
            // A scan that does not go on begins anew.
            if look.is_short(bounds)
                && look.is_one_pass()
                && !has_looked_twice
                && let Some(further) = plan::second_look(look.step)
            {
                has_looked_twice = true;
                look = self.open(further)?;
                continue;
            }
            if look.has_seen_all() || look.kept(bounds) >= bounds.top_k || look.is_below(bounds) {
                break;
            }
            // As many were found: another scan for as many would give the same copies of texts.
            if steps.len() > 1 && steps[0].scan == Scan::Exact && look.given >= steps[0].limit {
                steps.pop_front();
            }
            // The caller may not read some of them, by a policy of the database's own: look further, twice as far each time.
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

    /// Reads from a scan until there is enough, or it gives no more.
    fn extend(&self, look: &mut Look<V::Scan>, bounds: &AnswerBounds, indexed: Option<usize>) -> Result<()> {
        let most = if look.is_index() { plan::most_given(bounds.top_k, indexed) } else { look.step.limit };
        while !look.has_ended && look.qualifying(bounds) < bounds.top_k {
            let missing = bounds.top_k - look.qualifying(bounds);
            let count = match plan::second_look(look.step) {
                _ if look.given == 0 => bounds.top_k,
                // Few rows qualify, by an index that is approximate: it is looked further once before that is believed. An exact scan for
                // every question whose least score few rows have would cost too much.
                Some(Step { scan: Scan::Index { ef_search, .. }, .. })
                    if look.is_below(bounds) && !look.is_one_pass() =>
                {
                    ef_search.saturating_sub(look.given)
                }
                _ if look.is_below(bounds) => 0,
                _ => plan::more(missing, look.given.saturating_sub(bounds.top_k))
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
            // Of what is looked through once more only that is read which qualifies.
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

    /// Whether it is a scan of the index that gives no more than its ef_search.
    fn is_one_pass(&self) -> bool {
        matches!(self.step.scan, Scan::Index { visits: 0, .. })
    }

    /// An exact scan that gave fewer rows than it was asked for has seen them all.
    fn has_seen_all(&self) -> bool {
        self.step.scan == Scan::Exact && self.has_ended && self.given < self.step.limit
    }

    /// Whether what comes next has less than the least score asked for. A scan of the index that gave too few may have missed some.
    fn is_below(&self, bounds: &AnswerBounds) -> bool {
        self.given >= self.step.limit.min(bounds.top_k)
            && self.least.is_some_and(|least| least < bounds.min_score)
    }

    /// Whether fewer are there than are wanted because the others have too low a score.
    fn is_short(&self, bounds: &AnswerBounds) -> bool {
        self.is_below(bounds) && self.qualifying(bounds) < bounds.top_k
    }

    fn kept(&self, bounds: &AnswerBounds) -> usize {
        if bounds.dedupe { dedupe::count(&self.candidates) } else { self.candidates.len() }
    }

    /// How many of the candidates have the least score asked for.
    fn qualifying(&self, bounds: &AnswerBounds) -> usize {
        let has_score =
            |candidate: &Candidate| candidate.score().is_some_and(|score| score >= bounds.min_score);
        let qualifying = &self.candidates[..self.candidates.partition_point(has_score)];
        if bounds.dedupe { dedupe::count(qualifying) } else { qualifying.len() }
    }

    /// How many of the candidates hold what is wanted. It does not depend on how far was looked.
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

/// How many of the candidates, which come best first, hold `top_k` texts, or are so many.
fn first(candidates: &[Candidate], bounds: &AnswerBounds) -> usize {
    let wanted = if bounds.dedupe { dedupe::first(candidates, bounds.top_k) } else { Some(bounds.top_k) };
    wanted.unwrap_or(usize::MAX).min(candidates.len())
}

/// Estimates are of everybody's rows, and what is counted may have some that a policy of the database's own hides.
fn kept_json(kept: Option<Kept>, tells_all: bool) -> Value {
    let (chunks, is_counted) = match kept {
        None => return Value::Null,
        Some(Kept::Exactly(chunks)) => (chunks, true),
        Some(Kept::About(chunks)) => (chunks, false),
    };
    json!({"chunks": tells_all.then_some(chunks), "counted": is_counted})
}

/// How far the index is looked through depends, with a filter, on everybody's rows.
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

/// What recall by words needs from the index for one question.
pub trait Words {
    /// Looks at the next `count` of the best: gives, best first, those of them that are to be answered, with their heads; and whether there
    /// are no others.
    fn further(&mut self, count: usize) -> Result<(Vec<Candidate>, bool)>;
}

/// Candidates by words for one question; as [`Nearest`].
pub struct Best<'a, W> {
    words: W,
    journal: &'a Journal,
    candidates: Vec<Candidate>,
    /// How many were looked at.
    asked: usize,
    is_all: bool,
}

impl<'a, W: Words> Best<'a, W> {
    pub fn new(words: W, journal: &'a Journal) -> Self {
        Best { words, journal, candidates: Vec::new(), asked: 0, is_all: false }
    }

    /// As [`Nearest::find`].
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
                plan::more(top_k - kept, self.asked.saturating_sub(top_k))
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
            // How often was looked depends on rows that a policy hides.
            let found = self.candidates.len().min(top_k);
            self.journal.note("keyword", "looks", || json!([{"limit": top_k, "found": found}]));
        }
        Ok(self.candidates[..first(&self.candidates, bounds)].to_vec())
    }
}
