//! A queue for one model, which combines waiting texts of many requests into batches. Questions bypass it.

use super::super::cancellation::CancellationToken;
use super::super::endpoint::budget::{Spent, part_of_day};
use super::super::endpoint::call::CallError;
use super::super::endpoint::usage::Usage;
use super::super::frame::MAX_TEXTS;
use super::super::request_memory::Reservation;
use super::super::turns::{Turns, Urgency, Whose};
use super::remote_model::{Batch, RemoteModel, cancelled};
use kb_types::error::{Error, Result};
use kb_types::sync::lock;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A call has at most `tpm` divided by this. It is sent at once, so that a minute may exceed `tpm` by this
/// much.
const TPM_PARTS: u64 = 8;

/// A vector or an error for each text, in order.
type Results = Vec<Result<Vec<f32>>>;

/// A model and the texts that wait for it.
pub struct Queue {
    model: RemoteModel,
    waiting: Mutex<Turns<WaitingText>>,
    filled: Notify,
    used: Mutex<Instant>,
    is_closed: AtomicBool,
}

/// Describes who waits for vectors.
#[derive(Debug, Clone)]
pub struct Requester {
    pub urgency: Urgency,
    pub whose: Whose,
    /// Whether the texts belong to several tenants.
    pub is_shared: bool,
    pub spent: Spent,
    pub cancellation: CancellationToken,
    /// The memory of the request, which is kept as long as any of its texts.
    pub _reservation: Option<Arc<Reservation>>,
}

/// One text of a request.
struct WaitingText {
    request: Arc<PendingRequest>,
    index: usize,
    text: String,
    tokens: u32,
}

/// A request that waits for results.
struct PendingRequest {
    requester: Requester,
    state: Mutex<QueueState>,
}

struct QueueState {
    results: Vec<Option<Result<Vec<f32>>>>,
    left: usize,
    usage: Usage,
    answer: Option<oneshot::Sender<(Results, Usage)>>,
}

impl Queue {
    /// Opens a queue, which is served until it is closed. Must be called within the runtime.
    pub fn open(model: RemoteModel) -> Arc<Queue> {
        let queue = Arc::new(Queue {
            model,
            waiting: Mutex::default(),
            filled: Notify::new(),
            used: Mutex::new(Instant::now()),
            is_closed: AtomicBool::new(false),
        });
        tokio::spawn(serve(Arc::clone(&queue)));
        queue
    }

