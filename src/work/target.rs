//! A build that documents are put into, with its embedder.
//!
//! Faults of the live build must not prevent the next one. Of a document that is put into both, only faults
//! of the next build are the document's own ([`Target::may_fail`]).

use crate::builds::builds;
use crate::builds::builds::Build;
use crate::models::services;
use crate::models::services::ServiceRow;
use crate::settings;
use crate::vectors::upkeep::Grown;
use crate::vectors::{Health, VectorDb, VectorStore, moved_builds};
use kb_gateway::provider;
use kb_text::chunk_settings::Chunking;
use kb_text::tokenizer::max_content_tokens;
use kb_types::error::Result;
use kb_types::{Embedder, Extractor, ServiceKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// Where a batch's vectors go to, and who makes them.
pub trait Destination {
    fn build_no(&self) -> i64;
    fn embedder(&self) -> &Embedder;

    /// Whether the embedder is reached over HTTP.
    fn is_remote(&self) -> bool {
        provider::find(ServiceKind::Embedder, &self.embedder().provider).is_some()
    }
}

#[derive(Debug)]
pub struct Target {
    pub build: Build,
    pub embedder: Embedder,
    /// How documents are cut: as the build says, or a document of its own.
    pub chunking: Chunking,
    /// The chat model that says what its chunks are about.
    pub llm: Option<ServiceRow>,
    /// The extraction services that read files of some types.
    pub extractors: Vec<Extractor>,
    /// Filled when the build gets a table of its own, while documents are under way.
    moved: Arc<OnceLock<VectorDb>>,
}

impl Destination for Target {
    fn build_no(&self) -> i64 {
        self.build.build_no
    }

    fn embedder(&self) -> &Embedder {
        &self.embedder
    }
}

impl Target {
    pub fn new(
        build: Build,
        embedder: Embedder,
        llm: Option<ServiceRow>,
        extractors: Vec<Extractor>,
    ) -> Target {
        let moved = moved_builds::watch(build.build_no);
        let chunking = build.chunking.clone();
        Target { build, embedder, chunking, llm, extractors, moved }
    }

    /// The same build for a document that has a chunking of its own. The size is at most what the embedder's
    /// model reads, which may be another than when the document was put.
    pub fn cut_by(&self, chunking: &Chunking) -> Result<Target> {
        let most = max_content_tokens(&self.embedder, &settings::model_dir())?;
        let llm =
            chunking.context_llm.as_deref().map(|id| services::get(ServiceKind::Llm, id)).transpose()?;
        Ok(Target {
            build: self.build.clone(),
            embedder: self.embedder.clone(),
            chunking: chunking.clone().fitted(most),
            llm,
            extractors: self.extractors.clone(),
            moved: Arc::clone(&self.moved),
        })
    }

    /// The same build under an embedder that was changed.
    pub fn with(&self, embedder: Embedder) -> Target {
        let Target { build, chunking, llm, extractors, moved, .. } = self;
        let (build, chunking) = (build.clone(), chunking.clone());
        let (llm, extractors) = (llm.clone(), extractors.clone());
        Target { build, embedder, chunking, llm, extractors, moved: Arc::clone(moved) }
    }

    /// Where its vectors are now.
    pub fn vector_db(&self) -> &VectorDb {
        self.moved.get().unwrap_or(&self.build.vector_db)
    }

    /// What tells of its vectors whether it wants an index.
    pub fn grown(&self) -> Grown<'_> {
        let Build { build_no, kb_no, owns_table, vector_db: was_in, .. } = &self.build;
        let is_in = self.vector_db();
        Grown { build_no: *build_no, kb_no: *kb_no, owns_table: *owns_table, was_in, is_in }
    }

    pub fn vectors(&self) -> Box<dyn VectorStore + '_> {
        self.vector_db().store()
    }

    /// Whether a document's text cannot be cut without asking models.
    pub fn asks_models(&self) -> bool {
        self.chunking.asks_models()
    }

    pub fn is_live(&self) -> bool {
        self.build.is_live()
    }

    pub fn is_next(&self) -> bool {
        self.build.is_next()
    }

    /// The rule: what the live build cannot do must not keep the next one from being made. So where a
    /// document is put into both, only what goes wrong with the next one is a fault of the document.
    pub fn may_fail(&self, in_next: bool) -> bool {
        self.is_live() && in_next
    }
}

/// Builds by knowledge base, read once per group of documents.
#[derive(Default)]
pub struct Targets(BTreeMap<i64, Vec<Arc<Target>>>);

impl Targets {
    /// The builds that a document must be in: live first, then next.
    pub fn of(&mut self, kb_no: i64) -> Result<Vec<Arc<Target>>> {
        if let Some(targets) = self.0.get(&kb_no) {
            return Ok(targets.clone());
        }
        let mut targets = Vec::new();
        let builds = builds::current(kb_no)?;
        let in_next = builds.len() > 1;
        for build in builds {
            let embedder = services::embedder(&build.embedder)?;
            let llm = build.chunking.context_llm.as_deref();
            let llm = llm.map(|id| services::get(ServiceKind::Llm, id)).transpose()?;
            let ids: BTreeSet<&str> =
                build.preprocess.extractors.values().map(|named| named.extractor.as_str()).collect();
            let read = |id: &str| services::get(ServiceKind::Extractor, id)?.extractor();
            let extractors = ids.into_iter().map(read).collect::<Result<_>>()?;
            let target = Target::new(build, embedder, llm, extractors);
            // Somebody may have dropped its table.
            if target.may_fail(in_next) && target.vectors().health()? == Health::Gone {
                continue;
            }
            targets.push(Arc::new(target));
        }
        self.0.insert(kb_no, targets.clone());
        Ok(targets)
    }
}
