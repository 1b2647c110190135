//! Creating, altering and dropping knowledge bases, and asking for them to be ingested.

use super::builds as build_cases;
use crate::error::{Error, Result};
use crate::model::chunking::DEFAULT_OVERLAP;
use crate::model::states::{BuildState, RunStrategy};
use crate::model::{Chunking, Embedder, Json, Preprocess, Retrieval, id};
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::settings;
use crate::store::documents::Which;
use crate::store::knowledge_bases::{self, KnowledgeBase};
use crate::store::{builds, documents, embedders, jobs, runs, server, vector_dbs, vector_store};
use crate::tokenizer::max_content_tokens;
use serde_json::{Value, json};

/// Settings as they are asked for; None is the default (on creation) or no change.
#[derive(Debug, Default)]
pub struct Wanted {
    pub embedder: Option<String>,
    pub vector_db: Option<String>,
    pub description: Option<String>,
    pub chunking: Option<Value>,
    pub preprocess: Option<Value>,
    pub retrieval: Option<Value>,
    pub metadata: Option<Json>,
}

/// Checks everything against everything and reports all problems at once.
fn validate(id: &str, tenant_id: String, wanted: Wanted) -> Result<KnowledgeBase> {
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let embedder_id = wanted.embedder.unwrap_or_else(settings::default_embedder);
    let embedder = embedders::find(&embedder_id)?;
    if embedder.is_none() {
        problems.push(format!("embedder: \"{embedder_id}\" does not exist"));
    }
    let max_tokens = embedder.as_ref().and_then(|e| model_limit(e, &mut problems));
    if let Some(vector_db) = &wanted.vector_db {
        match (vector_dbs::find(vector_db)?, &embedder) {
            (None, _) => problems.push(format!("vector_db: \"{vector_db}\" does not exist")),
            (Some(found), Some(e)) if found.dimension != e.dimension => problems.push(format!(
                "vector_db: \"{vector_db}\" has dimension {}, embedder \"{embedder_id}\" has {}",
                found.dimension, e.dimension
            )),
            _ => {}
        }
    }
    let empty = || json!({});
    let chunking = Chunking::parse(&wanted.chunking.unwrap_or_else(empty), max_tokens)
        .map_err(|p| problems.extend(p))
        .ok();
    let mut preprocess_json = wanted.preprocess.unwrap_or_else(empty);
    if let Some(map) = preprocess_json.as_object_mut()
        && !map.contains_key("language")
    {
        map.insert("language".into(), json!(server::default_language()?));
    }
    let preprocess = Preprocess::parse(&preprocess_json).map_err(|p| problems.extend(p)).ok();
    if let Some(preprocess) = &preprocess
        && !server::language_exists(&preprocess.language)?
    {
        problems.push(format!(
            "preprocess.language: text search configuration \"{}\" does not exist",
            preprocess.language
        ));
    }
    let retrieval =
        Retrieval::parse(&wanted.retrieval.unwrap_or_else(empty)).map_err(|p| problems.extend(p)).ok();
    let metadata = wanted.metadata.unwrap_or_else(Json::empty_object);
    if !metadata.is_object() {
        problems.push(format!("metadata: must be a JSON object, not {metadata}"));
    }
    match (chunking, preprocess, retrieval) {
        (Some(chunking), Some(preprocess), Some(retrieval)) if problems.is_empty() => Ok(KnowledgeBase {
            kb_no: 0,
            tenant_id,
            id: id.to_string(),
            description: wanted.description,
            embedder: embedder_id,
            vector_db: wanted.vector_db,
            chunking: chunking.to_json(),
            preprocess,
            retrieval,
            metadata,
        }),
        _ => Err(Error::Configuration { object: format!("knowledge base \"{id}\""), problems }),
    }
}

/// What the embedder's model reads; a model whose files are missing is a problem of its own.
fn model_limit(embedder: &Embedder, problems: &mut Vec<String>) -> Option<usize> {
    max_content_tokens(embedder, &settings::model_dir())
        .map_err(|error| problems.push(format!("embedder: {error}")))
        .ok()
        .flatten()
}

pub fn create(id: &str, wanted: Wanted) -> Result<()> {
    let mut kb = validate(id, knowledge_bases::current_tenant()?, wanted)?;
    as_owner(|| {
        kb.kb_no = knowledge_bases::insert(&kb)?
            .ok_or_else(|| Error::AlreadyExists { what: "knowledge base", id: id.into() })?;
        build_cases::create(&kb, BuildState::Live, None)?;
        Ok(())
    })
}

