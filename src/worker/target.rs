//! A build that documents are put into, with its embedder.

use super::embed_batch::Destination;
use crate::error::Result;
use crate::model::Embedder;
use crate::store::builds::{self, Build};
use crate::store::embedders;
use crate::store::vector_store::Health;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub struct Target {
    pub build: Build,
    pub embedder: Embedder,
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
            let target = Target { build, embedder };
            // Somebody may have dropped its table.
            if target.may_fail(in_next) && target.build.vector_db.store().health()? == Health::Gone {
                continue;
            }
            targets.push(Arc::new(target));
        }
        self.0.insert(kb_no, targets.clone());
        Ok(targets)
    }
}
