//! Reads rows of attached tables before their documents are processed: each becomes a document, or is no
//! document any more.

use super::apply_changes::{account, note};
use super::rests::{Account, End, Rests};
use super::source_faults::SourceFaults;
use crate::documents::new_documents;
use crate::documents::new_documents::NewDocument;
use crate::documents::stored;
use crate::jobs::queue;
use crate::jobs::queue::Job;
use crate::pg::{time_limit, txn};
use crate::settings;
use crate::tables::changes;
use crate::tables::changes::What;
use crate::tables::row_document;
use crate::tables::row_documents;
use crate::tables::row_documents::FoundRow;
use crate::tables::source_tables::{located, refusal};
use crate::tables::sources::rows;
use crate::tables::sources::rows::SourceRow;
use crate::tables::sources::table;
use crate::tables::sources::{Source, catalog};
use crate::tenants::quota::Charge;
use crate::vectors;
use crate::work::{BUSY, Event, Targets};
use kb_types::error::{Error, Result};
use kb_types::row_key;
use kb_types::row_states::{Priority, PutStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a statement may run that reads users' rows: conditions and columns may call what users wrote.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Rows that are read at once: each may have as many bytes as a document.
pub const AT_ONCE: usize = 8;

/// What became of a row's job.
enum RowRead {
    /// The document is as the row is, and is to be processed.
    Current(Job),
    /// There is nothing more to do.
    Done,
    /// Somebody has locked the document.
    Locked(Job),
    /// Its table is left alone for a while.
    Later(Job),
    Failed(Job, Error),
}

/// Makes the documents of these jobs as their rows are now. Returns the jobs that are to be processed, in
/// their order; the others have ended, or wait while their tables rest. An error that all rows of a table
/// meet is recorded at the table.
pub fn refresh(
    jobs: Vec<Job>,
    rests: &mut Rests,
    faults: &mut SourceFaults,
    events: &mut Vec<Event>,
) -> Result<Vec<Job>> {
    if jobs.iter().all(|job| job.source_no.is_none()) {
        return Ok(jobs);
    }
    let order: BTreeMap<i64, usize> =
        jobs.iter().enumerate().map(|(place, job)| (job.job_no, place)).collect();
    let mut by_source: BTreeMap<Option<i64>, Vec<Job>> = BTreeMap::new();
    for job in jobs {
        by_source.entry(job.source_no).or_default().push(job);
    }
    let mut current = by_source.remove(&None).unwrap_or_default();
    for (source_no, jobs) in by_source {
        let (source_no, mut later, mut failed) = (source_no.unwrap_or(0), Vec::new(), Vec::new());
        let (mut is_read, account) = (false, account(source_no)?);
        for jobs in jobs.chunks(AT_ONCE) {
            for read in read_rows(source_no, &account, jobs, rests)? {
                is_read |= matches!(read, RowRead::Current(_) | RowRead::Done);
                match read {
                    RowRead::Current(job) => current.push(job),
                    RowRead::Done => {}
                    RowRead::Locked(job) => events.push(Event::GivenBack { jobs: vec![job], delay: BUSY }),
                    RowRead::Later(job) => later.push(job),
                    RowRead::Failed(job, error) => failed.push((job, error)),
                }
            }
        }
        // This is recorded before the jobs end, so that whoever waits for these finds what is wrong.
        let fault = failed.iter().rev().map(|(_, error)| error).find(|error| is_of_table(error));
        let told = match fault {
            _ if is_read => faults.end_all(source_no),
            Some(fault) => faults.tell(source_no, fault),
            None => Ok(()),
        };
        match told {
            Err(error) if error.is_lock() => later.extend(failed.drain(..).map(|(job, _)| job)),
            told => told?,
        }
        for (job, error) in failed {
            events.push(fail(job, error)?);
        }
        let rest = rests.left(source_no, &account, Instant::now());
        events.push(Event::GivenBack { jobs: later, delay: rest.unwrap_or(BUSY) });
    }
    current.sort_by_key(|job| order.get(&job.job_no).copied());
    Ok(current)
}

/// Whether reading fails for the table as a whole: a column, a key or a right is missing.
fn is_of_table(error: &Error) -> bool {
    match error {
        Error::Database { .. } => error.is_of_names(),
        Error::State { .. } | Error::NotFound { .. } => true,
        _ => false,
    }
}

/// Rows that cannot be read together are read one by one, so that one costs no other; none of a table that
/// rests.
fn read_rows(source_no: i64, account: &Account, jobs: &[Job], rests: &mut Rests) -> Result<Vec<RowRead>> {
    if rests.left(source_no, account, Instant::now()).is_some() {
        return Ok(jobs.iter().cloned().map(RowRead::Later).collect());
    }
    if jobs.len() > 1 && !rests.is_one_by_one(source_no) {
        match read_timed(source_no, account, jobs, rests)? {
            Ok(read) => return Ok(read),
            Err(error) if error.is_lock() || is_over_time(&error) => {
                return Ok(jobs.iter().cloned().map(RowRead::Later).collect());
            }
            Err(_) => {}
        }
    }
    let one = |job: &Job| {
        if rests.left(source_no, account, Instant::now()).is_some() {
            return Ok(RowRead::Later(job.clone()));
        }
        Ok(match read_timed(source_no, account, std::slice::from_ref(job), rests)? {
            Ok(mut read) => read.pop().unwrap_or(RowRead::Done),
            Err(error) if error.is_lock() => RowRead::Later(job.clone()),
            Err(error) => RowRead::Failed(job.clone(), of_row(job, error)),
        })
    };
    let read: Vec<RowRead> = jobs.iter().map(one).collect::<Result<_>>()?;
    if rests.left(source_no, account, Instant::now()).is_none() {
        rests.end_one_by_one(source_no);
    }
    Ok(read)
}

/// Reads rows, and notes how long that took.
fn read_timed(
    source_no: i64,
    account: &Account,
    jobs: &[Job],
    rests: &mut Rests,
) -> Result<Result<Vec<RowRead>>> {
    let mut spent = Duration::ZERO;
    let result = txn::in_txn(|| read_some(source_no, jobs, &mut spent));
    let end = match &result {
        Err(error) if error.is_lock() => End::Fault,
        Err(error) if is_over_time(error) => End::OverTime,
        _ => End::Read,
    };
    note(rests, source_no, account, spent, end)?;
    Ok(result)
}

/// Whether a statement was cancelled because it reached its time limit (query_canceled).
pub fn is_over_time(error: &Error) -> bool {
    matches!(error, Error::Database { sqlstate, .. } if sqlstate == "57014")
}

/// The error of reading one row. A row that takes too long to read will take too long again.
fn of_row(job: &Job, error: Error) -> Error {
    if !is_over_time(&error) {
        return error;
    }
    Error::Document {
        external_id: job.external_id.clone(),
        problem: format!("reading its row took longer than {} s", TIME_LIMIT.as_secs()),
    }
}

fn read_some(source_no: i64, jobs: &[Job], spent: &mut Duration) -> Result<Vec<RowRead>> {
    // The source is locked, so that no document is stored for a table that is detached meanwhile.
    let Some(source) = catalog::hold(source_no)? else {
        // The table is detached, so a job that was enqueued meanwhile is that of a document that was put, or
        // of none. Or a restore has not reached kb.sources yet.
        if !vectors::is_being_restored()? {
            queue::forget_source(jobs, source_no)?;
        }
        return Ok(jobs.iter().cloned().map(RowRead::Later).collect());
    };
    let source = located(source)?;
    let keys: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| row_key::decode(&job.external_id, source.key.len()))
        .collect::<Option<_>>()
        .ok_or_else(|| Error::State {
            problem: format!("the primary key of {} has changed", source.relation_name),
            hint: format!(
                "Detach the table and attach it again: kb.detach_table('{}', {}).",
                source.kb_id, source.relation
            ),
        })?;
    let most = settings::max_document_size();
    let adopts = jobs.iter().any(may_adopt);
    let found = time_limit::within(TIME_LIMIT, spent, || rows::read(&source, &keys, most, adopts))?;
    let mut rows: BTreeMap<usize, SourceRow> = found.into_iter().map(|row| (row.place, row)).collect();
    let mut targets = Targets::default();
    // This comes after the rows were read: an edit that they show has been recorded by its commit, or is a
    // live job by now.
    let edited = edited(&source, jobs)?;
    let read = |(place, job): (usize, &Job)| {
        let begun = Instant::now();
        let row = rows.remove(&place).filter(|row| is_of(row, job));
        let job = &Job {
            adopted: adopted(&source, job, row.as_ref()).filter(|_| !edited.contains(&place)),
            ..job.clone()
        };
        let relation = row.as_ref().map(|row| row.relation).filter(|_| source.is_partitioned);
        let document = row.map(|row| row_document::of_row(&source, &job.external_id, row, most)).transpose();
        *spent += begun.elapsed();
        take(&source, job, document, relation, &mut targets)
    };
    jobs.iter().enumerate().map(read).collect()
}

