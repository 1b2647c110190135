//! Tests how requests share models, with the model that needs no files.

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

/// The order of answers to four bulk calls of two connections, an ingestion and a question, all of which wait
/// when the model begins.
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
    // Ingestion gets its share, and a question waits for one or two pieces.
    assert_eq!(order[2..], ["bulk"; 4], "{order:?}");
}

#[test]
fn questions_between_two_groups_are_limited_by_aging() {
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
    // At most a piece at once.
    let long = "a word ".repeat(PIECE / 14);
    let (tasks, _answers) = waiting_tasks(&[&long, &long, &long]);
    let mut turns = Turns::default();
    tasks.into_iter().for_each(|task| turns.push(Urgency::Bulk, &Whose::default(), task));
    assert_eq!(take(&mut turns).unwrap().len(), 1);
}

#[test]
fn after_a_shared_pass_the_next_question_waits_a_little_for_others() {
    let took = Duration::from_micros(800);
    let wait = |answered, waiting| patience(answered, took, waiting);
    // It waits for the next question, but not for more than there were.
    assert_eq!((wait(1, Some(0)), wait(1, Some(1))), (AWAKE, Duration::ZERO));
    assert_eq!((wait(8, Some(0)), wait(8, Some(1)), wait(8, Some(7))), (AWAKE, took / GATHER, took / GATHER));
    assert_eq!(
        (wait(8, Some(8)), wait(8, Some(9)), wait(8, None)),
        (Duration::ZERO, Duration::ZERO, Duration::ZERO)
    );
    // The wait is limited however long the pass was.
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
            // Pauses come between groups of texts, of which each thread has one.
            task.work = Work::Embed(Embedder { id: "pauses".into(), ..embedder() }, Kind::Query);
        }
        shared.loaded.keep(&embedder(), Arc::new(Pauses));
        lock(&shared.queue).turns.push(Urgency::Query, &Whose::default(), later);
        answer(&shared, tasks);
        assert_eq!(answers[2].try_recv().is_ok(), is_answered, "{urgency:?}");
    }
}

/// Pauses once, and fails like an embedder named "other".
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
fn an_error_names_the_requested_embedder_whoever_loaded_its_model() {
    let shared = shared();
    shared.loaded.keep(&embedder(), Arc::new(Pauses));
    let asked = Work::Embed(Embedder { id: "mine".into(), ..embedder() }, Kind::Query);
    let Err(Error::Embedding { embedder, .. }) = attempt(&shared, &asked, &["x".into()], &|| ()) else {
        panic!("it has a vector");
    };
    assert_eq!(embedder, "mine");
}

#[test]
fn the_number_of_threads_is_the_setting_or_the_number_of_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    for (wanted, expected) in [(3, 3), (1, 1), (0, cores)] {
        let counted = std::thread::spawn(move || {
            let mut counted = (0, None);
            among(wanted, || counted = (rayon::current_num_threads(), rayon::current_thread_index()));
            counted
        });
        // The thread itself counts.
        assert_eq!(counted.join().unwrap(), (expected, Some(0)));
    }
    // Results do not depend on earlier settings.
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
