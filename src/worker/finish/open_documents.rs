//! The documents whose chunks are written and whose vectors are still missing, and how they end.
//!
//! Faults of single texts come back beside the vectors of the others. The vectors are written; the document
//! remembers the fault, and ends with it once nothing of it is under way. Of several faults, one that may
//! pass counts. After kb.retry only the missing chunks are sent.

use super::outcome::Outcomes;
use super::under_way::{Ended, Hold, UnderWay};
use crate::jobs::queue::Job;
use crate::worker::embed::embed_batch::Destination;
use crate::worker::embed::pauses::Pauses;
use crate::worker::intake::prepare::Prepared;
use crate::worker::intake::target::Target;
use kb_text::diff::Diff;
use kb_types::error::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

pub struct OpenDocument {
    pub job: Job,
    pub settings: String,
    pub is_new: bool,
    /// It is being put into the next build, too.
    in_next: bool,
    /// Embedder of the last of its builds, and whether that is a remote one.
    embedder: String,
    is_remote: bool,
    /// What went wrong with one of its chunks; the others go on.
    error: Option<Error>,
}

#[derive(Default)]
pub struct OpenDocuments {
    under_way: UnderWay<OpenDocument>,
    outcomes: Outcomes,
}

/// Documents that wait for nothing more.
pub struct EndedDocuments {
    /// All their chunks have vectors.
    pub done: Vec<Ended<OpenDocument>>,
    /// Something went wrong with a chunk.
    broken: Vec<Ended<OpenDocument>>,
}

impl OpenDocuments {
    /// What ends jobs, also those of documents that are not open.
    pub fn outcomes(&mut self) -> &mut Outcomes {
        &mut self.outcomes
    }

    /// See [`Outcomes::release_now_and_then`]; `others` are jobs at work whose documents are not open yet.
    pub fn release_now_and_then(&mut self, others: impl Iterator<Item = Job>) {
        let own = self.under_way.iter().map(|open| open.job.clone());
        self.outcomes.release_now_and_then(|| own.chain(others).collect());
    }

    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub fn jobs(&self) -> impl Iterator<Item = Job> {
        self.under_way.iter().map(|open| open.job.clone())
    }

    /// The generation that a document was claimed with.
    pub fn generation(&self, document_id: i64) -> Option<i64> {
        self.under_way.get(document_id).map(|open| open.job.generation)
    }

    /// Whose a document is.
    pub fn tenant(&self, document_id: i64) -> Option<&str> {
        self.under_way.get(document_id).map(|open| open.job.tenant_id.as_str())
    }

    pub fn clear(&mut self) {
        self.under_way.clear();
    }

    /// Opens a document whose chunks are written; the builds in which it waits for vectors, of its new chunks at most but for what an
    /// earlier try has left.
    pub fn open(&mut self, document: Prepared) -> Vec<(Arc<Target>, Diff)> {
        let targets = document.targets;
        let last = targets.last().map(|(target, _)| target);
        let open = OpenDocument {
            job: document.job,
            settings: document.settings,
            is_new: document.is_new,
            in_next: targets.iter().any(|(target, _)| target.is_next()),
            embedder: last.map(|target| target.embedder.id.clone()).unwrap_or_default(),
            is_remote: last.is_some_and(|target| target.is_remote()),
            error: None,
        };
        self.under_way.add(document.document_id, open);
        targets
    }

    /// See [`UnderWay::hold`].
    pub fn hold(&mut self, documents: impl IntoIterator<Item = i64>) -> Vec<Hold> {
        self.under_way.hold(documents)
    }

    /// See [`UnderWay::hold_again`].
    pub fn hold_again(&mut self, holds: &[Hold]) {
        self.under_way.hold_again(holds);
    }

    /// Documents wait for one thing less; those that wait for nothing any more end, ready or not.
    pub fn let_go(&mut self, holds: impl IntoIterator<Item = Hold>) -> Result<()> {
        let ended = self.take_ended(holds);
        if !ended.done.is_empty() {
            self.outcomes.finish(&ended.done)?;
        }
        self.fail_broken(ended)
    }

    /// The same, but those that end are returned: see [`super::outcome::finish`] and [`OpenDocuments::fail_broken`].
    pub fn take_ended(&mut self, holds: impl IntoIterator<Item = Hold>) -> EndedDocuments {
        let ended = self.under_way.let_go(holds);
        let (done, broken) = ended.into_iter().partition(|ended| ended.document.error.is_none());
        EndedDocuments { done, broken }
    }

    /// Undoes [`OpenDocuments::take_ended`].
    pub fn put_back(&mut self, holds: &[Hold], ended: EndedDocuments) {
        self.under_way.put_back(holds, ended.done.into_iter().chain(ended.broken));
    }

    /// Records the failures of documents that ended with one.
    pub fn fail_broken(&mut self, ended: EndedDocuments) -> Result<()> {
        for open in ended.broken.iter().map(|ended| &ended.document) {
            if let Some(error) = &open.error {
                self.outcomes.fail_at(&open.job, error, Some(&open.embedder))?;
            }
        }
        Ok(())
    }

    /// Ends documents that get no more vectors in a build, and pauses its embedder if the error says so.
    pub fn fail(
        &mut self,
        pauses: &mut Pauses,
        target: &Target,
        holds: &[Hold],
        error: &Error,
    ) -> Result<()> {
        pauses.note(&target.embedder, &target.build.tenant_id, error, Instant::now());
        let mut spared = Vec::new();
        for hold in holds {
            if self.under_way.get(hold.document_id).is_some_and(|open| target.may_fail(open.in_next)) {
                spared.push(*hold);
            } else if let Some(Ended { document: open, .. }) = self.under_way.take(*hold) {
                self.outcomes.fail_at(&open.job, error, Some(&open.embedder))?;
            }
        }
        self.let_go(spared)
    }

    /// Remembers what is wrong with one chunk; the document's other chunks go on.
    pub fn note_fault(&mut self, target: &Target, holds: &[Hold], document_id: i64, error: Error) {
        let Some(open) = self.under_way.held(holds, document_id) else { return };
        if target.may_fail(open.in_next) {
            return;
        }
        // Of several faults a passing one counts: then all chunks are tried again.
        if open.error.as_ref().is_none_or(|before| !before.is_transient()) {
            open.error = Some(error);
        }
    }

    /// Remembers that an open transaction has locked chunks of a document: it is done again.
    pub fn note_busy(&mut self, holds: &[Hold], document_id: i64) {
        if let Some(open) = self.under_way.held(holds, document_id) {
            open.error.get_or_insert_with(Error::busy);
        }
    }

    /// Embedders with as many documents under way as they may have.
    pub fn busy_embedders(&self, local: usize, remote: usize) -> Vec<String> {
        let mut load: HashMap<(&str, bool), usize> = HashMap::new();
        for open in self.under_way.iter() {
            *load.entry((&open.embedder, open.is_remote)).or_default() += 1;
        }
        let most = |is_remote| if is_remote { remote } else { local };
        let full = load.into_iter().filter(|((_, is_remote), documents)| *documents >= most(*is_remote));
        full.map(|((embedder, _), _)| embedder.to_string()).collect()
    }
}
