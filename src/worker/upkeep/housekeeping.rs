//! What is done beside documents: ending runs, switching and sweeping builds, asking for indexes, booking what queries
//! spent.

use super::indexes::Indexes;
use super::keyword_index::KeywordIndex;
use super::query_log::QueryLog;
use super::unused_tables::UnusedTables;
use crate::builds::{builds, runs};
use crate::gateway::client;
use crate::jobs::queue;
use crate::knowledge_bases::build_lifecycle;
use crate::models::{embedders, services, usage};
use crate::pg::{latch, txn, wake};
use crate::tables::changes;
use crate::tables::partitions;
use crate::tenants::quotas;
use crate::vectors;
use crate::worker::log::Log;
use kb_gateway::protocol::{Capability, UsageRow};
use kb_types::error::{Object, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often that is done while documents are under way.
const EVERY: Duration = Duration::from_secs(2);
/// How often usage by queries is asked for.
const BOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the gateway's answer is waited for: what does not come now comes the next time.
const BOOK_WITHIN: Duration = Duration::from_secs(2);

/// How long an old build is swept at a time, about.
const SWEPT_FOR: Duration = Duration::from_millis(100);

pub struct Housekeeping {
    done_at: Instant,
    /// When usage by queries was asked for.
    asked_at: Option<Instant>,
    /// The last part of it that was written, as the gateway numbers them; 0: none.
    booked: u64,
    /// Vector tables were looked after since this worker started.
    are_tables_checked: bool,
    keyword_index: KeywordIndex,
    pub unused_tables: UnusedTables,
    query_log: QueryLog,
    /// Up to which chunk old builds are swept.
    swept: HashMap<i64, Uuid>,
    /// Questions were logged since that was last asked.
    has_logged: bool,
}

impl Housekeeping {
    pub fn new() -> Housekeeping {
        Housekeeping {
            done_at: Instant::now(),
            asked_at: None,
            booked: 0,
            are_tables_checked: false,
            keyword_index: KeywordIndex::default(),
            unused_tables: UnusedTables::default(),
            query_log: QueryLog::default(),
            swept: HashMap::new(),
            has_logged: false,
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
            log.write("worker cannot look after vector tables", &error);
        }
    }

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
            self.sweep_old_builds(log)?;
            let are_tables_left = self.unused_tables.drop(log)?;
            settle_quotas(log)?;
            indexes.move_large_builds(log);
            indexes.have_built(log)?;
            self.keyword_index.run(log)?;
            let are_keys_indexed = indexes.have_metadata_indexed()?;
            self.has_logged |= self.query_log.run(log);
            self.book_query_usage()?;
            let is_moving = indexes.is_moving();
            txn::in_txn(|| {
                Ok(!is_moving
                    && !are_tables_left
                    && are_keys_indexed
                    && !queue::any()?
                    && !changes::any_waiting()?
                    && !runs::any_housekeeping()?
                    && !quotas::any_unsettled()?)
            })
        });
        match result {
            Ok(nothing_left) => nothing_left,
            Err(error) => {
                log.write("worker housekeeping", &error);
                if !error.is_lock() {
                    latch::wait(latch::LONGEST);
                }
                false
            }
        }
    }

    /// Whether questions were logged since this was last asked: more may come.
    pub fn has_logged(&mut self) -> bool {
        std::mem::take(&mut self.has_logged)
    }

    /// Writes the questions that wait, before the worker leaves.
    pub fn write_query_log(&mut self, log: &mut Log) {
        self.query_log.fetch(log);
    }

    /// Queries cannot write: what they spent is fetched from the gateway now and then.
    fn book_query_usage(&mut self) -> Result<()> {
        if self.asked_at.is_some_and(|at| at.elapsed() < BOOK_EVERY) || !wake::gateway_runs() {
            return Ok(());
        }
        self.asked_at = Some(Instant::now());
        loop {
            // This also says that the part before is booked, at once: another worker would get it again.
            let part = client::take_usage(self.booked, BOOK_WITHIN)?;
            if part.rows.is_empty() {
                return Ok(());
            }
            txn::in_txn(|| {
                for UsageRow { capability, endpoint, kb_no, tenant, usage } in &part.rows {
                    let price = price(*capability, endpoint)?;
                    usage::add(*capability, endpoint, *kb_no, tenant, usage, price)?;
                }
                Ok(())
            })?;
            self.booked = part.number;
        }
    }
}

/// As `price_per_million_tokens` says, in millionths; None: it says nothing, or the row is gone.
fn price(capability: Capability, endpoint: &str) -> Result<Option<u64>> {
    let remote = match capability {
        Capability::Embed => embedders::find(endpoint)?.map(|embedder| embedder.config.remote),
        Capability::Rerank => services::find(Object::Reranker, endpoint)?
            .map(|row| row.reranker())
            .transpose()?
            .map(|reranker| reranker.config.remote),
        Capability::Chat => services::find(Object::Llm, endpoint)?
            .map(|row| row.llm())
            .transpose()?
            .map(|llm| llm.config.remote),
    };
    Ok(remote.and_then(|remote| remote.price_micros))
}

/// Counts what tenants have whose quota was set a while ago, now that whoever did not know of it has ended.
fn settle_quotas(log: &mut Log) -> Result<()> {
    if !txn::in_txn(quotas::any_unsettled)? {
        return Ok(());
    }
    txn::in_txn(quotas::note_new)?;
    for tenant in txn::in_txn(quotas::to_settle)? {
        let settled = txn::in_txn(|| {
            if quotas::lock(&tenant, false)? {
                quotas::count_again(&tenant)?;
                quotas::settle(&tenant)?;
            }
            Ok(())
        });
        if let Err(error) = settled {
            log.write("what a tenant with a quota has cannot be counted now", &error);
        }
    }
    Ok(())
}
