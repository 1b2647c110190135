//! Ends runs, switches to builds that are finished, sweeps old ones, and looks after vector tables when a
//! worker starts.

use super::build_lifecycle;
use crate::builds::{builds, runs};
use crate::pg::txn;
use crate::tables::partitions;
use crate::upkeep::{Log, Upkeep};
use crate::vectors;
use kb_types::error::Result;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

/// How long an old build is swept at a time, about.
const SWEPT_FOR: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct BuildUpkeep {
    /// Vector tables were looked after since this worker started.
    are_tables_checked: bool,
    /// Up to which chunk old builds are swept.
    swept: HashMap<i64, Uuid>,
}

impl Upkeep for BuildUpkeep {
    /// Repairs what a restart or a restore did to vector tables: once, or until no lock is in the way.
    fn begin(&mut self, log: &mut Log) {
        if self.are_tables_checked {
            return;
        }
        let mut results = vec![txn::in_txn(|| match vectors::attach_restored()? {
            true => partitions::forget(),
            false => Ok(()),
        })];
        match txn::in_txn(builds::unlogged) {
            Ok(unlogged) => results.extend(
                unlogged.iter().map(|build| txn::in_txn(|| build_lifecycle::enqueue_without_vectors(build))),
            ),
            Err(error) => results.push(Err(error)),
        }
        self.are_tables_checked = true;
        for error in results.into_iter().filter_map(Result::err) {
            self.are_tables_checked &= !error.is_lock();
            log.write("worker cannot maintain vector tables", &error);
        }
    }

    fn run(&mut self, log: &mut Log) -> Result<()> {
        self.begin(log);
        let finished = txn::in_txn(|| {
            runs::finish_idle()?;
            builds::finished_next()
        })?;
        for build in finished {
            // Somebody may be putting a document of it: then it is switched later.
            if let Err(error) = txn::in_txn(|| build_lifecycle::switch(&build)) {
                log.write(&format!("worker cannot switch to build {} now", build.build_no), &error);
            }
        }
        self.sweep_old_builds(log)
    }

    fn is_done(&self) -> Result<bool> {
        Ok(!runs::any_housekeeping()?)
    }
}

impl BuildUpkeep {
    fn sweep_old_builds(&mut self, log: &mut Log) -> Result<()> {
        let builds = txn::in_txn(builds::old)?;
        self.swept.retain(|build_no, _| builds.iter().any(|build| build.build_no == *build_no));
        for build in builds {
            let from = self.swept.get(&build.build_no).copied().unwrap_or_default();
            match build_lifecycle::sweep_some(&build, from, SWEPT_FOR) {
                Ok(last) => self.swept.extend(last.map(|last| (build.build_no, last))),
                // A query may be reading it: then it is swept later.
                Err(error) => log.write(&format!("old build {} stays for now", build.build_no), &error),
            }
        }
        Ok(())
    }
}
