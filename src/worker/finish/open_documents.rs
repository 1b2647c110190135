//! The documents whose chunks are written and whose vectors are still missing, and how they end.
//!
//! Faults of single texts come back beside the vectors of the others. The vectors are written; the document
//! remembers the fault, and ends with it once nothing of it is under way. Of several faults, one that may
//! pass counts. After kb.retry only the missing chunks are sent.

use crate::jobs::queue::Job;
use crate::work::{Ended, Event, Hold, Target, UnderWay, Written};
use kb_types::error::Error;
use std::collections::HashMap;
use std::sync::Arc;

struct OpenDocument {
    written: Written,
    /// What went wrong with one of its chunks; the others go on.
    error: Option<Error>,
}

#[derive(Default)]
pub struct OpenDocuments(UnderWay<OpenDocument>);

/// Documents that wait for nothing more.
pub struct EndedDocuments {
    /// All their chunks have vectors.
    done: Vec<Ended<OpenDocument>>,
    /// Something went wrong with a chunk.
    broken: Vec<Ended<OpenDocument>>,
}

impl OpenDocuments {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn jobs(&self) -> impl Iterator<Item = Job> {
        self.0.iter().map(|open| open.written.job.clone())
    }

    /// The job of a document, as it was claimed.
    pub fn job(&self, document_id: i64) -> Option<&Job> {
        self.0.get(document_id).map(|open| &open.written.job)
    }

    /// Whose a document is.
    pub fn tenant(&self, document_id: i64) -> Option<&str> {
        self.job(document_id).map(|job| job.tenant_id.as_str())
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Opens a document whose chunks are written.
    pub fn open(&mut self, written: Written) {
        self.0.add(written.document_id, OpenDocument { written, error: None });
    }

    /// See [`UnderWay::hold`].
    pub fn hold(&mut self, documents: impl IntoIterator<Item = i64>) -> Vec<Hold> {
        self.0.hold(documents)
    }

    /// See [`UnderWay::hold_again`].
    pub fn hold_again(&mut self, holds: &[Hold]) {
        self.0.hold_again(holds);
    }

    /// Documents wait for one thing less. Those that wait for nothing any more are taken out.
    pub fn end_holds(&mut self, holds: impl IntoIterator<Item = Hold>) -> EndedDocuments {
        let ended = self.0.end_holds(holds);
        let (done, broken) = ended.into_iter().partition(|ended| ended.document.error.is_none());
        EndedDocuments { done, broken }
    }

    /// Undoes [`OpenDocuments::end_holds`].
    pub fn put_back(&mut self, holds: &[Hold], ended: EndedDocuments) {
        self.0.put_back(holds, ended.done.into_iter().chain(ended.broken));
    }

    /// Ends documents that get no more vectors in a build, and pauses its embedder if the error says so.
    pub fn fail(&mut self, target: &Arc<Target>, holds: &[Hold], error: &Error) -> Vec<Event> {
        let mut events = vec![Event::Refused { target: Arc::clone(target), error: error.clone() }];
        let mut spared = Vec::new();
        for hold in holds {
            let is_spared = |open: &OpenDocument| target.may_fail(open.written.in_next);
            if self.0.get(hold.document_id).is_some_and(is_spared) {
                spared.push(*hold);
            } else if let Some(Ended { document: open, .. }) = self.0.take(*hold) {
                events.push(failed(open.written, error.clone()));
            }
        }
        events.extend(self.end_holds(spared).into_events());
        events
    }

    /// Remembers what is wrong with one chunk; the document's other chunks go on.
    pub fn note_fault(&mut self, target: &Target, holds: &[Hold], document_id: i64, error: Error) {
        let Some(open) = self.0.held(holds, document_id) else { return };
        if target.may_fail(open.written.in_next) {
            return;
        }
        // Of several faults a passing one counts: then all chunks are tried again.
        if open.error.as_ref().is_none_or(|before| !before.is_transient()) {
            open.error = Some(error);
        }
    }

    /// Remembers that an open transaction has locked chunks of a document: it is done again.
    pub fn note_busy(&mut self, holds: &[Hold], document_id: i64) {
        if let Some(open) = self.0.held(holds, document_id) {
            open.error.get_or_insert_with(Error::busy);
        }
    }

    /// Embedders with as many documents under way as they may have.
    pub fn busy_embedders(&self, local: usize, remote: usize) -> Vec<String> {
        let mut load: HashMap<(&str, bool), usize> = HashMap::new();
        for Written { embedder, is_remote, .. } in self.0.iter().map(|open| &open.written) {
            *load.entry((embedder, *is_remote)).or_default() += 1;
        }
        let most = |is_remote| if is_remote { remote } else { local };
        let full = load.into_iter().filter(|((_, is_remote), documents)| *documents >= most(*is_remote));
        full.map(|((embedder, _), _)| embedder.to_string()).collect()
    }
}

impl EndedDocuments {
    /// Those all of whose chunks have vectors.
    pub fn done(&self) -> impl Iterator<Item = &Written> {
        self.done.iter().map(|ended| &ended.document.written)
    }

    /// What is to be recorded of them.
    pub fn into_events(self) -> impl Iterator<Item = Event> {
        let done: Vec<Written> = self.done.into_iter().map(|ended| ended.document.written).collect();
        let done = (!done.is_empty()).then_some(Event::Done(done));
        done.into_iter().chain(broken(self.broken))
    }

    /// The failures, where those that are done are recorded already.
    pub fn into_failures(self) -> impl Iterator<Item = Event> {
        broken(self.broken)
    }
}

fn broken(ended: Vec<Ended<OpenDocument>>) -> impl Iterator<Item = Event> {
    let failure = |Ended { document: OpenDocument { written, error }, .. }| Some(failed(written, error?));
    ended.into_iter().filter_map(failure)
}

/// A document that waited for vectors of its embedder.
fn failed(written: Written, error: Error) -> Event {
    Event::Failed { job: written.job, error, embedder: Some(written.embedder) }
}
