//! kb.alter_knowledge_base.

use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::stored;
use crate::knowledge_bases::build_lifecycle;
use crate::knowledge_bases::knowledge_base_settings;
use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::models::services;
use crate::pg::role::as_owner;
use crate::pg::{report, txn, wake};
use crate::settings;
use crate::tenants::quota;
use kb_text::chunk_settings::Chunking;
use kb_text::tokenizer::max_content_tokens;
use kb_types::error::{Error, Result};
use kb_types::row_states::BuildState;
use serde_json::Value;

/// Replaces the settings that are given, whole objects at a time. Retrieval, description and metadata take
/// effect at once; embedder, chunking and preprocess take effect with the next kb.ingest, or at once while
/// there are no documents.
pub fn alter_knowledge_base(id: &str, wanted: WantedKnowledgeBase) -> Result<()> {
    let own = knowledge_bases::get_own(id)?;
    // Concurrent calls run one after the other, so that the second changes the result of the first.
    let before = as_owner(|| knowledge_bases::lock(&own))?;
    let wanted = WantedKnowledgeBase {
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
    let mut after = knowledge_base_settings::check(id, before.tenant_id.clone(), wanted)?;
    after.kb_no = before.kb_no;
    let remade = (&after.embedder, &after.chunking, &after.preprocess)
        != (&before.embedder, &before.chunking, &before.preprocess);
    let stays = as_owner(|| {
        quota::within(&after.tenant_id, || {
            let stays = remade && !remake_if_empty(&after)?;
            knowledge_bases::update(&after)?;
            Ok(stays)
        })
    })?;
    if stays {
        report::notice(&format!(
            "documents of knowledge base \"{id}\" remain unchanged until SELECT kb.ingest('{}');",
            id.replace('\'', "''")
        ));
    }
    Ok(())
}

/// Creates the live build again, under new settings, if the knowledge base has no documents. Returns whether
/// it did.
fn remake_if_empty(kb: &KnowledgeBase) -> Result<bool> {
    // The newest state counts, even in a transaction that began earlier.
    let is_empty = || txn::with_latest_snapshot(|| Ok(!stored::any(kb.kb_no)?));
    if !is_empty()? {
        return Ok(false);
    }
    // No document may be added before this is over, because the worker would put it into the old build.
    knowledge_bases::lock_with_documents(kb)?;
    if !is_empty()? {
        return Ok(false);
    }
    build_lifecycle::sweep(&build_lifecycle::only_live(kb)?)?;
    // The worker drops its table.
    wake::at_commit(0);
    build_lifecycle::create(kb, BuildState::Live, None)?;
    Ok(true)
}

/// The present chunking, with a size that a new embedder's model can read. A NOTICE reports a change.
fn fitted(chunking: &Value, embedder: &str) -> Result<Value> {
    let before = Chunking::stored(chunking)
        .map_err(|problems| Error::Internal(format!("stored chunking: {}", problems.join("; "))))?;
    let Some(embedder) = services::find_embedder(embedder)? else { return Ok(before.to_json()) };
    let fitted = before.clone().fitted(max_content_tokens(&embedder, &settings::model_dir())?);
    if fitted.size != before.size {
        report::notice(&format!(
            "chunking size is now {} tokens, the most that embedder \"{}\" reads",
            fitted.size, embedder.id
        ));
    }
    Ok(fitted.to_json())
}
