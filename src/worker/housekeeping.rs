//! What is done beside documents: ending runs, switching and sweeping builds, asking for indexes, booking what queries
//! spent.

use super::indexes::Indexes;
use super::log::Log;
use crate::catalog::build_lifecycle;
use crate::error::Result;
use crate::gateway::client;
use crate::gateway::protocol::UsageRow;
use crate::pg::{txn, wait, wake};
use crate::settings;
use crate::store::{builds, embedders, jobs, runs, usage, vector_store};
use std::time::{Duration, Instant};

/// How often that is done while documents are under way.
const EVERY: Duration = Duration::from_secs(2);
/// How often usage by queries is asked for.
const BOOK_EVERY: Duration = Duration::from_secs(2);

pub struct Housekeeping {
    done_at: Instant,
    booked: Option<Instant>,
    /// What queries spent and is not written yet: the gateway says it once only.
    unbooked: Vec<UsageRow>,
    /// Vector tables were looked after since this worker started.
    are_tables_checked: bool,
}

impl Housekeeping {
    pub fn new() -> Housekeeping {
        Housekeeping {
            done_at: Instant::now(),
            booked: None,
            unbooked: Vec::new(),
            are_tables_checked: false,
        }
    }

    /// A knowledge base whose documents are all done does not wait for those of others.
    pub fn run_now_and_then(&mut self, indexes: &mut Indexes, log: &mut Log) {
        if self.done_at.elapsed() > EVERY {
            self.run(indexes, log);
        }
    }

    /// Repairs what a restart or a restore did to vector tables: once, or until no lock is in the way.
    pub fn check_tables(&mut self, log: &mut Log) {
        if self.are_tables_checked {
            return;
        }
        let mut results = vec![txn::in_txn(vector_store::attach_restored)];
        match txn::in_txn(builds::unlogged) {
            Ok(unlogged) => results.extend(
                unlogged.iter().map(|build| txn::in_txn(|| build_lifecycle::enqueue_without_vectors(build))),
            ),
            Err(error) => results.push(Err(error)),
        }
        self.are_tables_checked = true;
        for error in results.into_iter().filter_map(Result::err) {
            self.are_tables_checked &= !error.is_lock();
            log.write("worker cannot look after vector tables", &error);
        }
    }

    /// Does all of it; true when nothing is left to wait for.
    pub fn run(&mut self, indexes: &mut Indexes, log: &mut Log) -> bool {
        self.done_at = Instant::now();
        self.check_tables(log);
        let result = txn::in_txn(|| {
            runs::finish_idle()?;
            builds::finished_next()
        })
        .and_then(|finished| {
            for build in finished {
                // Somebody may be putting a document of it: then it is switched later.
                if let Err(error) = txn::in_txn(|| build_lifecycle::switch(&build)) {
                    log.write(&format!("build {} cannot be switched to now", build.build_no), &error);
                }
            }
            sweep_old_builds(log)?;
            self.book_query_usage()?;
            indexes.have_built()?;
            txn::in_txn(|| Ok(!jobs::any()? && !runs::any_housekeeping()?))
        });
        match result {
            Ok(nothing_left) => nothing_left,
            Err(error) => {
                log.write("worker housekeeping", &error);
                if !error.is_lock() {
                    wait::latch(wait::LONGEST);
                }
                false
            }
        }
    }

    /// Queries cannot write: what they spent is fetched from the gateway now and then.
    fn book_query_usage(&mut self) -> Result<()> {
        if self.unbooked.is_empty() {
            if self.booked.is_some_and(|at| at.elapsed() < BOOK_EVERY) || !wake::gateway_runs() {
                return Ok(());
            }
            self.booked = Some(Instant::now());
            self.unbooked = client::take_usage(settings::gateway_timeout())?;
        }
        txn::in_txn(|| {
            for UsageRow { endpoint, kb_no, tenant, usage, .. } in &self.unbooked {
                let price = embedders::find(endpoint)?.and_then(|e| e.config.remote.price_micros);
                usage::add(endpoint, *kb_no, tenant, usage, price)?;
            }
            Ok(())
        })?;
        self.unbooked.clear();
        Ok(())
    }
}

fn sweep_old_builds(log: &mut Log) -> Result<()> {
    for build in txn::in_txn(builds::old)? {
        // A query may be reading it: then it is swept later.
        if let Err(error) = txn::in_txn(|| build_lifecycle::sweep(&build)) {
            log.write(&format!("old build {} stays for now", build.build_no), &error);
        }
    }
    Ok(())
}
