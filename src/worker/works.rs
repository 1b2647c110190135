//! The kinds of work that the worker drives, by the names in `kb.jobs.kind`: what it asks all of them, and
//! which one a job is of. Pure.
//!
//! A kind of work is added by a line in `kinds.rs`; neither this list nor the loop looks at what a name is.
//! Two things keep kinds apart. Each claims by its name, in turns of its own (`intake/claims.rs`), and
//! takes in its jobs beside the others (`intake/take_in.rs`), so that none waits while another has enough,
//! prepares something large, or meets a lock. And whatever ends a job goes by the job's kind. What is
//! between (texts that go to the gateway, vectors that come back) is not divided: vectors are of chunks,
//! chunks are of rows of kb.documents, and their numbers are unique whichever kind of work wrote them. So a
//! limit of an embedder, or a pause, is one for all kinds.

use crate::jobs::queue::Job;
use crate::work::{Work, Written};
use kb_types::error::{Error, Result};
use std::collections::HashSet;

pub struct Works(Vec<Box<dyn Work>>);

impl Works {
    pub fn new(works: Vec<Box<dyn Work>>) -> Works {
        Works(works)
    }

    /// Their names, in the order in which they take turns.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.0.iter().map(|work| work.kind()).collect()
    }

    pub fn of(&self, kind: &str) -> Result<&dyn Work> {
        let found = self.0.iter().find(|work| work.kind() == kind);
        found.map(|work| &**work).ok_or_else(|| unknown(kind))
    }

    pub fn of_mut(&mut self, kind: &str) -> Result<&mut dyn Work> {
        match self.0.iter_mut().find(|work| work.kind() == kind) {
            Some(work) => Ok(&mut **work),
            None => Err(unknown(kind)),
        }
    }

    /// The jobs that are not written yet.
    pub fn jobs(&self) -> impl Iterator<Item = Job> {
        self.0.iter().flat_map(|work| work.jobs())
    }

    /// See [`Work::coming`].
    pub fn coming(&self) -> HashSet<i64> {
        self.0.iter().flat_map(|work| work.coming()).collect()
    }

    /// See [`Work::is_wanted`].
    pub fn is_wanted(&self) -> Result<bool> {
        self.0.iter().try_fold(false, |wanted, work| Ok(wanted || work.is_wanted()?))
    }

    pub fn is_idle(&self) -> bool {
        self.0.iter().all(|work| work.is_idle())
    }

    pub fn is_preparing(&self) -> bool {
        self.0.iter().any(|work| work.is_preparing())
    }

    /// See [`Work::is_prepared`].
    pub fn is_prepared(&mut self) -> bool {
        self.0.iter_mut().any(|work| work.is_prepared())
    }

    /// Gives up all jobs.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|work| work.clear());
    }

    /// Has each kind of work lock its own of these documents; see [`Work::lock_current`].
    pub fn lock_current(&self, documents: &[(i64, &Job)]) -> Result<HashSet<i64>> {
        let mut current = HashSet::new();
        for work in &self.0 {
            let own = documents.iter().filter(|(_, job)| job.kind == work.kind());
            let keys: Vec<(i64, i64)> = own.map(|(id, job)| (*id, job.generation)).collect();
            if !keys.is_empty() {
                current.extend(work.lock_current(&keys)?);
            }
        }
        Ok(current)
    }

    /// Has each kind of work end its own of these; see [`Work::finish`].
    pub fn finish(&self, done: &[&Written], blocked: &HashSet<i64>) -> Result<Vec<Job>> {
        let mut unreleased = Vec::new();
        for work in &self.0 {
            let own = done.iter().copied().filter(|written| written.job.kind == work.kind());
            let own: Vec<&Written> = own.collect();
            if !own.is_empty() {
                unreleased.extend(work.finish(&own, blocked)?);
            }
        }
        Ok(unreleased)
    }
}

