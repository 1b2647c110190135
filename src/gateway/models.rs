//! The loaded models, each loaded once, and the threads that run them.

use super::local::{self, LocalModel};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

use super::protocol::Urgency;

struct Task {
    embedder: Embedder,
    kind: Kind,
    texts: Vec<String>,
    answer: oneshot::Sender<Result<Vec<Vec<f32>>>>,
}

#[derive(Default)]
struct Queue {
    queries: VecDeque<Task>,
    ingestion: VecDeque<Task>,
    closed: bool,
}

impl Queue {
    /// Queries first.
    fn next(&mut self) -> Option<Task> {
        self.queries.pop_front().or_else(|| self.ingestion.pop_front())
    }
}

/// Models by fingerprint, and one thread that computes: a model's forward pass uses all cores by
/// itself, so a second one at a time would only divide them. A query waits for a fraction of a batch.
pub struct Models {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    loaded: Mutex<HashMap<i64, Arc<dyn LocalModel>>>,
    model_dir: Mutex<PathBuf>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models {
    /// Starts the computing thread. Call with signals blocked.
    pub fn start(model_dir: PathBuf) -> std::io::Result<Models> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            filled: Condvar::new(),
            loaded: Mutex::new(HashMap::new()),
            model_dir: Mutex::new(model_dir),
        });
        let worker = Arc::clone(&shared);
        std::thread::Builder::new().name("kb-models".into()).spawn(move || compute(&worker))?;
        Ok(Models { shared })
    }

    /// Vectors of texts; waits its turn.
    pub async fn embed(
        &self,
        embedder: Embedder,
        kind: Kind,
        urgency: Urgency,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>> {
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = lock(&self.shared.queue);
            let task = Task { embedder, kind, texts, answer };
            match urgency {
                Urgency::Query => queue.queries.push_back(task),
                Urgency::Ingest => queue.ingestion.push_back(task),
            }
        }
        self.shared.filled.notify_one();
        answered.await.unwrap_or_else(|_| Err(Error::Internal("the model thread ended".into())))
    }

    /// The model, loaded now if it was not.
    pub fn model(&self, embedder: &Embedder) -> Result<Arc<dyn LocalModel>> {
        self.shared.model(embedder)
    }

    /// Models in memory.
    pub fn loaded(&self) -> usize {
        lock(&self.shared.loaded).len()
    }

    /// A change of directory forgets what was loaded from the old one.
    pub fn set_model_dir(&self, model_dir: PathBuf) {
        let mut current = lock(&self.shared.model_dir);
        if *current != model_dir {
            *current = model_dir;
            lock(&self.shared.loaded).clear();
        }
    }
}

impl Drop for Models {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_all();
    }
}

impl Shared {
    fn model(&self, embedder: &Embedder) -> Result<Arc<dyn LocalModel>> {
        let fingerprint = embedder.fingerprint();
        if let Some(model) = lock(&self.loaded).get(&fingerprint) {
            return Ok(Arc::clone(model));
        }
        let dir = lock(&self.model_dir).clone();
        let model: Arc<dyn LocalModel> = Arc::from(local::load(embedder, &dir)?);
        lock(&self.loaded).insert(fingerprint, Arc::clone(&model));
        Ok(model)
    }
}

fn compute(shared: &Shared) {
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if let Some(task) = queue.next() {
                    break task;
                }
                if queue.closed {
                    return;
                }
                queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        // In the pauses of a long batch the queries that have come meanwhile are answered.
        serve(shared, task, &|| {
            while let Some(query) = next_query(shared) {
                serve(shared, query, &|| ());
            }
        });
    }
}

fn next_query(shared: &Shared) -> Option<Task> {
    lock(&shared.queue).queries.pop_front()
}

fn serve(shared: &Shared, task: Task, pause: &dyn Fn()) {
    // Nobody waits any more: the client cancelled.
    if task.answer.is_closed() {
        return;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.model(&task.embedder)?.embed(&task.texts, task.kind, pause)
    }))
    .unwrap_or_else(|_| {
        Err(Error::Embedding {
            embedder: task.embedder.id.clone(),
            problem: "the model failed on these texts".into(),
        })
    });
    let _ = task.answer.send(result);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let (answer, _) = oneshot::channel();
        Task {
            embedder: Embedder {
                id: String::new(),
                provider: "hash".into(),
                model: "hash".into(),
                dimension: 4,
                base_url: None,
                config: Default::default(),
            },
            kind: Kind::Query,
            texts: vec![],
            answer,
        }
    }

    #[test]
    fn queries_go_ahead_of_ingestion() {
        let mut queue = Queue::default();
        queue.ingestion.push_back(Task { texts: vec!["i".into()], ..task() });
        queue.queries.push_back(Task { texts: vec!["q".into()], ..task() });
        assert_eq!(queue.next().unwrap().texts, ["q"]);
        assert_eq!(queue.next().unwrap().texts, ["i"]);
        assert!(queue.next().is_none());
    }
}
