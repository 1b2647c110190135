//! Writes logged questions, fetched from the gateway, and deletes what is too old or too much.
//!
//! The gateway gives a question again until the worker says that it is written. The key of `kb.query_log`
//! makes a second writing harmless.

use crate::gateway::client;
use crate::pg::{txn, wake};
use crate::query::query_log;
use crate::settings;
use crate::upkeep::{Log, Upkeep};
use kb_types::error::Result;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often questions are asked for.
const FETCH_EVERY: Duration = Duration::from_secs(2);
/// How long the gateway's answer is waited for: what does not come now comes the next time.
const FETCH_WITHIN: Duration = Duration::from_secs(2);
/// Parts at most that are written at a time.
const PARTS: usize = 20;
/// How often what is too old or too much is deleted.
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// Questions of one knowledge base that are kept at most.
const MOST: i64 = 100_000;

#[derive(Default)]
pub struct QueryLog {
    fetched_at: Option<Instant>,
    trimmed_at: Option<Instant>,
    /// The number of the last question that was written, as the gateway counts; 0: none.
    written: u64,
    /// Knowledge bases whose questions were written since the log was last trimmed.
    grown: BTreeSet<i64>,
    /// Questions were logged since that was last asked.
    has_logged: bool,
}

impl Upkeep for QueryLog {
    fn run(&mut self, log: &mut Log) -> Result<()> {
        let is_time = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        self.has_logged |= is_time(self.fetched_at, FETCH_EVERY) && self.fetch(log);
        if is_time(self.trimmed_at, TRIM_EVERY) {
            self.trimmed_at = Some(Instant::now());
            if let Err(error) = self.trim() {
                log.write("worker cannot trim the query log", &error);
            }
        }
        Ok(())
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_logged)
    }

    /// Writes the questions that wait.
    fn end(&mut self, log: &mut Log) {
        self.fetch(log);
    }
}

impl QueryLog {
    /// Writes what waits at the gateway; true when questions were written. A fault costs questions of the
    /// log, and nothing else.
    fn fetch(&mut self, log: &mut Log) -> bool {
        self.fetched_at = Some(Instant::now());
        let mut has_written = false;
        for _ in 0..PARTS {
            match self.fetch_part() {
                Ok(true) => has_written = true,
                Ok(false) => break,
                Err(error) => {
                    log.write("worker cannot write the query log", &error);
                    break;
                }
            }
        }
        has_written
    }

    fn fetch_part(&mut self) -> Result<bool> {
        if !wake::gateway_runs() {
            return Ok(false);
        }
        let (number, questions) = client::take_questions(self.written, FETCH_WITHIN)?;
        if questions.is_empty() {
            return Ok(false);
        }
        let result = txn::in_txn(|| questions.iter().try_for_each(query_log::insert));
        if let Err(error) = result {
            // What cannot be written now may be later; what can never be written is not tried for ever.
            if !error.is_lock() {
                self.written = number;
            }
            return Err(error);
        }
        self.grown.extend(questions.iter().map(|question| question.kb_no));
        self.written = number;
        Ok(true)
    }

    fn trim(&mut self) -> Result<()> {
        txn::in_txn(|| query_log::delete_older(settings::query_log_days()))?;
        for kb_no in std::mem::take(&mut self.grown) {
            txn::in_txn(|| query_log::delete_beyond(kb_no, MOST))?;
        }
        Ok(())
    }
}
