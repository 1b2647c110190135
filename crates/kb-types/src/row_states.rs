//! The states of rows, and their names in the tables.

use crate::error::{Error, Result};

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

impl BuildState {
    pub fn name(self) -> &'static str {
        match self {
            BuildState::Live => "live",
            BuildState::Next => "next",
            BuildState::Old => "old",
        }
    }

    /// Reads a stored name.
    pub fn stored(name: &str) -> Result<Self> {
        let all = [BuildState::Live, BuildState::Next, BuildState::Old];
        all.into_iter().find(|state| state.name() == name).ok_or_else(|| unknown("build", name))
    }
}

/// The state of a run of kb.ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Running,
    Done,
    Failed,
}

impl RunState {
    pub fn name(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Done => "done",
            RunState::Failed => "failed",
        }
    }

    /// Reads a stored name.
    pub fn stored(name: &str) -> Result<Self> {
        let all = [RunState::Running, RunState::Done, RunState::Failed];
        all.into_iter().find(|state| state.name() == name).ok_or_else(|| unknown("run", name))
    }
}

/// What a run of kb.ingest does with documents that exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStrategy {
    /// Processes again, one by one, the documents that are not ready or were made under other settings.
    Upsert,
    /// Processes all documents into a new build, and then switches to it.
    Replace,
}

impl RunStrategy {
    pub fn name(self) -> &'static str {
        match self {
            RunStrategy::Upsert => "upsert",
            RunStrategy::Replace => "replace",
        }
    }

    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "upsert" => Ok(RunStrategy::Upsert),
            "replace" => Ok(RunStrategy::Replace),
            other => Err(Error::Argument {
                argument: "strategy",
                problem: format!("\"{other}\" is not one of upsert, replace"),
            }),
        }
    }
}

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

impl PutStatus {
    pub fn name(self) -> &'static str {
        match self {
            PutStatus::Added => "added",
            PutStatus::Updated => "updated",
            PutStatus::Skipped => "skipped",
        }
    }
}

fn unknown(of: &str, name: &str) -> Error {
    Error::Internal(format!("state \"{name}\" of a {of}"))
}