/// The places of rows that were edited since their jobs were made, if vectors of rows are adopted at all.
fn edited(source: &Source, jobs: &[Job]) -> Result<Vec<usize>> {
    if source.config.adopt.is_none() {
        return Ok(Vec::new());
    }
    let source_nos = vec![source.source_no; jobs.len()];
    let tenants: Vec<String> = jobs.iter().map(|job| job.tenant_id.clone()).collect();
    let external_ids: Vec<String> = jobs.iter().map(|job| job.external_id.clone()).collect();
    // The rows may be younger than the snapshot that the transaction began with.
    txn::with_latest_snapshot(|| {
        let written = changes::of_documents(&source_nos, &tenants, &external_ids)?;
        let mut edited: Vec<usize> = written.into_iter().map(|(place, _)| place).collect();
        edited.extend(changes::enqueued(&source_nos, &tenants, &external_ids)?);
        Ok(edited)
    })
}

/// Whether a job is of a row that was there when its table was attached.
fn may_adopt(job: &Job) -> bool {
    job.priority == Priority::Backfill && job.run_no.is_none()
}

/// The vector that a row has had since before its table was attached. Of one that was edited since nobody
/// knows whether it is of the text.
fn adopted(source: &Source, job: &Job, row: Option<&SourceRow>) -> Option<(i64, Arc<[f32]>)> {
    let adopt = source.config.adopt.as_ref().filter(|_| may_adopt(job))?;
    let vector: Vec<f32> = serde_json::from_str(row?.values.as_ref()?.vector.as_ref()?).ok()?;
    Some((adopt.fingerprint, vector.into()))
}

