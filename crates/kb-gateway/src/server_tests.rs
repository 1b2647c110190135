//! Tests of the cache of questions.

use super::*;
use kb_inference::{LocalModel, Pause};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies other settings while it computes its first vector.
struct Changes {
    state: Arc<OnceLock<Arc<ServerState>>>,
    settings: Settings,
    asked: Arc<AtomicUsize>,
}

impl LocalModel for Changes {
    fn embed(&self, texts: &[String], _: Kind, _: Pause) -> Result<Vec<Vec<f32>>> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            self.state.get().unwrap().configure(self.settings.clone());
        }
        Ok(vec![vec![1.0, 0.0]; texts.len()])
    }

    fn max_input_tokens(&self) -> Option<usize> {
        None
    }
}

/// How often the model is used for a question that is asked three times, if these settings come while it
/// answers the first.
fn asked(settings: Settings) -> usize {
    let embedder = Embedder {
        id: "m".into(),
        provider: "hash".into(),
        model: "hash".into(),
        dimension: 2,
        base_url: None,
        config: Default::default(),
    };
    let state = Arc::new(ServerState::new(before()).unwrap());
    let (known, asked) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
    let model =
        || Changes { state: Arc::clone(&known), settings: settings.clone(), asked: Arc::clone(&asked) };
    let _ = known.set(Arc::clone(&state));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        // Another directory drops the model.
        state.models.keep(&embedder, Arc::new(model()));
        let request = EmbedRequest {
            is_shared: false,
            embedder: embedder.clone(),
            access: Default::default(),
            kind: Kind::Query,
            urgency: Urgency::Query,
            texts: vec!["a question".into()],
            tokens: Vec::new(),
            whose: Whose::default(),
            cancellation: CancellationToken::new().1,
            reservation: None,
        };
        runtime.block_on(embed(&state, request, 0)).unwrap();
    }
    asked.load(Ordering::SeqCst)
}

fn before() -> Settings {
    Settings {
        model_dir: "/nonexistent/a".into(),
        model_threads: 1,
        query_cache_size: 10,
        endpoints: Default::default(),
    }
}

#[test]
fn a_question_answered_while_the_model_directory_changes_is_not_cached() {
    assert_eq!(asked(before()), 1, "it is remembered");
    assert_eq!(asked(Settings { query_cache_size: 20, ..before() }), 1, "under other settings, too");
    assert_eq!(asked(Settings { model_dir: "/nonexistent/b".into(), ..before() }), 2);
}
