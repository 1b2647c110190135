//! Runs the query of a source, on the main thread, as the role that created the source.
//!
//! **Invariant:** the text of the query is run by a cursor that only reads, as that role, in a
//! security-restricted operation, in a read-only transaction and under a time limit, and nothing else is run
//! as that role. What is reported of its errors has no value of a row.

use super::super::query::{QueryConfig, QueryRow, RowSpool, Rows};
use super::super::query_columns::QueryColumns;
use super::super::sql::catalog::Source;
use super::super::sql::{catalog, items};
use crate::pg::cursor::Cursor;
use crate::pg::role::{as_role_of_name, find};
use crate::pg::row::Row;
use crate::pg::{report, setting, time_limit, txn};
use crate::settings;
use crate::tables::intake::rests::{Account, End, Rests};
use crate::tables::sources::reading_rests;
use foldhash::HashMap;
use kb_types::error::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a query may run, with what it takes to keep its rows.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The most rows that a query may return: their external_ids are in the worker's memory.
const MOST_ROWS: usize = 1_000_000;
/// The most bytes of new and changed rows of one run. The next run reads the others.
const MOST_BYTES: u64 = 4 << 30;
/// Rows that are fetched at once, as long as they have few bytes together.
const FETCHED: (usize, usize) = (8, 512);
const FETCHED_BYTES: usize = 1 << 20;
/// Documents whose versions are read at once.
const VERSIONS: usize = 10_000;
/// Where PostgreSQL has its temporary files, in the data directory, in which its processes run.
const DIRECTORY: &str = "base/pgsql_tmp";

pub fn account(source: &Source) -> Account {
    Account { role_name: source.role_name.clone(), tenant_id: source.tenant_id.clone() }
}

/// Accounts that an earlier worker has noted rest for as long as they still had to.
pub fn resume(rests: &mut Rests) -> Result<()> {
    for (role_name, tenant_id, left) in txn::in_txn(reading_rests::all)? {
        rests.resume(Account { role_name, tenant_id }, left, Instant::now());
    }
    Ok(())
}

/// Runs the query. If it fails or takes too long, what it returned before is kept. An error (55P03) if
/// somebody has locked what it reads. `is_full`: all rows are read, however old.
pub fn run_query(source: &Source, config: &QueryConfig, is_full: bool, rests: &mut Rests) -> Result<Rows> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let io = |error: std::io::Error| Error::Database {
        sqlstate: "58030".into(),
        message: error.to_string(),
        has_values: false,
    };
    let mut spool =
        RowSpool::begin(Path::new(DIRECTORY), FILES.fetch_add(1, Ordering::Relaxed)).map_err(io)?;
    let mut spent = Duration::ZERO;
    let collected = txn::in_txn(|| collect(source, config, is_full, &mut spool, &mut spent));
    let is_over_time = matches!(&collected, Err(Error::Database { sqlstate, .. }) if sqlstate == "57014");
    let end = match &collected {
        Err(error) if error.is_lock() => End::Fault,
        Err(_) if is_over_time => End::OverTime,
        _ => End::Read,
    };
    let account = account(source);
    if let Some(rest) = rests.note(source.source_no, &account, spent, Instant::now(), end) {
        txn::in_txn(|| reading_rests::put(&account.role_name, &account.tenant_id, rest))?;
    }
    let problem = match collected {
        Ok(problem) => problem,
        Err(_) if is_over_time => Some(format!("the query took longer than {} s", TIME_LIMIT.as_secs())),
        Err(error) if error.is_lock() || !error.is_of_the_work() => return Err(error),
        Err(error) => {
            report::log(&format!("the query of source \"{}\" fails: {error}", source.name));
            Some(told(&error))
        }
    };
    spool.end(problem).map_err(io)
}

/// The part of an error that all readers of the knowledge base may see.
fn told(error: &Error) -> String {
    match (error, error.hint()) {
        _ if error.is_of_names() => format!("the query fails: {error}"),
        (Error::Database { sqlstate, .. }, _) => {
            format!("the query fails: SQLSTATE {sqlstate}; the server log has the message")
        }
        (_, Some(hint)) => format!("{error} ({hint})"),
        (_, None) => error.to_string(),
    }
}

