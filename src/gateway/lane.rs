//! A lane: texts of many requests that wait for one embedder are put together in batches; queries go past them.

use super::asker::Asker;
use super::exchange::{Batch, Line};
use super::protocol::{Spent, Usage};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

/// A request has at most this part of the tokens a minute: by so much a minute may see more.
const TPM_PARTS: u64 = 8;

/// A line with the texts that wait for it.
pub struct Lane {
    line: Line,
    waiting: Mutex<VecDeque<Piece>>,
    filled: Notify,
    used: Mutex<Instant>,
    is_closed: AtomicBool,
}

/// One text of an order.
struct Piece {
    order: Arc<Pending>,
    index: usize,
    text: String,
    tokens: u32,
    spent: Spent,
}

/// An order that has not all its answers.
struct Pending {
    state: Mutex<State>,
}

struct State {
    results: Vec<Option<Result<Vec<f32>>>>,
    left: usize,
    usage: Usage,
    answer: Option<oneshot::Sender<(Vec<Result<Vec<f32>>>, Usage)>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// A lane that is served until it is closed. Call within the runtime.
    pub fn open(line: Line) -> Arc<Lane> {
        let lane = Arc::new(Lane {
            line,
            waiting: Mutex::default(),
            filled: Notify::new(),
            used: Mutex::new(Instant::now()),
            is_closed: AtomicBool::new(false),
        });
        tokio::spawn(serve(Arc::clone(&lane)));
        lane
    }

