//! The life of a build: created, switched to, replaced, swept.
//!
//! A build is a complete set of chunks and vectors under one embedder, chunking, preprocess and vector table.
//! A knowledge base has one live build, which queries read, at most one next build and any number of old
//! ones. kb.ingest with `replace` creates the next one, and while it exists the worker puts every document
//! into both. When no job of its run is left, one commit makes the live build old and the next one live, or
//! the next one old if a document of the run failed. Documents in progress then get a new generation. An old
//! build is swept once no snapshot is older than its switch.
//!
//! `documents.settings` identifies the build and the settings under which a document's chunks were made;
//! `upsert` enqueues the documents whose settings differ. `documents.content` is the text that the last build
//! extracted. While a replace under another `preprocess` is in progress, chunks of the live build are slices
//! of the previous text.
//!
//! **Invariant:** a knowledge base has a live build at every commit.

use crate::builds::builds;
use crate::builds::builds::Build;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::builds::runs;
use crate::documents::stored;
use crate::documents::stored::Which;
use crate::jobs::queue;
use crate::models::services;
use crate::pg::txn;
use crate::vectors::vector_dbs;
use crate::vectors::{Health, VectorDb, tail};
use kb_text::chunk_settings::Chunking;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::row_states::{BuildState, Priority, RunState};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Creates a build under the present settings of the knowledge base, with a table of its own unless the
/// knowledge base names a shared one. Must run as the owner.
pub fn create(kb: &KnowledgeBase, state: BuildState, run_no: Option<i64>) -> Result<Build> {
    let embedder = services::embedder(&kb.embedder)?;
    let mut build_no = builds::next_number()?;
    let (vector_db, owns_table) = match &kb.vector_db {
        Some(id) => {
            let vector_db = vector_dbs::find(id)?
                .ok_or_else(|| Error::NotFound { what: ObjectKind::VectorDb, id: id.clone() })?;
            (vector_db, false)
        }
        None => {
            let mut vector_db = VectorDb::of_build(build_no, embedder.dimension)?;
            // An earlier installation of the extension may have left tables behind.
            while vector_db.store().health()? != Health::Gone {
                build_no = builds::next_number()?;
                vector_db = VectorDb::of_build(build_no, embedder.dimension)?;
            }
            vector_db.store().create()?;
            (vector_db, true)
        }
    };
    let build = Build {
        build_no,
        kb_no: kb.kb_no,
        tenant_id: kb.tenant_id.clone(),
        state,
        embedder: embedder.id.clone(),
        fingerprint: embedder.fingerprint(),
        chunking: Chunking::stored(&kb.chunking)
            .map_err(|problems| Error::configuration("chunking", problems))?,
        preprocess: kb.preprocess.clone(),
        vector_db,
        owns_table,
        run_no,
    };
    builds::insert(&build)?;
    if owns_table {
        tail::begin(build_no, 0)?;
    }
    Ok(build)
}

/// The live build of a knowledge base that is locked, in its newest state, even in a transaction that began
/// earlier. Returns an error while a run fills another one.
pub fn only_live(kb: &KnowledgeBase) -> Result<Build> {
    let (live, next) = txn::with_latest_snapshot(|| Ok((builds::live(kb.kb_no)?, builds::next(kb.kb_no)?)))?;
    match next {
        None => Ok(live),
        Some(next) => Err(Error::State {
            problem: format!(
                "knowledge base \"{}\" is being replaced by run {}",
                kb.id,
                next.run_no.unwrap_or(0)
            ),
            hint: "Wait for it with kb.wait.".into(),
        }),
    }
}

/// Makes a finished next build the live one; the worker calls this in a transaction. Returns false if
/// documents are missing from the build, because they were put while the run began: it enqueues them instead.
pub fn switch(next: &Build) -> Result<bool> {
    let missed = stored::reset(next.kb_no, Which::MadeUnderOthers, &next.settings())?;
    if !missed.is_empty() {
        queue::enqueue(next.kb_no, &missed, Priority::Backfill, next.run_no)?;
        return Ok(false);
    }
    let failed = next.run_no.map_or(Ok(0), runs::failed)?;
    // Edits that were made after the run enqueued its documents.
    queue::renew_leased(next.kb_no)?;
    if failed > 0 {
        builds::set_state(next.build_no, BuildState::Old)?;
        if let Some(run_no) = next.run_no {
            let error = format!("documents failed: {failed}; the knowledge base stays as it was");
            runs::finish(run_no, RunState::Failed, Some(&error))?;
        }
        // If the live build's embedder failed, documents that were put meanwhile may be in the next build
        // only.
        for live in builds::current(next.kb_no)?.iter().filter(|build| build.is_live()) {
            if live.preprocess != next.preprocess {
                // The text of each document is now the one that the next build extracted, and chunks must be
                // slices of it.
                let others = stored::reset(live.kb_no, Which::MadeUnderOthers, &live.settings())?;
                queue::enqueue(live.kb_no, &others, Priority::Backfill, None)?;
            }
            enqueue_without_vectors(live)?;
        }
        return Ok(true);
    }
    for build in builds::current(next.kb_no)? {
        if build.is_live() {
            builds::set_state(build.build_no, BuildState::Old)?;
        }
    }
    builds::set_state(next.build_no, BuildState::Live)?;
    stored::recount(next.kb_no, next.build_no)?;
    if let Some(run_no) = next.run_no {
        runs::set_chunks(run_no, next.build_no)?;
        runs::finish(run_no, RunState::Done, None)?;
    }
    Ok(true)
}

/// Enqueues documents that are marked ready and lack vectors in a build, for example after a crash that
/// emptied its unlogged table.
pub fn enqueue_without_vectors(build: &Build) -> Result<()> {
    // The table was dropped; kb.health() reports it.
    let vectors = build.vector_db.store();
    if vectors.health()? == Health::Gone {
        return Ok(());
    }
    let lost = stored::set_pending(&vectors.incomplete(build.kb_no, build.build_no)?)?;
    if lost.is_empty() {
        return Ok(());
    }
    queue::enqueue(build.kb_no, &lost, Priority::Backfill, None)
}

/// The number of chunks of an old build that are deleted at once.
const SLICE: usize = 1000;

/// Removes an old build as [`sweep`] does, in several transactions, for about this long, beginning after a
/// chunk. Returns the last chunk that was deleted if there may be more.
pub fn sweep_some(build: &Build, from: Uuid, time: Duration) -> Result<Option<Uuid>> {
    let begun = Instant::now();
    if build.owns_table {
        txn::in_txn(|| build.vector_db.store().empty())?;
    }
    let mut last = from;
    while let Some(deleted) = txn::in_txn(|| builds::delete_chunks(build.build_no, last, SLICE))? {
        last = deleted;
        if begun.elapsed() >= time {
            return Ok(Some(last));
        }
    }
    txn::in_txn(|| builds::delete(build.build_no))?;
    Ok(None)
}

/// Removes a build with its chunks and vectors. The worker drops its own table later
/// (`vectors/upkeep/unused_tables.rs`). For the worker or the owner.
pub fn sweep(build: &Build) -> Result<()> {
    if build.owns_table {
        build.vector_db.store().empty()?;
    }
    builds::delete(build.build_no)
}