/// Whether a row is of the job's tenant.
fn is_of(row: &SourceRow, job: &Job) -> bool {
    row.tenant.as_ref().is_none_or(|tenant| *tenant == job.tenant_id)
}

/// Charges the owner of the knowledge base with a row's document. An error where it is too much, or (55P03)
/// where somebody else adds documents now.
fn charge(source: &Source, tenant: &str, document: &NewDocument) -> Result<()> {
    let ids = std::slice::from_ref(&document.external_id);
    let Some(mut charge) = Charge::begin(&source.tenant_id, source.kb_no, false)? else { return Ok(()) };
    charge.look(tenant, ids)?;
    document.charge(&mut charge)?;
    charge.book()
}

/// Whether the row of another source that has a job's key is gone, though its document is there.
fn is_gone(source_no: i64, job: &Job) -> Result<bool> {
    let (tenants, ids) = ([job.tenant_id.clone()], [job.external_id.clone()]);
    let written = txn::with_latest_snapshot(|| changes::of_documents(&[source_no], &tenants, &ids))?;
    Ok(written.iter().any(|(_, what)| *what != What::Changed))
}

/// Stores the document of one row, which is in this partition, if there are such, or deletes it where there
/// is no such row, or none with text.
fn take(
    source: &Source,
    job: &Job,
    document: Result<Option<Option<NewDocument>>>,
    partition: Option<u32>,
    targets: &mut Targets,
) -> Result<RowRead> {
    let present = match row_documents::lock(source, &job.tenant_id, &job.external_id)? {
        FoundRow::Locked => return Ok(RowRead::Locked(job.clone())),
        FoundRow::Present(present) if !present.is_own => {
            let problem = match present.source_no {
                // It is about to be deleted.
                Some(other) if is_gone(other, job)? => return Ok(RowRead::Locked(job.clone())),
                Some(_) => catalog::OTHERS,
                None => catalog::TAKEN,
            };
            catalog::set_error(source.source_no, Some(problem))?;
            // There is one job for each name: it may be that of the other, too.
            let other = present.source_no.map_or(Ok(None), catalog::find)?;
            // The worker reads nothing again for a document that was put, by a caller or a run.
            match other.is_some() || present.is_pending {
                true => queue::give_to(job, other.map(|other| other.source_no))?,
                false => drop(queue::finish(std::slice::from_ref(job))?),
            }
            return Ok(RowRead::Done);
        }
        FoundRow::Present(present) => Some(present),
        FoundRow::None => None,
    };
    let document = match document {
        Ok(Some(Some(document))) => document,
        Ok(_) => {
            if let Some(present) = present {
                stored::delete(&[present.document_id])?;
            }
            queue::finish(std::slice::from_ref(job))?;
            return Ok(RowRead::Done);
        }
        Err(error) => return Ok(RowRead::Failed(job.clone(), error)),
    };
    // Roles can have been bound since the job was made.
    if let Some(problem) = refusal(source, &job.tenant_id) {
        catalog::set_error(source.source_no, Some(&format!("{}{problem}", catalog::REFUSED)))?;
        if present.is_none() {
            queue::finish(std::slice::from_ref(job))?;
            return Ok(RowRead::Done);
        }
        let external_id = job.external_id.clone();
        return Ok(RowRead::Failed(job.clone(), Error::Document { external_id, problem }));
    }
    if let Err(error) = charge(source, &job.tenant_id, &document) {
        return if error.is_lock() { Err(error) } else { Ok(RowRead::Failed(job.clone(), error)) };
    }
    let status = new_documents::put(&source.place(&job.tenant_id), &document)?;
    if let Some(partition) = partition {
        row_documents::set_partition(source, &job.tenant_id, &job.external_id, partition)?;
    }
    // Without a title of its own it has the one that its text says.
    let has_all = document.title.is_some() || !document.title_is_given;
    if status == Some(PutStatus::Skipped)
        && has_all
        && job.run_no.is_none()
        && let Some(present) = present.filter(|present| present.is_ready)
        && let [target] = &targets.of(job.kb_no)?[..]
        && present.settings.as_deref() == Some(target.build.settings().as_str())
    {
        queue::finish(std::slice::from_ref(job))?;
        return Ok(RowRead::Done);
    }
    Ok(RowRead::Current(job.clone()))
}

/// Returns the event of a row that failed. A row that has never been a document becomes one without text,
/// so that it is listed.
fn fail(job: Job, error: Error) -> Result<Event> {
    if !error.is_transient() {
        let listed = txn::in_txn(|| {
            let Some(source) = job.source_no.map_or(Ok(None), catalog::hold)? else { return Ok(()) };
            // Rows of a table that is gone are not listed: kb.sources shows that it is gone.
            if row_documents::lock(&source, &job.tenant_id, &job.external_id)? != FoundRow::None
                || table::locate(&source)?.is_none()
            {
                return Ok(());
            }
            let place = source.place(&job.tenant_id);
            new_documents::put(&place, &NewDocument::without_text(&job.external_id)).map(|_| ())
        });
        match listed {
            Err(error) if error.is_lock() => {
                return Ok(Event::GivenBack { jobs: vec![job], delay: BUSY });
            }
            listed => listed?,
        }
    }
    Ok(Event::failed(job, error))
}