    /// For one more order.
    pub fn take_up(lane: &Arc<Lane>) -> Arc<Lane> {
        lane.touch();
        Arc::clone(lane)
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Closes a lane that was last used so long ago and has nothing to do; false when it is needed. Nobody may be
    /// given a handle meanwhile.
    pub fn close_if_idle(lane: &Arc<Lane>, idle: Duration) -> bool {
        // Besides the caller's and the lane's own there are those of orders and of batches under way.
        let is_needed = Arc::strong_count(lane) > 2 || lock(&lane.used).elapsed() < idle;
        if !is_needed {
            lane.is_closed.store(true, Ordering::SeqCst);
            lane.filled.notify_one();
        }
        !is_needed
    }

    /// Texts that somebody waits for: past the queue, in a request of their own.
    pub async fn query(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        spent: Spent,
        asker: &Asker,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        let (mut results, mut usage) = (Vec::new(), Usage::default());
        for range in self.batches(&tokens) {
            let Some((_place, may_go)) = asker.unless_gone(self.turn()).await else { break };
            let (texts, tokens) = (&texts[range.clone()], &tokens[range]);
            let prepaid = may_go.then_some(0);
            let batch = Batch { texts, tokens, spent, prepaid, is_of_one: true, asker };
            let (some, part) = self.line.embed(&batch).await;
            results.extend(some);
            usage.add(&part);
        }
        // The client is gone: nobody reads these.
        let gone = || Err(Error::Gateway { problem: "is not waited for".into() });
        results.resize_with(texts.len(), gone);
        self.touch();
        (results, usage)
    }

    /// Waits for a place, and whether a request may go at once, ahead of ingestion; what is under way holds up nobody.
    async fn turn(&self) -> (Option<OwnedSemaphorePermit>, bool) {
        let limits = &self.line.limits;
        let _ahead = limits.query();
        let place = limits.place().await;
        (place, !self.line.blocked() && limits.request().await.is_ok())
    }

    /// What of these texts goes into each request.
    fn batches(&self, tokens: &[u32]) -> Vec<Range<usize>> {
        let (size, most) = (self.batch_size(), self.batch_tokens());
        let (mut batches, mut start, mut held) = (Vec::new(), 0, 0u64);
        for (i, count) in tokens.iter().enumerate() {
            if i > start && (i - start == size || held + u64::from(*count) > most) {
                batches.push(start..i);
                (start, held) = (i, 0);
            }
            held += u64::from(*count);
        }
        batches.push(start..tokens.len());
        batches
    }

    /// Texts that wait their turn, in requests with those of others.
    pub async fn ingest(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        spent: Spent,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        let (answer, answered) = oneshot::channel();
        let state = State {
            results: texts.iter().map(|_| None).collect(),
            left: texts.len(),
            usage: Usage::default(),
            answer: Some(answer),
        };
        let count = texts.len();
        let order = Arc::new(Pending { state: Mutex::new(state) });
        lock(&self.waiting).extend(
            texts.into_iter().zip(tokens).enumerate().map(|(index, (text, tokens))| Piece {
                order: Arc::clone(&order),
                index,
                text,
                tokens,
                spent,
            }),
        );
        drop(order);
        self.filled.notify_one();
        answered.await.unwrap_or_else(|_| {
            let lost = || Err(Error::Gateway { problem: "lost a batch".into() });
            ((0..count).map(|_| lost()).collect(), Usage::default())
        })
    }

    fn batch_size(&self) -> usize {
        let embedder = &self.line.embedder;
        embedder.config.batch_size.min(self.line.provider.max_batch(embedder)).max(1)
    }

    /// Tokens at most of a request of several texts: no more than the budget of a day, and a small part of `tpm`, for
    /// it is sent all at once.
    fn batch_tokens(&self) -> u64 {
        let remote = &self.line.embedder.config.remote;
        let limits = [
            remote.max_batch_tokens.map(|most| most as u64),
            remote.tpm.map(|most| u64::from(most) / TPM_PARTS),
            remote.daily_token_budget,
        ];
        limits.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Tokens of the batch that would be taken now.
    fn next_tokens(&self) -> u32 {
        let most = self.batch_tokens();
        let waiting = lock(&self.waiting);
        let mut tokens = 0;
        for piece in waiting.iter().filter(|piece| !piece.order.is_gone()).take(self.batch_size()) {
            if tokens > 0 && tokens + u64::from(piece.tokens) > most {
                break;
            }
            tokens += u64::from(piece.tokens);
        }
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The next batch: as many waiting texts as one request may have, but at least one. Texts whose client
    /// is gone are dropped.
    fn take(&self) -> Vec<Piece> {
        let (size, most) = (self.batch_size(), self.batch_tokens());
        let (mut batch, mut tokens) = (Vec::new(), 0);
        let mut waiting = lock(&self.waiting);
        while batch.len() < size {
            let Some(piece) = waiting.front() else { break };
            if piece.order.is_gone() {
                waiting.pop_front();
                continue;
            }
            tokens += u64::from(piece.tokens);
            if !batch.is_empty() && tokens > most {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }
}

/// A lane's loop: one batch after the other, as many at a time as the limits have places. A batch is put
/// together only when it may go, so that it fills while it waits.
async fn serve(lane: Arc<Lane>) {
    loop {
        while lock(&lane.waiting).is_empty() {
            if lane.is_closed.load(Ordering::SeqCst) {
                return;
            }
            lane.filled.notified().await;
        }
        let limits = &lane.line.limits;
        limits.after_queries().await;
        // A long pause is not waited for: the exchange reports it. No place is held while waiting, or a query would
        // wait, too.
        let mut prepaid = None;
        if !lane.line.blocked() && limits.request().await.is_ok() {
            let tokens = lane.next_tokens();
            limits.tokens(tokens).await;
            prepaid = Some(tokens);
        }
        let Some(place) = limits.place().await else { return };
        let batch = lane.take();
        if batch.is_empty() {
            continue;
        }
        let lane = Arc::clone(&lane);
        tokio::spawn(async move {
            send(&lane.line, batch, prepaid).await;
            lane.touch();
            drop(place);
        });
    }
}

async fn send(line: &Line, batch: Vec<Piece>, prepaid: Option<u32>) {
    let mut texts = Vec::with_capacity(batch.len());
    let mut places = Vec::with_capacity(batch.len());
    let spent = batch.iter().map(|piece| piece.spent).max().unwrap_or_default();
    for piece in batch {
        texts.push(piece.text);
        places.push((piece.order, piece.index, piece.tokens));
    }
    let tokens: Vec<u32> = places.iter().map(|(_, _, tokens)| *tokens).collect();
    let is_of_one = places.windows(2).all(|two| Arc::ptr_eq(&two[0].0, &two[1].0));
    // What is sent for a worker is of use though that is gone, and of several clients one may be.
    let asker = &Asker::default();
    let batch = Batch { texts: &texts, tokens: &tokens, spent, prepaid, is_of_one, asker };
    let (results, usage) = line.embed(&batch).await;
    let estimated: u128 = tokens.iter().map(|n| u128::from(*n)).sum::<u128>().max(1);
    let (mut weight, mut given) = (0, 0);
    // Requests are counted once, with the batch's first order; tokens as the texts' share.
    let mut whole = Usage { texts: 0, tokens: 0, ..usage };
    for ((order, index, tokens), result) in places.into_iter().zip(results) {
        // Of the sum so far, so that nothing is lost in rounding.
        weight += u128::from(tokens);
        let due = (u128::from(usage.tokens) * weight / estimated) as u64;
        let share = due - std::mem::replace(&mut given, due);
        let texts = u64::from(result.is_ok());
        let part = Usage { texts, tokens: share, ..std::mem::take(&mut whole) };
        order.settle(index, result, &part);
    }
}

impl Pending {
    fn is_gone(&self) -> bool {
        lock(&self.state).answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Takes one text's answer; with the last the order is answered.
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
