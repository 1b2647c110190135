//! Making builds, and switching from one to the next.

use crate::error::{Error, Result};
use crate::model::vector_db::Element;
use crate::model::{Chunking, Metric, VectorDbConfig, VectorDbType};
use crate::store::builds::{self, Build};
use crate::store::documents::Which;
use crate::store::knowledge_bases::KnowledgeBase;
use crate::store::vector_dbs::{self, VectorTable};
use crate::store::{documents, embedders, jobs, runs, vectors};

/// Makes a build under the knowledge base's settings of now, with a table of its own unless the knowledge
/// base names a shared one. As the owner.
pub fn create(kb: &KnowledgeBase, state: &str, run_no: Option<i64>) -> Result<Build> {
    let embedder = embedders::get(&kb.embedder)?;
    let mut build_no = builds::next_number()?;
    // An earlier installation of the extension may have left tables behind.
    while vectors::table_exists(&format!("vectors_{build_no}"))? {
        build_no = builds::next_number()?;
    }
    let (table, owns_table) = match &kb.vector_db {
        Some(id) => {
            let table = vector_dbs::find(id)?
                .ok_or_else(|| Error::NotFound { what: "vector database", id: id.clone() })?;
            (table, false)
        }
        None => {
            let table = VectorTable {
                table_name: format!("vectors_{build_no}"),
                dimension: embedder.dimension,
                kind: VectorDbType::Pgvector,
                metric: Metric::Cosine,
                element: Element::for_dimension(embedder.dimension).map_err(Error::Internal)?,
                config: VectorDbConfig::default(),
            };
            vectors::create_table(&table)?;
            (table, true)
        }
    };
    let build = Build {
        build_no,
        kb_no: kb.kb_no,
        tenant_id: kb.tenant_id.clone(),
        state: state.to_string(),
        embedder: embedder.id.clone(),
        fingerprint: embedder.fingerprint(),
        chunking: Chunking::stored(&kb.chunking)
            .map_err(|problems| Error::Configuration { object: "chunking".into(), problems })?,
        preprocess: kb.preprocess.clone(),
        table,
        owns_table,
        run_no,
    };
    builds::insert(&build)?;
    Ok(build)
}

/// Makes a finished next build the live one; by the worker, in a transaction. False when documents
/// were found that are not in it (put while the run began): they are enqueued first.
pub fn switch(next: &Build) -> Result<bool> {
    let missed = documents::reset(next.kb_no, Which::NotUnder, &next.settings(), None)?;
    if !missed.is_empty() {
        jobs::enqueue(next.kb_no, &next.tenant_id, &missed, jobs::BACKFILL, next.run_no)?;
        return Ok(false);
    }
    let failed = next.run_no.map_or(Ok(0), runs::failed)?;
    if failed > 0 {
        builds::set_state(next.build_no, "old")?;
        if let Some(run_no) = next.run_no {
            let error = format!("documents failed: {failed}; the knowledge base stays as it was");
            runs::finish(run_no, "failed", Some(&error))?;
        }
        // What was put meanwhile may be in the next build alone, where the live one's embedder failed.
        for live in builds::current(next.kb_no)?.iter().filter(|build| build.state == "live") {
            if live.preprocess != next.preprocess {
                // The text of each document is now as the next build extracted it: chunks must be slices of it.
                let others = documents::reset(live.kb_no, Which::NotUnder, &live.settings(), None)?;
                jobs::enqueue(live.kb_no, &live.tenant_id, &others, jobs::BACKFILL, None)?;
            }
            enqueue_without_vectors(live)?;
        }
        return Ok(true);
    }
    for build in builds::current(next.kb_no)? {
        if build.state == "live" {
            builds::set_state(build.build_no, "old")?;
        }
    }
    builds::set_state(next.build_no, "live")?;
    documents::recount(next.kb_no, next.build_no)?;
    if let Some(run_no) = next.run_no {
        runs::finish(run_no, "done", None)?;
    }
    Ok(true)
}

/// Tables that a restore made are tied to the extension again; by the worker when it starts.
pub fn attach_tables() -> Result<()> {
    for table in vectors::unattached()? {
        vectors::attach(&table)?;
    }
    Ok(())
}

/// Documents that say they are ready and are not wholly in a build are done again: after a crash has emptied its unlogged
/// table, say.
pub fn enqueue_without_vectors(build: &Build) -> Result<()> {
    // Somebody dropped it; see kb.health().
    if !vectors::table_exists(&build.table.table_name)? {
        return Ok(());
    }
    let lost = documents::without_vectors(build.kb_no, build.build_no, &build.table.table_name)?;
    if lost.is_empty() {
        return Ok(());
    }
    documents::set_pending(build.kb_no, &lost)?;
    jobs::enqueue(build.kb_no, &build.tenant_id, &lost, jobs::BACKFILL, None)
}

/// Removes an old build: its chunks and vectors, and its table if that is its alone. By the worker.
pub fn sweep(build: &Build) -> Result<()> {
    if build.owns_table {
        vectors::drop_table(&build.table.table_name)?;
    }
    builds::delete(build.build_no)
}
