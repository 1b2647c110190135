//! The states of rows, and their names in the tables.

use crate::error::{Error, Result};
use crate::named;

/// The state of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    /// Queries read this build.
    Live,
    /// A replacing run fills this build.
    Next,
    /// The build was replaced or abandoned, and is to be removed.
    Old,
}

named!(BuildState { Live => "live", Next => "next", Old => "old" });

/// The state of a run of kb.ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Running,
    Done,
    Failed,
}

named!(RunState { Running => "running", Done => "done", Failed => "failed" });

/// What a run of kb.ingest does with documents that exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStrategy {
    /// Processes again, one by one, the documents that are not ready or were made under other settings.
    Upsert,
    /// Processes all documents into a new build, and then switches to it.
    Replace,
}

named!(RunStrategy { Upsert => "upsert", Replace => "replace" });

/// The priority of a job. Lower numbers are claimed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// A user has just edited the document.
    #[default]
    Live,
    /// A run processes the document again.
    Backfill,
}

impl Priority {
    pub fn number(self) -> i32 {
        match self {
            Priority::Live => 0,
            Priority::Backfill => 10,
        }
    }

    /// Reads a stored number.
    pub fn stored(number: i32) -> Result<Self> {
        let all = [Priority::Live, Priority::Backfill];
        let found = all.into_iter().find(|priority| priority.number() == number);
        found.ok_or_else(|| Error::Internal(format!("priority {number} of a job")))
    }
}

/// The effect of putting a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutStatus {
    Added,
    Updated,
    /// Content and type are unchanged (metadata, title and uri were updated).
    Skipped,
}

named!(PutStatus { Added => "added", Updated => "updated", Skipped => "skipped" });