/// Collects the rows of the query. Returns why not all of them were, if so.
fn collect(
    source: &Source,
    config: &QueryConfig,
    is_full: bool,
    spool: &mut RowSpool,
    spent: &mut Duration,
) -> Result<Option<String>> {
    // The source stays as it is meanwhile. If it was altered, the run finds that in its first transaction.
    if catalog::hold(source.source_no)?.as_ref() != Some(source) {
        return Ok(Some("it was altered".into()));
    }
    check_role(source)?;
    let known = if is_full { HashMap::default() } else { versions(source)? };
    time_limit::within(TIME_LIMIT, spent, || {
        let mut cursor = as_creator(source, || Cursor::open(&config.query, &[]))?;
        let columns = QueryColumns::of(&cursor.columns()).map_err(|problems| Error::State {
            problem: problems.join("; "),
            hint: "Change the source (kb.alter_source).".into(),
        })?;
        (spool.has_title, spool.has_uri) = (columns.title.is_some(), columns.uri.is_some());
        let (mut wanted, mut without_id) = (FETCHED.0, 0i64);
        let most = settings::max_document_size();
        loop {
            let mut bytes = 0;
            let fetched = as_creator(source, || {
                cursor.next(wanted, |row| {
                    bytes += row.size();
                    without_id += i64::from(!take(row, &columns, &known, most, spool)?);
                    Ok(())
                })
            })?;
            report::check_interrupts();
            if spool.count() > MOST_ROWS {
                return Ok(Some(format!("the query returns more than {MOST_ROWS} rows")));
            }
            if spool.bytes() > MOST_BYTES {
                return Ok(Some("the query returns too much at once: the next run goes on".into()));
            }
            if fetched.len() < wanted {
                break;
            }
            wanted = match bytes < FETCHED_BYTES {
                true => (wanted * 2).min(FETCHED.1),
                false => (wanted / 2).max(FETCHED.0),
            };
        }
        Ok((without_id > 0).then(|| format!("the query returns {without_id} rows without external_id")))
    })
}

/// A role that was dropped, and made again under the same name, is another.
fn check_role(source: &Source) -> Result<()> {
    let is_it = find(&source.role_name).map(|role| source.role_oids.contains(&i64::from(role.to_u32())));
    if is_it == Some(true) {
        return Ok(());
    }
    Err(Error::State {
        problem: format!("the role that has created it, \"{}\", does not exist any more", source.role_name),
        hint: "Call kb.alter_source as the role that is to run the query; after a restore into another cluster, too."
            .into(),
    })
}

/// Runs `work` as the role that created the source, in a transaction that is read-only as long.
fn as_creator<T>(source: &Source, work: impl FnOnce() -> Result<T>) -> Result<T> {
    as_role_of_name(&source.role_name, || setting::with(&[(c"transaction_read_only", c"on")], work))
}

/// Hashes of the external_ids of a source's documents within the source, and of their versions.
fn versions(source: &Source) -> Result<HashMap<u64, u64>> {
    let mut versions = HashMap::default();
    let mut after = 0;
    loop {
        let some = items::versions(source.source_no, after, VERSIONS)?;
        for stored in &some {
            after = stored.document_id;
            let path = stored.external_id.get(source.name.len() + 1..).unwrap_or_default();
            if let Some(version) = stored.version.as_deref().filter(|version| !version.is_empty()) {
                versions.insert(hash(&[path]), hash(&[version]));
            }
        }
        if some.len() < VERSIONS {
            return Ok(versions);
        }
    }
}

fn hash(parts: &[&str]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Takes a row. The content of one whose updated_at is known is not even read. Returns whether it has an
/// external_id; a row without content is no document.
fn take(
    row: &Row,
    columns: &QueryColumns,
    known: &HashMap<u64, u64>,
    most: usize,
    spool: &mut RowSpool,
) -> Result<bool> {
    let io = |error: std::io::Error| Error::Database {
        sqlstate: "58030".into(),
        message: error.to_string(),
        has_values: false,
    };
    let Some(external_id) = row.text(columns.external_id)?.filter(|id| !id.is_empty()) else {
        return Ok(false);
    };
    let Some(size) = row.raw_size(columns.content) else { return Ok(true) };
    let updated_at = columns.updated_at.map_or(Ok(None), |column| row.timestamp(column))?;
    let is_known = |version: &str| known.get(&hash(&[&external_id])) == Some(&hash(&[version]));
    let mut version = updated_at.map(|at| format!("updated_at {at}"));
    if let Some(version) = version.take_if(|version| is_known(version)) {
        spool.add(external_id, version, None).map_err(io)?;
        return Ok(true);
    }
    if size > most {
        spool.add_large(external_id, String::new(), size);
        return Ok(true);
    }
    let optional = |column: Option<usize>| column.map_or(Ok(None), |column| row.text(column));
    let read = QueryRow {
        content: row.text(columns.content)?.unwrap_or_default(),
        title: optional(columns.title)?,
        uri: optional(columns.uri)?,
        metadata: columns.metadata.map_or(Ok(None), |column| row.get(column))?,
    };
    let version = version.unwrap_or_else(|| {
        let metadata = read.metadata.as_ref().map_or("", |metadata| metadata.as_str());
        let given = |text: &Option<String>| text.as_ref().map_or(String::new(), |text| format!("={text}"));
        format!("{:016x}", hash(&[&read.content, &given(&read.title), &given(&read.uri), metadata]))
    });
    let row = (!is_known(&version)).then_some(&read);
    spool.add(external_id, version, row).map_err(io)?;
    Ok(true)
}
