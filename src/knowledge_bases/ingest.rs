//! kb.ingest.

use crate::builds::{builds, knowledge_bases, runs};
use crate::documents::stored;
use crate::documents::stored::Which;
use crate::jobs::queue;
use crate::knowledge_bases::build_lifecycle;
use crate::models::services;
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::sources::start_runs;
use kb_types::error::Result;
use kb_types::row_states::{BuildState, Priority, RunStrategy};

/// Starts a run over the documents and sources of the knowledge base. Returns the number of the run.
pub fn ingest(id: &str, strategy: RunStrategy) -> Result<i64> {
    let own = knowledge_bases::get_own(id)?;
    // Concurrent calls run one after the other: of two that replace, the second finds the first one's build.
    let kb = as_owner(|| knowledge_bases::lock(&own))?;
    let live = build_lifecycle::only_live(&kb)?;
    let fingerprint = services::embedder(&kb.embedder)?.fingerprint();
    // Vectors of two embedders cannot be compared, so a change of embedder cannot proceed document by
    // document.
    let replace = strategy == RunStrategy::Replace || fingerprint != live.fingerprint;
    let strategy = if replace { RunStrategy::Replace } else { RunStrategy::Upsert };
    as_owner(|| {
        let run_no = runs::insert(kb.kb_no, &kb.tenant_id, strategy)?;
        let taken_up = if replace {
            build_lifecycle::create(&kb, BuildState::Next, Some(run_no))?;
            stored::reset(kb.kb_no, Which::All, "")?
        } else {
            builds::set_settings(live.build_no, &kb.chunking, &kb.preprocess.to_json())?;
            // Read again, because the settings have just changed.
            let settings =
                builds::current(kb.kb_no)?.first().map(builds::Build::settings).unwrap_or_default();
            stored::reset(kb.kb_no, Which::Outdated, &settings)?
        };
        let updated = taken_up.len() as i64;
        // Documents of all tenants, because a build has every document. They are counted after those above
        // were locked, so there are never fewer; one that was put in between is not part of the run.
        let scanned = if replace { updated } else { stored::count(kb.kb_no)? };
        runs::set_scanned(run_no, scanned, scanned - updated)?;
        queue::enqueue(kb.kb_no, &taken_up, Priority::Backfill, Some(run_no))?;
        start_runs::of_knowledge_base(kb.kb_no, run_no)?;
        wake::at_commit(kb.kb_no);
        Ok(run_no)
    })
}
