//! kb.alter_knowledge_base.

use crate::catalog::build_lifecycle;
use crate::catalog::knowledge_base_settings::{self, WantedKnowledgeBase};
use crate::error::Result;
use crate::model::Chunking;
use crate::model::chunking::DEFAULT_OVERLAP;
use crate::model::states::BuildState;
use crate::pg::report;
use crate::pg::role::as_owner;
use crate::settings;
use crate::store::{builds, documents, embedders, knowledge_bases};
use crate::tokenizer::max_content_tokens;
use serde_json::{Value, json};

/// Replaces the settings that are given, objects as a whole. Retrieval, description and metadata take effect at once;
/// embedder, chunking and preprocess with the next kb.ingest, or at once while there are no documents.
pub fn alter_knowledge_base(id: &str, wanted: WantedKnowledgeBase) -> Result<()> {
    let before = knowledge_bases::get_own(id)?;
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
    let is_empty = as_owner(|| {
        let is_empty = documents::count(before.kb_no)? == 0;
        knowledge_bases::update(&after)?;
        if remade && is_empty {
            for build in builds::current(after.kb_no)? {
                build_lifecycle::sweep(&build)?;
            }
            build_lifecycle::create(&after, BuildState::Live, None)?;
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

/// The present chunking, with a size that a new embedder's model can read; a NOTICE reports a change.
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
