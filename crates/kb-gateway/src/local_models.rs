//! The requests to local models, and the threads that compute them.

use super::loaded_models::LoadedModels;
use super::turns::{PASSED_OVER, Turns, Urgency, Whose};
use kb_inference as local;
use kb_inference::Pause;
use kb_types::error::{Error, Result};
use kb_types::sync;
use kb_types::sync::lock;
use kb_types::{Embedder, Kind, Reranker, ServiceKind};
use rayon::ThreadPoolBuilder;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A piece of a request.
struct Task {
    work: Work,
    urgency: Urgency,
    texts: Vec<String>,
    answer: oneshot::Sender<Result<Vec<Vec<f32>>>>,
}

impl Task {
    fn bytes(&self) -> usize {
        let beside = self.work.beside() + SPECIAL;
        self.texts.iter().map(|text| text.len() + beside).sum()
    }
}

/// What is computed for each text: a vector, or a score, which is a vector of one number.
#[derive(Clone)]
enum Work {
    Embed(Embedder, Kind),
    Rank(Reranker, String),
}

impl Work {
    /// Whether one pass can compute texts of both.
    fn goes_with(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Embed(one, kind), Work::Embed(other, other_kind)) => kind == other_kind && one == other,
            _ => false,
        }
    }

    /// The bytes that are added to each text.
    fn beside(&self) -> usize {
        match self {
            Work::Embed(embedder, kind) => embedder.prefix(*kind).len(),
            Work::Rank(_, query) => query.len(),
        }
    }

    fn failed(&self) -> Error {
        let problem = "the model failed on these texts".to_string();
        match self {
            Work::Embed(embedder, _) => Error::Embedding { embedder: embedder.id.clone(), problem },
            Work::Rank(reranker, _) => {
                let id = reranker.id.clone();
                Error::Service { kind: ServiceKind::Reranker, id, problem, passing: false }
            }
        }
    }
}

/// The most bytes of a piece (unless a single text is longer), about 4,000 tokens. This much is tokenised at
/// once, and another client waits this long, except for questions, which may go ahead within a piece, between
/// groups of texts that a thread computes together. At the end of a piece some threads are idle, so that
/// shorter pieces take longer in total.
const PIECE: usize = 16 * 1024;
/// The bytes that each text counts for special tokens, besides its own and those of the prefix, so that short
/// texts are not free.
const SPECIAL: usize = 8;

/// How long threads stay awake for the next question at most, but no longer than the last question took.
/// Waking them takes a noticeable part of the time of a short question. They yield their cores to others
/// meanwhile.
const AWAKE: Duration = Duration::from_micros(500);
/// Clients whose questions shared a pass tend to ask again at the same time. The first of them waits for the
/// others for this fraction of the time of the pass, and at most for AWAKE. Otherwise it would get a pass of
/// its own, for which all the others would wait.
const GATHER: u32 = 8;

#[derive(Default)]
struct ModelQueue {
    turns: Turns<Task>,
    closed: bool,
}

/// Waiting requests, and one thread that computes them. A forward pass uses all cores, so a second one at the
/// same time would only divide them.
pub struct Models {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<ModelQueue>,
    filled: Condvar,
    loaded: LoadedModels,
    /// How many threads compute. 0 means one for each core.
    threads: AtomicUsize,
}