/// The constraint on kb.jobs.kind lets no such job come about.
fn unknown(kind: &str) -> Error {
    Error::Internal(format!("no kind of work is named {kind:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Event, Pauses, Progress};
    use kb_types::row_states::Priority;
    use std::sync::{Arc, Mutex};

    fn job(kind: &str, job_no: i64) -> Job {
        Job {
            kind: kind.into(),
            kb_no: job_no,
            tenant_id: "t".into(),
            external_id: job_no.to_string(),
            generation: 10 * job_no,
            attempts: 1,
            run_no: None,
            priority: Priority::Live,
            job_no,
            source_no: None,
            adopted: None,
        }
    }

    fn written(kind: &str, document_id: i64) -> Written {
        let job = job(kind, document_id);
        let (settings, embedder) = (String::new(), "e".into());
        Written { document_id, job, settings, is_new: true, in_next: false, embedder, is_remote: false }
    }

    /// A made-up kind of work. It writes down what it was called for.
    struct MadeUp {
        kind: &'static str,
        jobs: Vec<Job>,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl MadeUp {
        fn note(&self, what: &str, of: impl Iterator<Item = i64>) {
            let of: Vec<String> = of.map(|number| number.to_string()).collect();
            self.calls.lock().unwrap().push(format!("{} {what} {}", self.kind, of.join(" ")));
        }
    }

    impl Work for MadeUp {
        fn kind(&self) -> &'static str {
            self.kind
        }
        fn take_up(&mut self) -> Result<()> {
            Ok(())
        }
        fn is_wanted(&self) -> Result<bool> {
            Ok(!self.jobs.is_empty())
        }
        fn wants_jobs(&self) -> bool {
            self.jobs.is_empty()
        }
        fn full_embedders(&self) -> Vec<String> {
            Vec::new()
        }
        fn take(&mut self, jobs: Vec<Job>) {
            self.note("takes", jobs.iter().map(|job| job.job_no));
            self.jobs.extend(jobs);
        }
        fn begin(&mut self, _: &mut Vec<Event>) -> Result<bool> {
            Ok(false)
        }
        fn collect(&mut self) -> Result<Progress> {
            Ok(Progress::Nothing)
        }
        fn settle(&mut self, _: &mut Vec<Event>) -> Result<bool> {
            Ok(false)
        }
        fn ask_models(&mut self, _: bool, _: &Pauses, _: &mut Vec<Event>) -> Result<bool> {
            Ok(false)
        }
        fn write(&mut self, _: &mut Vec<Event>) -> Result<()> {
            Ok(())
        }
        fn jobs(&self) -> Vec<Job> {
            self.jobs.clone()
        }
        fn coming(&self) -> HashSet<i64> {
            self.jobs.iter().map(|job| job.kb_no).collect()
        }
        fn is_idle(&self) -> bool {
            self.jobs.is_empty()
        }
        fn is_preparing(&self) -> bool {
            !self.jobs.is_empty()
        }
        fn is_prepared(&mut self) -> bool {
            !self.jobs.is_empty()
        }
        fn clear(&mut self) {
            self.jobs.clear();
        }
        fn lock_current(&self, keys: &[(i64, i64)]) -> Result<HashSet<i64>> {
            self.note("locks", keys.iter().flat_map(|key| [key.0, key.1]));
            Ok(keys.iter().map(|key| key.0).collect())
        }
        fn finish(&self, done: &[&Written], blocked: &HashSet<i64>) -> Result<Vec<Job>> {
            self.note("finishes", done.iter().map(|written| written.document_id));
            let is_blocked = |written: &&&Written| blocked.contains(&written.document_id);
            Ok(done.iter().filter(is_blocked).map(|written| written.job.clone()).collect())
        }
        fn lock(&self, job: &Job) -> Result<bool> {
            self.note("locks job", [job.job_no].into_iter());
            Ok(true)
        }
        fn fail(&self, job: &Job, _: &str, _: &str) -> Result<()> {
            self.note("fails", [job.job_no].into_iter());
            Ok(())
        }
    }

    fn numbers(jobs: impl Iterator<Item = Job>) -> Vec<i64> {
        jobs.map(|job| job.job_no).collect()
    }

    #[test]
    fn a_second_kind_of_work_gets_its_jobs_and_documents_theirs() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let made_up = |kind| -> Box<dyn Work> {
            Box::new(MadeUp { kind, jobs: Vec::new(), calls: Arc::clone(&calls) })
        };
        let mut works = Works::new(vec![made_up("document"), made_up("memory")]);
        assert_eq!(works.kinds(), ["document", "memory"]);
        works.of_mut("memory").unwrap().take(vec![job("memory", 3)]);
        assert!(works.of("document").unwrap().wants_jobs() && !works.of("memory").unwrap().wants_jobs());
        works.of_mut("document").unwrap().take(vec![job("document", 1), job("document", 2)]);
        assert_eq!(numbers(works.jobs()), [1, 2, 3]);
        let (first, second, third) = (job("document", 1), job("memory", 3), job("document", 2));
        let current = works.lock_current(&[(1, &first), (3, &second), (2, &third)]).unwrap();
        assert_eq!(current, HashSet::from([1, 2, 3]));
        let (first, second) = (written("memory", 3), written("document", 1));
        let unreleased = works.finish(&[&first, &second], &HashSet::from([3])).unwrap();
        assert_eq!(numbers(unreleased.into_iter()), [3]);
        works.finish(&[&second], &HashSet::new()).unwrap();
        let failed = job("memory", 3);
        works.of(&failed.kind).unwrap().fail(&failed, "", "").unwrap();
        assert_eq!(
            *calls.lock().unwrap(),
            [
                "memory takes 3",
                "document takes 1 2",
                "document locks 1 10 2 20",
                "memory locks 3 30",
                "document finishes 1",
                "memory finishes 3",
                "document finishes 1",
                "memory fails 3",
            ]
        );
        assert!(works.of("note").is_err() && works.of_mut("note").is_err());
    }

    #[test]
    fn the_worker_is_at_work_while_any_kind_of_work_is() {
        let made_up = |kind, jobs| -> Box<dyn Work> {
            Box::new(MadeUp { kind, jobs, calls: Arc::new(Mutex::new(Vec::new())) })
        };
        for with_jobs in ["document", "memory"] {
            let of = |kind| if kind == with_jobs { vec![job(kind, 7)] } else { Vec::new() };
            let works = ["document", "memory"].map(|kind| made_up(kind, of(kind)));
            let mut works = Works::new(works.into_iter().collect());
            assert!(!works.is_idle() && works.is_preparing() && works.is_prepared());
            assert!(works.is_wanted().unwrap());
            assert_eq!(works.coming(), HashSet::from([7]));
            works.clear();
            assert!(works.is_idle() && !works.is_preparing() && !works.is_prepared());
            assert!(!works.is_wanted().unwrap());
            assert_eq!((works.jobs().count(), works.coming().len()), (0, 0));
        }
    }
}
