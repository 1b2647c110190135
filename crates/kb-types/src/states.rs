//! The states of rows, and their names in the tables.

use crate::error::{Error, Result};

/// Of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    /// Queries read it.
    Live,
    /// A replacing run fills it.
    Next,
    /// Replaced or given up, to be swept.
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

    /// From a stored name.
    pub fn stored(name: &str) -> Result<Self> {
        let all = [BuildState::Live, BuildState::Next, BuildState::Old];
        all.into_iter().find(|state| state.name() == name).ok_or_else(|| unknown("build", name))
    }
}

/// Of a run of kb.ingest.
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

    /// From a stored name.
    pub fn stored(name: &str) -> Result<Self> {
        let all = [RunState::Running, RunState::Done, RunState::Failed];
        all.into_iter().find(|state| state.name() == name).ok_or_else(|| unknown("run", name))
    }
}

/// What a run of kb.ingest does with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStrategy {
    /// Documents that are not ready or were made under other settings, one by one.
    Upsert,
    /// All, beside what is there, and then the switch.
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

/// How urgent a job is; the lower number is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// An edit that somebody just made.
    #[default]
    Live,
    /// What a run takes up again.
    Backfill,
}

impl Priority {
    pub fn number(self) -> i32 {
        match self {
            Priority::Live => 0,
            Priority::Backfill => 10,
        }
    }

    /// From a stored number.
    pub fn stored(number: i32) -> Result<Self> {
        let all = [Priority::Live, Priority::Backfill];
        let found = all.into_iter().find(|priority| priority.number() == number);
        found.ok_or_else(|| Error::Internal(format!("priority {number} of a job")))
    }
}

/// What putting a document did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutStatus {
    Added,
    Updated,
    /// Content and type are as before (metadata, title and uri were taken over).
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