impl Models {
    /// Starts the computing threads. Signals must be blocked.
    pub fn start(model_dir: PathBuf, threads: usize) -> std::io::Result<Models> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(ModelQueue::default()),
            filled: Condvar::new(),
            loaded: LoadedModels::new(model_dir),
            threads: AtomicUsize::new(threads),
        });
        start(&shared)?;
        Ok(Models { shared })
    }

    /// Embeds texts piece by piece. Each piece waits for its turn. Stops at the first error.
    pub async fn embed(
        &self,
        embedder: &Embedder,
        kind: Kind,
        urgency: Urgency,
        whose: &Whose,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>> {
        self.compute(Work::Embed(embedder.clone(), kind), urgency, whose, texts).await
    }

    /// Scores how well each text answers a question, by a local model.
    pub async fn rank(
        &self,
        reranker: &Reranker,
        urgency: Urgency,
        whose: &Whose,
        query: String,
        texts: Vec<String>,
    ) -> Result<Vec<f64>> {
        let scores = self.compute(Work::Rank(reranker.clone(), query), urgency, whose, texts).await?;
        Ok(scores.into_iter().flatten().map(f64::from).collect())
    }

    async fn compute(
        &self,
        work: Work,
        urgency: Urgency,
        whose: &Whose,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>> {
        let beside = work.beside();
        let size = |text: &String| beside + text.len() + SPECIAL;
        let (mut vectors, mut texts) = (Vec::new(), texts.into_iter().peekable());
        while let Some(first) = texts.next() {
            let (mut piece, mut bytes) = (Vec::new(), size(&first));
            piece.push(first);
            while let Some(text) = texts.next_if(|text| bytes + size(text) <= PIECE) {
                bytes += size(&text);
                piece.push(text);
            }
            let (answer, answered) = oneshot::channel();
            let task = Task { work: work.clone(), urgency, texts: piece, answer };
            lock(&self.shared.queue).turns.push(urgency, whose, task);
            self.shared.filled.notify_one();
            let ended = |_| Error::Internal("the model thread ended".into());
            vectors.extend(answered.await.map_err(ended)??);
        }
        Ok(vectors)
    }

    /// In place of what would be loaded.
    #[cfg(test)]
    pub fn keep(&self, embedder: &Embedder, model: Arc<dyn local::LocalModel>) {
        self.shared.loaded.keep(embedder, model);
    }

    /// The number of models in memory.
    pub fn loaded(&self) -> usize {
        self.shared.loaded.count()
    }

    /// Sets how many threads compute from now on. 0 means one for each core.
    pub fn set_threads(&self, threads: usize) {
        let queue = lock(&self.shared.queue);
        self.shared.threads.store(threads, Ordering::SeqCst);
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// A change of directory forgets what was loaded from the old one.
    pub fn set_model_dir(&self, model_dir: PathBuf) {
        self.shared.loaded.set_model_dir(model_dir);
    }
}

impl Drop for Models {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_all();
    }
}

impl Shared {
    fn load(&self, work: &Work) -> Result<()> {
        match work {
            Work::Embed(embedder, _) => self.loaded.embedder(embedder).map(drop),
            Work::Rank(reranker, _) => self.loaded.reranker(reranker).map(drop),
        }
    }

    fn work(&self, work: &Work, texts: &[String], pause: Pause) -> Result<Vec<Vec<f32>>> {
        match work {
            Work::Embed(embedder, kind) => {
                // The model may have been loaded for another embedder, even of another database.
                let own = |error| match error {
                    Error::Embedding { problem, .. } => {
                        Error::Embedding { embedder: embedder.id.clone(), problem }
                    }
                    other => other,
                };
                self.loaded.embedder(embedder)?.embed(texts, *kind, pause).map_err(own)
            }
            Work::Rank(reranker, query) => {
                let scores = self.loaded.reranker(reranker)?.scores(&reranker.id, query, texts, pause)?;
                Ok(scores.into_iter().map(|score| vec![score]).collect())
            }
        }
    }
}

/// Starts the thread that computes.
fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let compute = move || {
        let threads = shared.threads.load(Ordering::SeqCst);
        among(threads, || compute(&shared, threads));
    };
    std::thread::Builder::new().name("kb-models".into()).spawn(compute).map(drop)
}

/// Runs `work` as one of `threads` threads that compute together (0 means one for each core), so that for a
/// question no thread has to be woken. A thread cannot leave its pool, so it should end after this.
fn among(threads: usize, work: impl FnOnce()) {
    // Without a pool the thread computes alone.
    let _pool = ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().ok();
    work();
}

/// Computes requests until there will be no more, or until the number of threads changes.
fn compute(shared: &Arc<Shared>, threads: usize) {
    loop {
        let tasks = {
            let mut queue = lock(&shared.queue);
            loop {
                if shared.threads.load(Ordering::SeqCst) != threads && start(shared).is_ok() {
                    return;
                }
                if let Some(tasks) = take(&mut queue.turns) {
                    break tasks;
                }
                if queue.closed {
                    return;
                }
                queue = sync::wait(&shared.filled, queue);
            }
        };
        let (questions, took) = answer(shared, tasks);
        let ended = Instant::now();
        if questions > 0 {
            local::stay_awake(|| {
                let waiting = lock(&shared.queue).turns.only_questions();
                ended.elapsed() < patience(questions, took, waiting)
            });
        }
    }
}