    /// Another handle for a request.
    pub fn handle(queue: &Arc<Queue>) -> Arc<Queue> {
        queue.touch();
        Arc::clone(queue)
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Closes a queue that has been idle for this long. Returns false if it is needed. The caller must hold
    /// the lock under which handles are given out.
    pub fn close_if_idle(queue: &Arc<Queue>, idle: Duration) -> bool {
        // Other handles belong to requests and to batches in flight.
        let is_needed = Arc::strong_count(queue) > 2 || lock(&queue.used).elapsed() < idle;
        if !is_needed {
            queue.is_closed.store(true, Ordering::SeqCst);
            queue.filled.notify_one();
        }
        !is_needed
    }

    /// Embeds a question in a call of its own, which bypasses the queue.
    pub async fn ask(&self, texts: Vec<String>, tokens: Vec<u32>, requester: &Requester) -> (Results, Usage) {
        let (mut results, mut usage) = (Vec::new(), Usage::default());
        let Requester { urgency, whose, spent, cancellation, .. } = requester;
        let endpoint = &self.model.endpoint;
        for range in self.batches(&tokens) {
            let (texts, tokens) = (&texts[range.clone()], &tokens[range]);
            let estimate = tokens.iter().map(|n| u64::from(*n)).sum();
            if let Err(error) = endpoint.reserve_of_tenant(whose, estimate, *spent) {
                let error = self.model.error(error);
                results.extend(texts.iter().map(|_| Err(error.clone())));
                continue;
            }
            let batch = Batch {
                texts,
                tokens,
                spent: *spent,
                admitted: None,
                is_of_one: true,
                urgency: *urgency,
                whose,
                cancellation,
            };
            let (some, part) = self.model.embed(&batch).await;
            endpoint.spend_of_tenant(whose, part.tokens, estimate);
            results.extend(some);
            usage.add(&part);
        }
        self.touch();
        (results, usage)
    }

    /// Waits in turn until the rate allows a request. Returns false if nothing may be sent for long, in which
    /// case the call reports why.
    async fn admit(&self, urgency: Urgency, whose: &Whose) -> bool {
        let endpoint = &self.model.endpoint;
        !endpoint.is_open() && endpoint.limits.request(urgency, whose).await.is_ok()
    }

    /// Divides texts into calls.
    fn batches(&self, tokens: &[u32]) -> Vec<Range<usize>> {
        let (size, most) = (self.model.max_batch(), self.batch_tokens());
        let (mut batches, mut start, mut sum) = (Vec::new(), 0, 0u64);
        for (i, count) in tokens.iter().enumerate() {
            if i > start && (i - start == size || sum + u64::from(*count) > most) {
                batches.push(start..i);
                (start, sum) = (i, 0);
            }
            sum += u64::from(*count);
        }
        batches.push(start..tokens.len());
        batches
    }

    /// Puts texts into the queue, where they share batches with other requests, and waits for their results.
    pub async fn wait(&self, texts: Vec<String>, tokens: Vec<u32>, requester: Requester) -> (Results, Usage) {
        if texts.is_empty() {
            return (Vec::new(), Usage::default());
        }
        let (answer, answered) = oneshot::channel();
        let state = QueueState {
            results: texts.iter().map(|_| None).collect(),
            left: texts.len(),
            usage: Usage::default(),
            answer: Some(answer),
        };
        let count = texts.len();
        let request = Arc::new(PendingRequest { requester, state: Mutex::new(state) });
        {
            let mut waiting = lock(&self.waiting);
            for (index, (text, tokens)) in texts.into_iter().zip(tokens).enumerate() {
                let text = WaitingText { request: Arc::clone(&request), index, text, tokens };
                waiting.push(request.requester.urgency, &request.requester.whose, text);
            }
        }
        drop(request);
        self.filled.notify_one();
        answered.await.unwrap_or_else(|_| {
            let lost = || Err(Error::Gateway { problem: "lost a batch".into() });
            ((0..count).map(|_| lost()).collect(), Usage::default())
        })
    }

    /// The most tokens of a call with several texts: the budget of a day, or a small part of `tpm`.
    fn batch_tokens(&self) -> u64 {
        let configuration = &self.model.endpoint.configuration;
        let limits = [
            self.model.embedder.config.remote.max_batch_tokens.map(|most| most as u64),
            configuration.tpm.map(|most| u64::from(most) / TPM_PARTS),
            configuration.daily_token_budget.map(|most| part_of_day(most, Urgency::Ingest)),
        ];
        limits.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Adds waiting texts to a batch, up to the limits of a call but at least one. Texts whose client has
    /// left, or whose tenant has used its share, get an error.
    fn fill(&self, batch: &mut Vec<WaitingText>) {
        let (size, most) = (self.model.max_batch(), self.batch_tokens());
        let mut tokens: u64 = batch.iter().map(|text| u64::from(text.tokens)).sum();
        let mut bytes: usize = batch.iter().map(|text| text.text.len()).sum();
        while batch.len() < size {
            let fits = |text: &WaitingText| {
                batch.is_empty()
                    || text.request.is_cancelled()
                    || tokens + u64::from(text.tokens) <= most && bytes + text.text.len() <= MAX_TEXTS
            };
            let Some(text) = lock(&self.waiting).pop_if(fits) else { break };
            let Requester { whose, spent, .. } = &text.request.requester;
            let reserved = match text.request.is_cancelled() {
                true => Err(CallError::Cancelled),
                false => self.model.endpoint.reserve_of_tenant(whose, u64::from(text.tokens), *spent),
            };
            if let Err(error) = reserved {
                text.request.settle(text.index, Err(self.model.error(error)), &Usage::default());
                continue;
            }
            tokens += u64::from(text.tokens);
            bytes += text.text.len();
            batch.push(text);
        }
    }

    /// Removes the texts whose client has left from a batch.
    fn drop_cancelled(&self, batch: &mut Vec<WaitingText>) {
        for text in batch.extract_if(.., |text| text.request.is_cancelled()) {
            let whose = &text.request.requester.whose;
            self.model.endpoint.spend_of_tenant(whose, 0, u64::from(text.tokens));
            text.request.settle(text.index, Err(cancelled()), &Usage::default());
        }
    }
}

/// The loop of a queue. It sends batch after batch, as many at a time as the limits allow. A batch fills
/// while it waits.
async fn serve(queue: Arc<Queue>) {
    loop {
        while lock(&queue.waiting).is_empty() {
            if queue.is_closed.load(Ordering::SeqCst) {
                return;
            }
            queue.filled.notified().await;
        }
        let mut batch = Vec::new();
        queue.fill(&mut batch);
        let Some(first) = batch.first() else { continue };
        let Requester { urgency, whose, .. } = first.request.requester.clone();
        let limits = &queue.model.endpoint.limits;
        // A long pause is not waited for, and the call reports it. No place is held while waiting.
        let mut admitted = None;
        if queue.admit(urgency, &whose).await {
            queue.fill(&mut batch);
            let tokens = batch.iter().map(|text| u64::from(text.tokens)).sum::<u64>();
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            limits.tokens(tokens, urgency, &whose).await;
            admitted = Some(tokens);
        }
        let place = limits.place(urgency, &whose).await;
        if !limits.has_token_rate() {
            queue.fill(&mut batch);
        }
        queue.drop_cancelled(&mut batch);
        if batch.is_empty() {
            continue;
        }
        let queue = Arc::clone(&queue);
        tokio::spawn(async move {
            send(&queue.model, batch, admitted, urgency, &whose).await;
            queue.touch();
            drop(place);
        });
    }
}

/// Sends a batch in the turn of its first text, and distributes the results.
async fn send(
    model: &RemoteModel,
    batch: Vec<WaitingText>,
    admitted: Option<u32>,
    urgency: Urgency,
    whose: &Whose,
) {
    let mut texts = Vec::with_capacity(batch.len());
    let mut origins = Vec::with_capacity(batch.len());
    let spent = batch.iter().map(|text| text.request.requester.spent).max().unwrap_or_default();
    for text in batch {
        texts.push(text.text);
        origins.push((text.request, text.index, text.tokens));
    }
    let tokens: Vec<u32> = origins.iter().map(|(_, _, tokens)| *tokens).collect();
    let is_of_one = origins.windows(2).all(|two| Arc::ptr_eq(&two[0].0, &two[1].0))
        && origins.iter().all(|(request, _, _)| !request.requester.is_shared);
    let clients = origins.iter().map(|(request, _, _)| &request.requester.cancellation);
    let cancellation = &CancellationToken::of_all(clients);
    let batch =
        Batch { texts: &texts, tokens: &tokens, spent, admitted, is_of_one, urgency, whose, cancellation };
    let (results, usage) = model.embed(&batch).await;
    // A text that was counted as 0 tokens also gets a share.
    let estimated: u128 = tokens.iter().map(|n| u128::from((*n).max(1))).sum();
    let (mut weight, mut given) = (0, 0);
    // Requests are booked once, with the first text of the batch, and tokens in proportion to the texts.
    let mut whole = Usage { texts: 0, tokens: 0, ..usage };
    for ((request, index, tokens), result) in origins.into_iter().zip(results) {
        // Shares are differences of running sums, so that rounding loses nothing.
        weight += u128::from(tokens.max(1));
        let due = (u128::from(usage.tokens) * weight / estimated) as u64;
        let share = due - std::mem::replace(&mut given, due);
        model.endpoint.spend_of_tenant(&request.requester.whose, share, u64::from(tokens));
        let texts = u64::from(result.is_ok());
        let part = Usage { texts, tokens: share, ..std::mem::take(&mut whole) };
        request.settle(index, result, &part);
    }
}

impl PendingRequest {
    fn is_cancelled(&self) -> bool {
        self.requester.cancellation.is_cancelled()
    }

    /// Stores the result of a text. The last result answers the request.
    fn settle(&self, index: usize, result: Result<Vec<f32>>, usage: &Usage) {
        let mut state = lock(&self.state);
        state.usage.add(usage);
        state.left = state.left.saturating_sub(1);
        if let Some(place) = state.results.get_mut(index) {
            *place = Some(result);
        }
        if state.left == 0
            && let Some(answer) = state.answer.take()
        {
            let lost = || Err(Error::Internal("a text was not answered".into()));
            let results = std::mem::take(&mut state.results);
            let results = results.into_iter().map(|result| result.unwrap_or_else(lost)).collect();
            let _ = answer.send((results, state.usage));
        }
    }
}
