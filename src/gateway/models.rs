//! The loaded models, each loaded once, and the threads that run them.

use super::local::{self, LocalModel};
use super::turns::{PASSED_OVER, Turns, Urgency, Whose};
use crate::error::{Error, Result};
use crate::model::{Embedder, Kind};
use crate::sync::{self, lock};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use tokio::sync::oneshot;

/// A piece of a request.
struct Task {
    embedder: Embedder,
    kind: Kind,
    texts: Vec<String>,
    answer: oneshot::Sender<Result<Vec<Vec<f32>>>>,
}

/// Bytes of a piece at most (more only of a single longer text), about two passes of a model: so much is tokenised at
/// once, and for so long another client waits. (A question goes ahead within a piece, too, between passes.)
const PIECE: usize = 8 * 1024;
/// Bytes that each text counts beside its own and the prefix's, for special tokens: a short text is not free.
const SPECIAL: usize = 8;

/// Models in memory at most; the one that was asked least recently goes.
const LOADED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

#[derive(Default)]
struct Queue {
    turns: Turns<Task>,
    closed: bool,
}

/// Models by fingerprint, and one thread that computes: a model's forward pass uses all cores, so that a second one at
/// the same time would only divide them.
pub struct Models {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    loaded: Mutex<LruCache<i64, Arc<dyn LocalModel>>>,
    model_dir: Mutex<PathBuf>,
}

impl Models {
    /// Starts the computing thread. Call with signals blocked.
    pub fn start(model_dir: PathBuf) -> std::io::Result<Models> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            filled: Condvar::new(),
            loaded: Mutex::new(LruCache::new(LOADED)),
            model_dir: Mutex::new(model_dir),
        });
        let worker = Arc::clone(&shared);
        std::thread::Builder::new().name("kb-models".into()).spawn(move || compute(&worker))?;
        Ok(Models { shared })
    }

    /// Vectors of texts, computed piece by piece; each piece waits its turn. Stops at the first error.
    pub async fn embed(
        &self,
        embedder: &Embedder,
        kind: Kind,
        urgency: Urgency,
        whose: &Whose,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>> {
        let prefix = embedder.prefix(kind).len();
        let size = |text: &String| prefix + text.len() + SPECIAL;
        let (mut vectors, mut texts) = (Vec::new(), texts.into_iter().peekable());
        while let Some(first) = texts.next() {
            let (mut piece, mut bytes) = (Vec::new(), size(&first));
            piece.push(first);
            while let Some(text) = texts.next_if(|text| bytes + size(text) <= PIECE) {
                bytes += size(&text);
                piece.push(text);
            }
            let (answer, answered) = oneshot::channel();
            let task = Task { embedder: embedder.clone(), kind, texts: piece, answer };
            lock(&self.shared.queue).turns.push(urgency, whose, task);
            self.shared.filled.notify_one();
            let ended = |_| Error::Internal("the model thread ended".into());
            vectors.extend(answered.await.map_err(ended)??);
        }
        Ok(vectors)
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
        // One of a directory that was changed meanwhile is not kept.
        let current = lock(&self.model_dir);
        if *current == dir {
            lock(&self.loaded).put(fingerprint, Arc::clone(&model));
        }
        Ok(model)
    }
}

fn compute(shared: &Shared) {
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if let Some(task) = queue.turns.pop() {
                    break task;
                }
                if queue.closed {
                    return;
                }
                queue = sync::wait(&shared.filled, queue);
            }
        };
        serve(shared, task, &|| answer_questions(shared));
    }
}

/// Answers questions between two passes of a model: no more than may go ahead of a class that waits, so that the piece
/// comes to its next pass however many are asked.
fn answer_questions(shared: &Shared) {
    for _ in 0..PASSED_OVER {
        let Some(question) = next_query(shared) else { return };
        serve(shared, question, &|| ());
    }
}

fn next_query(shared: &Shared) -> Option<Task> {
    lock(&shared.queue).turns.pop_query()
}

fn serve(shared: &Shared, task: Task, pause: &dyn Fn()) {
    // The client has cancelled.
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

    fn embedder() -> Embedder {
        Embedder {
            id: "hash".into(),
            provider: "hash".into(),
            model: "hash".into(),
            dimension: 4,
            base_url: None,
            config: Default::default(),
        }
    }

    /// Who was answered, in that order: four bulk calls of two connections, an ingestion and a question, all of which
    /// wait when the model begins.
    fn order_of_answers() -> Vec<&'static str> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let models = Arc::new(Models::start(PathBuf::new()).unwrap());
        let answered = Arc::new(Mutex::new(Vec::new()));
        runtime.block_on(async {
            let asks = [("bulk", 1), ("bulk", 1), ("bulk", 2), ("bulk", 2), ("ingest", 3), ("question", 4)];
            let mut tasks = Vec::new();
            for (name, connection) in asks {
                let (models, answered) = (Arc::clone(&models), Arc::clone(&answered));
                let (urgency, count) = match name {
                    "bulk" => (Urgency::Bulk, 40),
                    "ingest" => (Urgency::Ingest, 1),
                    _ => (Urgency::Query, 1),
                };
                // Each text is a piece.
                let texts = vec!["a word ".repeat(PIECE / 7); count];
                tasks.push(tokio::spawn(async move {
                    let whose = Whose { connection, ..Whose::default() };
                    models.embed(&embedder(), Kind::Query, urgency, &whose, texts).await.unwrap();
                    lock(&answered).push(name);
                }));
                tokio::task::yield_now().await;
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        let answered = lock(&answered);
        answered.clone()
    }

    #[test]
    fn a_question_and_ingestion_are_answered_before_the_bulk_calls_that_came_first() {
        let order = order_of_answers();
        assert_eq!(order.len(), 6);
        // Ingestion has its share, and a question waits for a piece or two.
        assert_eq!(order[2..], ["bulk"; 4], "{order:?}");
    }

    #[test]
    fn between_two_passes_no_more_questions_are_answered_than_may_go_ahead_of_a_class() {
        let shared = Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            loaded: Mutex::new(LruCache::new(LOADED)),
            model_dir: Mutex::default(),
        };
        let mut answers = Vec::new();
        for _ in 0..PASSED_OVER + 3 {
            let (answer, answered) = oneshot::channel();
            let task = Task { embedder: embedder(), kind: Kind::Query, texts: vec!["a".into()], answer };
            lock(&shared.queue).turns.push(Urgency::Query, &Whose::default(), task);
            answers.push(answered);
        }
        answer_questions(&shared);
        let answered = answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
        assert_eq!(answered, PASSED_OVER as usize);
    }

    #[test]
    fn of_more_models_than_may_be_in_memory_the_least_recently_asked_goes() {
        let models = Models::start(PathBuf::new()).unwrap();
        for dimension in 1..100 {
            models.shared.model(&Embedder { dimension, ..embedder() }).unwrap();
        }
        assert_eq!(models.loaded(), LOADED.get());
    }
}
