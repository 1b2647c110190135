//! What kb.sources and kb.health() say of sources that cannot be read, until they can be again.

use crate::pg::txn;
use crate::tables::sources::catalog;
use kb_types::error::{Error, Result};
use std::collections::{HashMap, HashSet};

/// By source_no.
#[derive(Default)]
pub struct SourceFaults {
    told: HashMap<i64, String>,
    /// Sources of which rows were read: what an earlier worker recorded for these is over, too.
    read: HashSet<i64>,
}

impl SourceFaults {
    pub fn tell(&mut self, source_no: i64, error: &Error) -> Result<()> {
        let text = told(error);
        txn::in_txn(|| catalog::set_error(source_no, Some(&text)))?;
        self.told.insert(source_no, text);
        Ok(())
    }

    /// Rows of a source were read, so every error of reading it that was recorded is over.
    pub fn end_all(&mut self, source_no: i64) -> Result<()> {
        if !self.read.insert(source_no) {
            return self.end(source_no);
        }
        self.told.remove(&source_no);
        txn::in_txn(|| catalog::end_reading_error(source_no))
    }

    /// The error that was recorded for a source is over.
    pub fn end(&mut self, source_no: i64) -> Result<()> {
        match self.told.remove(&source_no) {
            Some(told) => txn::in_txn(|| catalog::end_error(source_no, &told)),
            None => Ok(()),
        }
    }
}

/// The part of an error that all tenants of a knowledge base may see, which has no value of a row. A message
/// of PostgreSQL can have one, unless it is about a missing name or right.
pub fn told(error: &Error) -> String {
    match (error, error.hint()) {
        (Error::Database { sqlstate, .. }, _) if !error.is_of_names() => {
            format!("its rows cannot be read: SQLSTATE {sqlstate}; the server log has the message")
        }
        (_, Some(hint)) => format!("{error} ({hint})"),
        (_, None) => error.to_string(),
    }
}
