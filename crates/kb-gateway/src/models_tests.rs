//! How requests share the models, by the model that needs no files.

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

fn shared() -> Shared {
    Shared {
        queue: Mutex::default(),
        filled: Condvar::new(),
        loaded: LoadedModels::new(PathBuf::new()),
        threads: AtomicUsize::new(0),
    }
}

/// Who was answered, in that order: four bulk calls of two connections, an ingestion and a question, all of
/// which wait when the model begins.
fn order_of_answers() -> Vec<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let models = Arc::new(Models::start(PathBuf::new(), 0).unwrap());
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
fn between_two_groups_no_more_questions_are_answered_than_may_go_ahead_of_a_class() {
    let shared = shared();
    let mut answers = Vec::new();
    for _ in 0..PASSED_OVER + 3 {
        let (answer, answered) = oneshot::channel();
        let work = Work::Embed(embedder(), Kind::Query);
        let task = Task { work, urgency: Urgency::Bulk, texts: vec!["a".into()], answer };
        lock(&shared.queue).turns.push(Urgency::Query, &Whose::default(), task);
        answers.push(answered);
    }
    answer_questions(&shared);
    let answered = answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
    assert_eq!(answered, PASSED_OVER as usize);
}

/// Tasks of one text each, and their answers.
fn waiting_tasks(texts: &[&str]) -> (Vec<Task>, Vec<oneshot::Receiver<Result<Vec<Vec<f32>>>>>) {
    let one = |text: &&str| {
        let (answer, answered) = oneshot::channel();
        let work = Work::Embed(embedder(), Kind::Query);
        (Task { work, urgency: Urgency::Bulk, texts: vec![text.to_string()], answer }, answered)
    };
    texts.iter().map(one).unzip()
}

#[test]
fn questions_of_one_embedder_share_a_pass_and_each_gets_its_own_vector() {
    let (tasks, answers) = waiting_tasks(&["one", "two", "three"]);
    let mut turns = Turns::default();
    for (connection, task) in (0..).zip(tasks) {
        turns.push(Urgency::Query, &Whose { connection, ..Whose::default() }, task);
    }
    let other = Embedder { dimension: 5, ..embedder() };
    let (answer, _unread) = oneshot::channel();
    let work = Work::Embed(other, Kind::Query);
    turns.push(
        Urgency::Query,
        &Whose { connection: 9, ..Whose::default() },
        Task { work, urgency: Urgency::Bulk, texts: vec!["x".into()], answer },
    );
    let together = take(&mut turns).unwrap();
    assert_eq!(together.len(), 3, "another embedder's waits");
    assert_eq!(take(&mut turns).unwrap().len(), 1);
    let shared = shared();
    serve(&shared, together, &|| ());
    let alone =
        |text: &str| attempt(&shared, &Work::Embed(embedder(), Kind::Query), &[text.into()], &|| ()).unwrap();
    for (mut answer, text) in answers.into_iter().zip(["one", "two", "three"]) {
        assert_eq!(answer.try_recv().unwrap().unwrap(), alone(text), "{text}");
    }
    // No more than a piece at once.
    let long = "a word ".repeat(PIECE / 14);
    let (tasks, _answers) = waiting_tasks(&[&long, &long, &long]);
    let mut turns = Turns::default();
    tasks.into_iter().for_each(|task| turns.push(Urgency::Bulk, &Whose::default(), task));
    assert_eq!(take(&mut turns).unwrap().len(), 1);
}

#[test]
fn after_several_questions_the_first_that_comes_waits_a_little_for_as_many_again() {
    let took = Duration::from_micros(800);
    let wait = |answered, waiting| patience(answered, took, waiting);
    // For the next question, and not for more than there were.
    assert_eq!((wait(1, Some(0)), wait(1, Some(1))), (AWAKE, Duration::ZERO));
    assert_eq!((wait(8, Some(0)), wait(8, Some(1)), wait(8, Some(7))), (AWAKE, took / GATHER, took / GATHER));
    assert_eq!(
        (wait(8, Some(8)), wait(8, Some(9)), wait(8, None)),
        (Duration::ZERO, Duration::ZERO, Duration::ZERO)
    );
    // However long the pass was.
    assert_eq!(patience(8, Duration::from_secs(1), Some(1)), AWAKE);
    assert_eq!(patience(1, Duration::from_micros(3), Some(0)), Duration::from_micros(3));
}

#[test]
fn a_question_that_comes_later_does_not_go_ahead_of_questions() {
    for (urgency, is_answered) in [(Urgency::Query, false), (Urgency::Bulk, true)] {
        let shared = shared();
        let (mut tasks, mut answers) = waiting_tasks(&["one", "two", "later"]);
        let later = tasks.pop().unwrap();
        for task in &mut tasks {
            task.urgency = urgency;
            // Pauses come between groups of texts: there is one of each thread's.
            task.work = Work::Embed(Embedder { id: "pauses".into(), ..embedder() }, Kind::Query);
        }
        shared.loaded.keep(&embedder(), Arc::new(Pauses));
        lock(&shared.queue).turns.push(Urgency::Query, &Whose::default(), later);
        answer(&shared, tasks);
        assert_eq!(answers[2].try_recv().is_ok(), is_answered, "{urgency:?}");
    }
}

/// Pauses once, and fails as an embedder that is called "other".
struct Pauses;

impl local::LocalModel for Pauses {
    fn embed(&self, _: &[String], _: Kind, pause: Pause) -> Result<Vec<Vec<f32>>> {
        pause();
        Err(Error::Embedding { embedder: "other".into(), problem: "none".into() })
    }

    fn max_input_tokens(&self) -> Option<usize> {
        None
    }
}

#[test]
fn an_error_names_the_embedder_that_was_asked_for_whoever_loaded_its_model() {
    let shared = shared();
    shared.loaded.keep(&embedder(), Arc::new(Pauses));
    let asked = Work::Embed(Embedder { id: "mine".into(), ..embedder() }, Kind::Query);
    let Err(Error::Embedding { embedder, .. }) = attempt(&shared, &asked, &["x".into()], &|| ()) else {
        panic!("it has a vector");
    };
    assert_eq!(embedder, "mine");
}

#[test]
fn as_many_threads_compute_as_are_set_and_as_there_are_cores_where_none_is() {
    let cores = std::thread::available_parallelism().unwrap().get();
    for (wanted, expected) in [(3, 3), (1, 1), (0, cores)] {
        let counted = std::thread::spawn(move || {
            let mut counted = (0, None);
            among(wanted, || counted = (rayon::current_num_threads(), rayon::current_thread_index()));
            counted
        });
        // The thread itself is one of them.
        assert_eq!(counted.join().unwrap(), (expected, Some(0)));
    }
    // Whatever was set before, what is computed is the same.
    let models = Models::start(PathBuf::new(), 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let texts = vec!["a word".to_string()];
    let (embedder, whose) = (embedder(), Whose::default());
    let embed = || models.embed(&embedder, Kind::Document, Urgency::Bulk, &whose, texts.clone());
    let first = runtime.block_on(embed()).unwrap();
    for threads in [2, 0, 3] {
        models.set_threads(threads);
        assert_eq!(runtime.block_on(embed()).unwrap(), first);
    }
}
