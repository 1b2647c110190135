//! How documents end: ready, or listed as failed.

use crate::builds::runs;
use crate::builds::runs::Counts;
use crate::documents::stored;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::work::{BUSY, Written};
use kb_types::error::Result;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Ends the jobs of documents that have all their vectors, unless they were edited meanwhile. Those that an
/// open transaction has locked, and the `blocked`, are released: they will be found done. Returned are the
/// jobs that could not be released.
pub fn finish(done: &[&Written], blocked: &HashSet<i64>) -> Result<Vec<Job>> {
    if done.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<(i64, i64)> =
        done.iter().map(|document| (document.document_id, document.job.generation)).collect();
    let locked = stored::lock_current(&keys)?;
    let is_free = |id: i64| !locked.busy.contains(&id) && !blocked.contains(&id);
    let (free, busy): (Vec<&Written>, Vec<&Written>) =
        done.iter().copied().partition(|document| is_free(document.document_id));
    let jobs_of = |documents: &[&Written]| -> Vec<Job> {
        documents.iter().map(|document| document.job.clone()).collect()
    };
    let unreleased = match busy.is_empty() {
        true => Vec::new(),
        false => queue::release(&jobs_of(&busy), BUSY, None, false)?,
    };
    let finished: HashSet<i64> = queue::finish(&jobs_of(&free))?.into_iter().collect();
    let mut by_settings: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut by_run: BTreeMap<i64, Counts> = BTreeMap::new();
    let mut runs_of: HashMap<i64, i64> = HashMap::new();
    for document in free {
        if !finished.contains(&document.job.job_no) {
            continue;
        }
        by_settings.entry(&document.settings).or_default().push(document.document_id);
        if let Some(run_no) = document.job.run_no {
            let counts = by_run.entry(run_no).or_default();
            if document.is_new {
                counts.added += 1
            } else {
                counts.updated += 1
            }
            runs_of.insert(document.document_id, run_no);
        }
    }
    for (settings, ids) in by_settings {
        for ready in stored::set_ready(&ids, settings)? {
            let counts = runs_of.get(&ready.document_id).and_then(|run_no| by_run.get_mut(run_no));
            counts.into_iter().for_each(|counts| counts.chunks += i64::from(ready.chunk_count));
        }
    }
    for (run_no, counts) in by_run {
        runs::count(run_no, counts)?;
    }
    Ok(unreleased)
}

/// Lists a document, whose job is deleted by now, as failed.
pub fn fail(job: &Job, text: &str, sqlstate: &str) -> Result<()> {
    stored::set_failed(job, text, sqlstate)?;
    match job.run_no {
        Some(run_no) => runs::count(run_no, Counts { failed: 1, ..Counts::default() }),
        None => Ok(()),
    }
}
