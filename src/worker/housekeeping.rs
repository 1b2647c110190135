//! What is done beside documents: ending runs, switching and sweeping builds, asking for indexes, booking what queries
//! spent.

use super::runner::{FAULT_PAUSE, Runner};
use crate::catalog::builds as build_cases;
use crate::error::Result;
use crate::gateway::client;
use crate::gateway::protocol::QueryUsage;
use crate::pg::{setting, txn, wait, wake};
use crate::settings;
use crate::store::{builds, embedders, jobs, runs, usage, vectors};
use std::time::{Duration, Instant};

/// How often that is while documents are under way.
const HOUSEKEEP_EVERY: Duration = Duration::from_secs(2);
/// How often usage by queries is asked for.
const BOOK_EVERY: Duration = Duration::from_secs(2);

impl Runner {
    /// Queries cannot write: what they spent is fetched from the gateway now and then.
    fn book_query_usage(&mut self) -> Result<()> {
        if self.booked.is_some_and(|at| at.elapsed() < BOOK_EVERY) || !wake::gateway_runs() {
            return Ok(());
        }
        self.booked = Some(Instant::now());
        let used = client::take_usage(settings::gateway_timeout())?;
        txn::in_txn(|| {
            for QueryUsage { embedder, kb_no, tenant, usage } in &used {
                let price = embedders::find(embedder)?.and_then(|e| e.config.remote.price_micros);
                usage::add(embedder, *kb_no, tenant, usage, price)?;
            }
            Ok(())
        })
    }

    /// A knowledge base whose documents are all done does not wait for those of others.
    pub(super) fn housekeep_now_and_then(&mut self) {
        if self.housekept.elapsed() > HOUSEKEEP_EVERY {
            self.housekeep();
        }
    }

    /// Mends what a restart or a restore did to vector tables: once, or until no lock is in the way.
    pub(super) fn look_after_tables(&mut self) {
        if self.is_mended {
            return;
        }
        let mut results = vec![txn::in_txn(build_cases::attach_tables)];
        match txn::in_txn(builds::unlogged) {
            Ok(unlogged) => results.extend(
                unlogged.iter().map(|build| txn::in_txn(|| build_cases::enqueue_without_vectors(build))),
            ),
            Err(error) => results.push(Err(error)),
        }
        self.is_mended = true;
        for error in results.into_iter().filter_map(Result::err) {
            self.is_mended &= !error.is_lock();
            self.say("worker cannot look after vector tables", &error);
        }
    }

    /// Ends runs, switches builds, sweeps old ones, has indexes built; true when nothing remains to be waited for.
    pub(super) fn housekeep(&mut self) -> bool {
        self.housekept = Instant::now();
        self.look_after_tables();
        let result = txn::in_txn(|| {
            runs::finish_idle()?;
            builds::finished_next()
        })
        .and_then(|finished| {
            for build in finished {
                // Somebody may be putting a document of it: not now, then.
                if let Err(error) = txn::in_txn(|| build_cases::switch(&build)) {
                    self.say(&format!("build {} cannot be switched to now", build.build_no), &error);
                }
            }
            for build in txn::in_txn(builds::old)? {
                // A query may be reading it: not now, then.
                let swept = txn::in_txn(|| {
                    setting::with(&[(c"lock_timeout", c"500ms")], || build_cases::sweep(&build))
                });
                if let Err(error) = swept {
                    self.say(&format!("old build {} stays for now", build.build_no), &error);
                }
            }
            self.book_query_usage()?;
            if self.index_due {
                let states = txn::in_txn(vectors::without_index)?;
                let wanted = states.iter().any(|state| state.is_wanted);
                let started = wanted && wake::start_indexer();
                self.index_due = states.iter().any(|state| state.is_filling) || wanted && !started;
            }
            txn::in_txn(|| Ok(!jobs::any()? && !runs::any_housekeeping()?))
        });
        match result {
            Ok(nothing_left) => nothing_left,
            Err(error) => {
                self.say("worker housekeeping", &error);
                if !error.is_lock() {
                    wait::latch(FAULT_PAUSE.0);
                }
                false
            }
        }
    }
}
