//! kb.ingest.

use crate::catalog::build_lifecycle;
use crate::error::{Error, Result};
use crate::model::states::{BuildState, Priority, RunStrategy};
use crate::pg::role::as_owner;
use crate::pg::wake;
use crate::store::documents::Which;
use crate::store::{builds, documents, embedders, jobs, knowledge_bases, runs};

/// Starts a run over the documents of the knowledge base. Returns its number.
pub fn ingest(id: &str, strategy: RunStrategy) -> Result<i64> {
    let kb = knowledge_bases::get_own(id)?;
    let live = builds::live(kb.kb_no)?;
    if let Some(next) = builds::current(kb.kb_no)?.iter().find(|build| build.is_next()) {
        return Err(Error::State {
            problem: format!("knowledge base \"{id}\" is being replaced by run {}", next.run_no.unwrap_or(0)),
            hint: "Wait for it with kb.wait.".into(),
        });
    }
    let fingerprint = embedders::get(&kb.embedder)?.fingerprint();
    // Vectors of two embedders cannot be compared, so a change of embedder cannot go document by document.
    let replace = strategy == RunStrategy::Replace || fingerprint != live.fingerprint;
    let strategy = if replace { RunStrategy::Replace } else { RunStrategy::Upsert };
    as_owner(|| {
        // A build has the documents of all tenants.
        let scanned = documents::count(kb.kb_no)?;
        let run_no = runs::insert(kb.kb_no, &kb.tenant_id, strategy, scanned)?;
        let taken_up = if replace {
            build_lifecycle::create(&kb, BuildState::Next, Some(run_no))?;
            documents::reset(kb.kb_no, Which::All, "")?
        } else {
            builds::set_settings(live.build_no, &kb.chunking, &kb.preprocess.to_json())?;
            // Read again, because the settings have just changed.
            let settings =
                builds::current(kb.kb_no)?.first().map(builds::Build::settings).unwrap_or_default();
            let outdated = documents::reset(kb.kb_no, Which::Outdated, &settings)?;
            runs::set_skipped(run_no, scanned - outdated.len() as i64)?;
            outdated
        };
        jobs::enqueue(kb.kb_no, &taken_up, Priority::Backfill, Some(run_no))?;
        wake::at_commit(kb.kb_no);
        Ok(run_no)
    })
}
