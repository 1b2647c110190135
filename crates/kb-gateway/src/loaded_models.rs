//! The local models in memory, each of which is loaded once.

use kb_inference as local;
use kb_inference::{CrossEncoder, LocalModel};
use kb_types::error::Result;
use kb_types::sync::lock;
use kb_types::{Embedder, Reranker};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The most models of embedders. The least recently used one is dropped.
const EMBEDDERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// The same for rerankers.
const RERANKERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

pub struct LoadedModels {
    /// The models of embedders by fingerprint.
    embedders: Mutex<LruCache<i64, Arc<dyn LocalModel>>>,
    rerankers: Mutex<LruCache<Reranker, Arc<CrossEncoder>>>,
    model_dir: Mutex<PathBuf>,
}

impl LoadedModels {
    pub fn new(model_dir: PathBuf) -> LoadedModels {
        LoadedModels {
            embedders: Mutex::new(LruCache::new(EMBEDDERS)),
            rerankers: Mutex::new(LruCache::new(RERANKERS)),
            model_dir: Mutex::new(model_dir),
        }
    }

    /// The model of an embedder, which another embedder with the same fingerprint may have loaded.
    pub fn embedder(&self, embedder: &Embedder) -> Result<Arc<dyn LocalModel>> {
        let fingerprint = embedder.fingerprint();
        if let Some(model) = lock(&self.embedders).get(&fingerprint) {
            return Ok(Arc::clone(model));
        }
        let dir = lock(&self.model_dir).clone();
        let model: Arc<dyn LocalModel> = Arc::from(local::load(embedder, &dir)?);
        // A model is not kept if the directory was changed while it was loaded.
        let current = lock(&self.model_dir);
        if *current == dir {
            lock(&self.embedders).put(fingerprint, Arc::clone(&model));
        }
        Ok(model)
    }

    pub fn reranker(&self, reranker: &Reranker) -> Result<Arc<CrossEncoder>> {
        // Rows with the same configuration share the model.
        let key = Reranker { id: String::new(), ..reranker.clone() };
        if let Some(model) = lock(&self.rerankers).get(&key) {
            return Ok(Arc::clone(model));
        }
        let dir = lock(&self.model_dir).clone();
        let model = Arc::new(CrossEncoder::load(reranker, &dir)?);
        let current = lock(&self.model_dir);
        if *current == dir {
            lock(&self.rerankers).put(key, Arc::clone(&model));
        }
        Ok(model)
    }

    /// Replaces the model that would be loaded.
    #[cfg(test)]
    pub fn keep(&self, embedder: &Embedder, model: Arc<dyn LocalModel>) {
        lock(&self.embedders).put(embedder.fingerprint(), model);
    }

    pub fn count(&self) -> usize {
        lock(&self.embedders).len() + lock(&self.rerankers).len()
    }

    /// Sets the directory. A change drops the models from the old one.
    pub fn set_model_dir(&self, model_dir: PathBuf) {
        let mut current = lock(&self.model_dir);
        if *current != model_dir {
            *current = model_dir;
            lock(&self.embedders).clear();
            lock(&self.rerankers).clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_model_is_dropped() {
        let models = LoadedModels::new(PathBuf::new());
        for dimension in 1..100 {
            let embedder = Embedder {
                id: "hash".into(),
                provider: "hash".into(),
                model: "hash".into(),
                dimension,
                base_url: None,
                config: Default::default(),
            };
            models.embedder(&embedder).unwrap();
        }
        assert_eq!(models.count(), EMBEDDERS.get());
    }
}
