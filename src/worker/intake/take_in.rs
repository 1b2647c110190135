//! From the queue to chunks: claims jobs of each kind of work, and has it prepare and write them.
//!
//! Each embedder has a limited number of documents under way ([`OPEN_LOCAL`], [`OPEN_REMOTE`]); when it has
//! as many, claims pass over its knowledge bases. So a provider that never answers fills only its own share.

use super::claims::Busy;
use crate::jobs::queue;
use crate::models::services;
use crate::pg::txn;
use crate::settings;
use crate::work::Progress;
use crate::worker::context::Worker;
use kb_types::error::Result;
use std::time::Instant;

/// Documents under way at most: in all, of one local and of one remote embedder, so that a slow provider
/// delays only its own; and of one knowledge base per claim.
const OPEN_DOCUMENTS: usize = 4096;
const OPEN_LOCAL: usize = 64;
const OPEN_REMOTE: usize = 1536;
const SHARE: usize = 32;
/// Documents claimed at a time.
const CLAIM: usize = 64;

impl Worker {
    /// Has each kind of work take in jobs. Nothing is claimed unless it `may_begin`. Whether anything moved.
    pub fn take_in(&mut self, may_begin: bool) -> Result<bool> {
        let (mut moved, mut conflict) = (false, Ok(()));
        for kind in self.works.kinds() {
            match self.take_in_of(kind, may_begin) {
                Ok(has_moved) => moved |= has_moved,
                // The other kinds of work do not wait for what one of them finds locked.
                Err(error) if error.is_conflict() => conflict = Err(error),
                Err(error) => return Err(error),
            }
        }
        conflict.map(|()| moved)
    }

    /// Claims jobs of one kind of work, and has them prepared and written in groups: one is prepared while
    /// another is written.
    fn take_in_of(&mut self, kind: &'static str, may_begin: bool) -> Result<bool> {
        let mut moved = self.act(kind, |work, _, events| work.settle(events))?;
        moved |= self.act(kind, |work, pauses, events| work.ask_models(may_begin, pauses, events))?;
        self.act(kind, |work, _, events| work.write(events))?;
        let progress = self.works.of_mut(kind)?.collect()?;
        if progress == Progress::Preparing {
            return Ok(moved);
        }
        let begun = if may_begin { self.begin(kind) } else { Ok(false) };
        // What is prepared is written even if nothing more can be begun.
        if progress == Progress::Prepared {
            self.act(kind, |work, _, events| work.write(events))?;
            moved = true;
        }
        begun.map(|begun| begun || moved)
    }

    /// Claims jobs if none is left, and has a group of them prepared; false when there is none.
    fn begin(&mut self, kind: &'static str) -> Result<bool> {
        if self.works.of(kind)?.wants_jobs() {
            self.claim(kind)?;
        }
        self.act(kind, |work, _, events| work.begin(events))
    }

    fn claim(&mut self, kind: &'static str) -> Result<()> {
        let room = OPEN_DOCUMENTS.saturating_sub(self.open.len());
        if room == 0 {
            return Ok(());
        }
        self.works.of_mut(kind)?.take_up()?;
        self.end_pauses_of_altered()?;
        // No embedder takes more than half of what is left, so that however many are stuck another finds
        // room.
        let mut embedders = self.open.busy_embedders(OPEN_LOCAL, OPEN_REMOTE.min(room / 2));
        let work = self.works.of(kind)?;
        embedders.extend(work.full_embedders());
        let mut knowledge_bases = self.upkeeps.full_knowledge_bases();
        knowledge_bases.extend(work.full_knowledge_bases());
        let busy = Busy { embedders, knowledge_bases };
        let paused = self.pauses.current(Instant::now());
        let lease = settings::lease_duration();
        let (most, share) = (CLAIM.min(room), SHARE.min(room));
        let jobs = self.claims.claim(kind, most, share, lease, busy, paused)?;
        self.works.of_mut(kind)?.take(jobs);
        Ok(())
    }

    /// Ends the pauses of embedders that were altered, and those of their documents: some may have begun
    /// after the change, by an answer to a batch sent before it.
    fn end_pauses_of_altered(&mut self) -> Result<()> {
        for id in self.pauses.due_for_comparison(Instant::now()) {
            let embedder = txn::in_txn(|| services::find_embedder(&id))?;
            if self.pauses.is_altered(&id, embedder.as_ref()) {
                txn::in_txn(|| queue::make_due_for_embedder(&id))?;
                self.pauses.end(&id);
            }
        }
        Ok(())
    }
}
