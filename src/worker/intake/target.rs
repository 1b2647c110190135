//! A build that documents are put into, with its embedder.
//!
//! Faults of the live build must not prevent the next one. Of a document that is put into both, only faults
//! of the next build are the document's own ([`Target::may_fail`]).

use crate::builds::builds;
use crate::builds::builds::Build;
use crate::models::embedders;
use crate::models::services;
use crate::models::services::ServiceRow;
use crate::vectors::{Health, VectorDb, VectorStore};
use crate::worker::embed::embed_batch::Destination;
use kb_types::Embedder;
use kb_types::error::{Object, Result};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

thread_local! {
    /// Where builds have moved to that documents are put into, by their numbers.
    static MOVED: RefCell<HashMap<i64, Arc<OnceLock<VectorDb>>>> = RefCell::default();
}

/// More entries are looked through for those that nobody needs any more.
const MOVED_MOST: usize = 1000;

#[derive(Debug)]
pub struct Target {
    pub build: Build,
    pub embedder: Embedder,
    /// The chat model that says what its chunks are about.
    pub llm: Option<ServiceRow>,
    /// Filled when the build gets a table of its own, while documents are under way.
    moved: Arc<OnceLock<VectorDb>>,
}

/// A build has moved: what is under way goes to its own table.
pub fn has_moved(build_no: i64, own: VectorDb) {
    MOVED.with_borrow(|moved| {
        if let Some(moved) = moved.get(&build_no) {
            // It moves once.
            let _ = moved.set(own);
        }
    });
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
    pub fn new(build: Build, embedder: Embedder, llm: Option<ServiceRow>) -> Target {
        let moved = MOVED.with_borrow_mut(|moved| {
            if moved.len() > MOVED_MOST {
                moved.retain(|_, cell| Arc::strong_count(cell) > 1);
            }
            Arc::clone(moved.entry(build.build_no).or_default())
        });
        Target { build, embedder, llm, moved }
    }

    /// The same build under an embedder that was changed.
    pub fn with(&self, embedder: Embedder) -> Target {
        Target { build: self.build.clone(), embedder, llm: self.llm.clone(), moved: Arc::clone(&self.moved) }
    }

    /// Where its vectors are now.
    pub fn vector_db(&self) -> &VectorDb {
        self.moved.get().unwrap_or(&self.build.vector_db)
    }

    pub fn vectors(&self) -> Box<dyn VectorStore + '_> {
        self.vector_db().store()
    }

    /// Whether a document's text cannot be cut without asking models.
    pub fn asks_models(&self) -> bool {
        self.build.chunking.asks_models()
    }

    pub fn is_live(&self) -> bool {
        self.build.is_live()
    }

    pub fn is_next(&self) -> bool {
        self.build.is_next()
    }

    /// The rule: what the live build cannot do must not keep the next one from being made. So where a document is put
    /// into both, only what goes wrong with the next one is a fault of the document.
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
            let embedder = embedders::get(&build.embedder)?;
            let llm = build.chunking.context_llm.as_deref();
            let llm = llm.map(|id| services::get(Object::Llm, id)).transpose()?;
            let target = Target::new(build, embedder, llm);
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
