//! The settings of a knowledge base: checked, and completed with defaults.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::models::{default_embedder, services};
use crate::settings;
use crate::sql::server_catalogs;
use crate::vectors::vector_dbs;
use kb_text::chunk_settings::Chunking;
use kb_text::tokenizer::max_content_tokens;
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Json, Preprocess, Retrieval, ServiceKind, id, sizes};
use serde_json::{Value, json};

/// Requested settings. None stands for the default (on creation) or for no change.
#[derive(Debug, Default)]
pub struct WantedKnowledgeBase {
    pub embedder: Option<String>,
    pub vector_db: Option<String>,
    pub description: Option<String>,
    pub chunking: Option<Value>,
    pub preprocess: Option<Value>,
    pub retrieval: Option<Value>,
    pub metadata: Option<Json>,
}

/// Checks the settings, each by itself and against the others, and reports all problems at once.
pub fn check(id: &str, tenant_id: String, wanted: WantedKnowledgeBase) -> Result<KnowledgeBase> {
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let embedder_id = wanted.embedder.map_or_else(default_embedder, Ok)?;
    let embedder = services::find_embedder(&embedder_id)?;
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
    let preprocess =
        Preprocess::parse(&wanted.preprocess.unwrap_or_else(empty)).map_err(|p| problems.extend(p)).ok();
    if let Some(preprocess) = &preprocess
        && !server_catalogs::language_exists(&preprocess.language)?
    {
        problems.push(format!(
            "preprocess.language: text search configuration \"{}\" does not exist",
            preprocess.language
        ));
    }
    for named in preprocess.iter().flat_map(|preprocess| preprocess.extractors.values()) {
        if services::find(ServiceKind::Extractor, &named.extractor)?.is_none() {
            problems.push(format!("preprocess.extractors: extractor \"{}\" does not exist", named.extractor));
        }
    }
    let retrieval =
        Retrieval::parse(&wanted.retrieval.unwrap_or_else(empty)).map_err(|p| problems.extend(p)).ok();
    if let Some(rerank) = retrieval.as_ref().and_then(|retrieval| retrieval.rerank.as_ref())
        && services::find(ServiceKind::Reranker, &rerank.reranker)?.is_none()
    {
        problems.push(format!("retrieval.rerank: reranker \"{}\" does not exist", rerank.reranker));
    }
    if let Some(transform) = retrieval.as_ref().and_then(|retrieval| retrieval.transform.as_ref())
        && services::find(ServiceKind::Llm, &transform.llm)?.is_none()
    {
        problems.push(format!("retrieval.transform: llm \"{}\" does not exist", transform.llm));
    }
    if let Some(llm) = chunking.as_ref().and_then(|chunking| chunking.context_llm.as_ref())
        && services::find(ServiceKind::Llm, llm)?.is_none()
    {
        problems.push(format!("chunking.context_llm: llm \"{llm}\" does not exist"));
    }
    let metadata = wanted.metadata.unwrap_or_else(Json::empty_object);
    if !metadata.is_object() {
        problems.push(format!("metadata: must be a JSON object, not {metadata}"));
    }
    let length = |value: Option<Value>| value.map_or(0, |value| value.to_string().len());
    for (field, size, most) in [
        ("description", wanted.description.as_ref().map_or(0, String::len), sizes::DESCRIPTION),
        ("metadata", metadata.as_str().len(), sizes::METADATA),
        ("chunking", length(chunking.as_ref().map(Chunking::to_json)), sizes::SETTINGS),
        ("preprocess", length(preprocess.as_ref().map(Preprocess::to_json)), sizes::SETTINGS),
        ("retrieval", length(retrieval.as_ref().map(Retrieval::to_json)), sizes::SETTINGS),
    ] {
        problems.extend(sizes::problem(size, most).map(|problem| format!("{field}: {problem}")));
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
        _ => Err(Error::configuration(format!("knowledge base \"{id}\""), problems)),
    }
}

/// The most tokens that the embedder's model reads. Missing model files are reported as a problem.
fn model_limit(embedder: &Embedder, problems: &mut Vec<String>) -> Option<usize> {
    max_content_tokens(embedder, &settings::model_dir())
        .map_err(|error| problems.push(format!("embedder: {error}")))
        .ok()
        .flatten()
}