/// What is given replaces what was, objects as a whole. Retrieval, description and metadata take effect at once; embedder, chunking and preprocess with the next
/// kb.ingest, or at once while there are no documents.
pub fn alter(id: &str, wanted: Wanted) -> Result<()> {
    let before = knowledge_bases::get_own(id)?;
    let wanted = Wanted {
        chunking: match (wanted.chunking, &wanted.embedder) {
            (Some(chunking), _) => Some(chunking),
            (None, Some(embedder)) => Some(fitted(&before.chunking, embedder)?),
            (None, None) => Some(before.chunking.clone()),
        },
        embedder: Some(wanted.embedder.unwrap_or_else(|| before.embedder.clone())),
        vector_db: before.vector_db.clone(),
        description: wanted.description.or_else(|| before.description.clone()),
        preprocess: Some(wanted.preprocess.unwrap_or_else(|| before.preprocess.to_json())),
        retrieval: Some(wanted.retrieval.unwrap_or_else(|| before.retrieval.to_json())),
        metadata: Some(wanted.metadata.unwrap_or_else(|| before.metadata.clone())),
    };
    let mut after = validate(id, before.tenant_id.clone(), wanted)?;
    after.kb_no = before.kb_no;
    let remade = (&after.embedder, &after.chunking, &after.preprocess)
        != (&before.embedder, &before.chunking, &before.preprocess);
    let is_empty = as_owner(|| {
        let is_empty = documents::count(before.kb_no)? == 0;
        knowledge_bases::update(&after)?;
        if remade && is_empty {
            for build in builds::current(after.kb_no)? {
                build_cases::sweep(&build)?;
            }
            build_cases::create(&after, BuildState::Live, None)?;
        }
        Ok(is_empty)
    })?;
    if remade && !is_empty {
        report::notice(&format!(
            "documents of knowledge base \"{id}\" stay as they are until SELECT kb.ingest('{}');",
            id.replace('\'', "''")
        ));
    }
    Ok(())
}

/// Chunking as it was, but no larger than a new embedder's model reads; a NOTICE says when that changed it.
fn fitted(chunking: &Value, embedder: &str) -> Result<Value> {
    let mut fitted = Chunking::repaired(chunking);
    let Some(embedder) = embedders::find(embedder)? else { return Ok(fitted) };
    let Some(limit) = max_content_tokens(&embedder, &settings::model_dir())? else { return Ok(fitted) };
    let own_tokens = chunking["unit"] == "tokens" && chunking["tokenizer"].is_null();
    if own_tokens && chunking["size"].as_u64().is_some_and(|size| size > limit as u64) {
        let overlap = limit as f64 * DEFAULT_OVERLAP;
        fitted["size"] = json!(limit);
        fitted["overlap"] = json!(overlap as u64);
        report::notice(&format!(
            "chunking size is now {limit} tokens, which is what embedder \"{}\" reads",
            embedder.id
        ));
    }
    Ok(fitted)
}

pub fn drop(id: &str) -> Result<()> {
    let kb = knowledge_bases::get_own(id)?;
    as_owner(|| {
        for vector_db in vector_store::owned(kb.kb_no)? {
            vector_db.store().remove()?;
        }
        knowledge_bases::delete(kb.kb_no)
    })
}

/// Starts a run over the documents that the knowledge base holds; its number.
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
        // Of all tenants: a build has every document.
        let scanned = documents::count(kb.kb_no)?;
        let run_no = runs::insert(kb.kb_no, &kb.tenant_id, strategy, scanned)?;
        let taken_up = if replace {
            build_cases::create(&kb, BuildState::Next, Some(run_no))?;
            documents::reset(kb.kb_no, Which::All, "")?
        } else {
            builds::set_settings(live.build_no, &kb.chunking, &kb.preprocess.to_json())?;
            // Read again, for the settings as they are now.
            let settings =
                builds::current(kb.kb_no)?.first().map(builds::Build::settings).unwrap_or_default();
            let outdated = documents::reset(kb.kb_no, Which::Outdated, &settings)?;
            runs::set_skipped(run_no, scanned - outdated.len() as i64)?;
            outdated
        };
        jobs::enqueue(kb.kb_no, &taken_up, jobs::BACKFILL, Some(run_no))?;
        wake::at_commit(kb.kb_no);
        Ok(run_no)
    })
}