/// Computes tasks of the same work. Returns how many were questions, and how long these took.
fn answer(shared: &Shared, tasks: Vec<Task>) -> (usize, Duration) {
    let questions = tasks.iter().filter(|task| task.urgency == Urgency::Query).count();
    if questions == 0 {
        serve(shared, tasks, &|| answer_questions(shared));
        return (0, Duration::ZERO);
    }
    // No thread stays awake while files are read. Errors are reported when they are read again.
    let _ = caught(&tasks[0].work, || shared.load(&tasks[0].work));
    let (are_all, begun) = (questions == tasks.len(), Instant::now());
    // The others stay awake while one thread tokenises. Questions that arrive later do not go ahead of these.
    local::all_awake(|| match are_all {
        true => serve(shared, tasks, &|| ()),
        false => serve(shared, tasks, &|| answer_questions(shared)),
    });
    (questions, begun.elapsed())
}

/// How long to wait for more questions, given how many were answered in which time and how many are waiting
/// (None if something else waits, too).
fn patience(answered: usize, took: Duration, waiting: Option<usize>) -> Duration {
    match waiting {
        Some(0) => took.min(AWAKE),
        Some(count) if count < answered => (took / GATHER).min(AWAKE),
        _ => Duration::ZERO,
    }
}

/// Takes the next task, with later ones that the same pass can compute, such as questions of many sessions.
fn take(turns: &mut Turns<Task>) -> Option<Vec<Task>> {
    let first = turns.pop()?;
    Some(together(first, usize::MAX, |is_wanted| turns.pop_if(is_wanted)))
}

/// The same for questions only, at most `most` of them.
fn take_questions(turns: &mut Turns<Task>, most: usize) -> Option<Vec<Task>> {
    let first = turns.pop_query_if(|_| true)?;
    Some(together(first, most, |is_wanted| turns.pop_query_if(is_wanted)))
}

/// Adds other tasks of the same work to a task, up to `most` tasks and the size of a piece.
fn together(
    first: Task,
    most: usize,
    mut pop_if: impl FnMut(&dyn Fn(&Task) -> bool) -> Option<Task>,
) -> Vec<Task> {
    let mut bytes = first.bytes();
    let mut tasks = vec![first];
    loop {
        if tasks.len() >= most {
            return tasks;
        }
        let goes_with = |next: &Task| bytes + next.bytes() <= PIECE && tasks[0].work.goes_with(&next.work);
        let Some(next) = pop_if(&goes_with) else { return tasks };
        bytes += next.bytes();
        tasks.push(next);
    }
}

/// Answers questions between two groups of texts, but no more than may go ahead of a waiting class, so that
/// the piece continues however many questions arrive.
fn answer_questions(shared: &Shared) {
    let mut left = PASSED_OVER as usize;
    while left > 0 {
        let questions = take_questions(&mut lock(&shared.queue).turns, left);
        let Some(questions) = questions else { return };
        left = left.saturating_sub(questions.len());
        serve(shared, questions, &|| ());
    }
}

/// Computes tasks of the same work.
fn serve(shared: &Shared, mut tasks: Vec<Task>, pause: Pause) {
    // Clients of closed tasks have cancelled.
    tasks.retain(|task| !task.answer.is_closed());
    if tasks.len() > 1 {
        let texts: Vec<String> = tasks.iter().flat_map(|task| task.texts.iter().cloned()).collect();
        if let Ok(vectors) = attempt(shared, &tasks[0].work, &texts, pause) {
            let mut vectors = vectors.into_iter();
            for task in tasks {
                let own = vectors.by_ref().take(task.texts.len()).collect();
                let _ = task.answer.send(Ok(own));
            }
            return;
        }
    }
    // A task whose texts are refused must not fail the others.
    for task in tasks {
        let result = attempt(shared, &task.work, &task.texts, pause);
        let _ = task.answer.send(result);
    }
}

fn attempt(shared: &Shared, work: &Work, texts: &[String], pause: Pause) -> Result<Vec<Vec<f32>>> {
    caught(work, || shared.work(work, texts, pause))
}

/// Converts a panic into an error of the work.
fn caught<T>(work: &Work, act: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or_else(|_| Err(work.failed()))
}

#[cfg(test)]
#[path = "local_models_tests.rs"]
mod tests;
