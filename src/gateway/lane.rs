//! A lane: texts of many requests that wait for one embedder are put together in batches; questions go past them.

use super::asker::Asker;
use super::exchange::{Batch, Line};
use super::frame::MAX_TEXTS;
use super::memory::Held;
use super::protocol::{Spent, Urgency, Usage};
use super::turns::{Place, Turns, Whose};
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A request has at most this part of the tokens a minute: by so much a minute may see more.
const TPM_PARTS: u64 = 8;
/// Bytes at most of the vectors in a provider's answer, as JSON: it is read as a whole.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Characters that a number has as JSON at most.
pub(super) const NUMBER: usize = 32;

/// A line with the texts that wait for it.
pub struct Lane {
    line: Line,
    waiting: Mutex<Turns<Piece>>,
    filled: Notify,
    used: Mutex<Instant>,
    is_closed: AtomicBool,
}

/// Who wants vectors, and what is known of that.
#[derive(Debug, Clone)]
pub struct Wish {
    pub urgency: Urgency,
    pub whose: Whose,
    pub spent: Spent,
    pub asker: Asker,
    /// What it holds in memory.
    pub _held: Option<Arc<Held>>,
}

/// One text of an order.
struct Piece {
    order: Arc<Pending>,
    index: usize,
    text: String,
    tokens: u32,
}

/// An order that has not all its answers.
struct Pending {
    wish: Wish,
    state: Mutex<State>,
}

struct State {
    results: Vec<Option<Result<Vec<f32>>>>,
    left: usize,
    usage: Usage,
    answer: Option<oneshot::Sender<(Vec<Result<Vec<f32>>>, Usage)>>,
}

fn gone() -> Error {
    Error::Gateway { problem: "is not waited for".into() }
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

    /// A question: past the queue, in a request of its own.
    pub async fn query(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        wish: &Wish,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        let (mut results, mut usage) = (Vec::new(), Usage::default());
        let (tenant, asker) = (&wish.whose.tenant, &wish.asker);
        for range in self.batches(&tokens) {
            let (texts, tokens) = (&texts[range.clone()], &tokens[range]);
            let estimate = tokens.iter().map(|n| u64::from(*n)).sum();
            if let Err(error) = self.reserve_share(tenant, estimate, wish.spent) {
                results.extend(texts.iter().map(|_| Err(error.clone())));
                continue;
            }
            let Some((_place, may_go)) = asker.unless_gone(self.turn(wish)).await else {
                self.line.budget.spend_of_tenant(tenant, 0, estimate);
                break;
            };
            let prepaid = may_go.then_some(0);
            let batch = Batch { texts, tokens, spent: wish.spent, prepaid, is_of_one: true, asker };
            let (some, part) = self.line.embed(&batch).await;
            self.line.budget.spend_of_tenant(tenant, part.tokens, estimate);
            results.extend(some);
            usage.add(&part);
        }
        // The client is gone: nobody reads these.
        results.resize_with(texts.len(), || Err(gone()));
        self.touch();
        (results, usage)
    }

    /// Waits for a place, and whether a request may go at once; what is under way holds up nobody.
    async fn turn(&self, wish: &Wish) -> (Place, bool) {
        let limits = &self.line.limits;
        let place = limits.place(wish.urgency, &wish.whose).await;
        let may_go = !self.line.blocked() && limits.request_in_turn(wish.urgency, &wish.whose).await.is_ok();
        (place, may_go)
    }

    /// Takes tokens of what a tenant may spend a day.
    fn reserve_share(&self, tenant: &str, tokens: u64, spent: Spent) -> Result<()> {
        let budget = &self.line.budget;
        let Some(share) = self.line.embedder.config.remote.tenant_budget() else {
            // Counted all the same: another embedder with this key may have a share.
            budget.spend_of_tenant(tenant, tokens, 0);
            return Ok(());
        };
        // 0 holds all until it is raised.
        if share > 0 && tokens > share {
            let problem =
                format!("{tokens} tokens are over the {share} that a tenant may spend a day (tenant_share)");
            return Err(self.line.problem(problem, false));
        }
        budget.reserve_of_tenant(tenant, share, tokens, spent).map_err(|held| Error::Paused {
            embedder: self.line.embedder.id.clone(),
            problem: held.reason,
            retry_after_ms: u64::try_from(held.wait.as_millis()).unwrap_or(u64::MAX),
            of_tenant: true,
        })
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
    pub async fn queue(
        &self,
        texts: Vec<String>,
        tokens: Vec<u32>,
        wish: Wish,
    ) -> (Vec<Result<Vec<f32>>>, Usage) {
        if texts.is_empty() {
            return (Vec::new(), Usage::default());
        }
        let (answer, answered) = oneshot::channel();
        let state = State {
            results: texts.iter().map(|_| None).collect(),
            left: texts.len(),
            usage: Usage::default(),
            answer: Some(answer),
        };
        let count = texts.len();
        let order = Arc::new(Pending { wish, state: Mutex::new(state) });
        {
            let mut waiting = lock(&self.waiting);
            for (index, (text, tokens)) in texts.into_iter().zip(tokens).enumerate() {
                let piece = Piece { order: Arc::clone(&order), index, text, tokens };
                waiting.push(order.wish.urgency, &order.wish.whose, piece);
            }
        }
        drop(order);
        self.filled.notify_one();
        answered.await.unwrap_or_else(|_| {
            let lost = || Err(Error::Gateway { problem: "lost a batch".into() });
            ((0..count).map(|_| lost()).collect(), Usage::default())
        })
    }

    fn batch_size(&self) -> usize {
        let embedder = &self.line.embedder;
        let answer = MAX_ANSWER / (embedder.dimension.max(1) * NUMBER);
        embedder.config.batch_size.min(self.line.provider.max_batch(embedder)).min(answer).max(1)
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

    /// Adds waiting texts to a batch, as many as one request may have, but at least one. Those whose client is gone or
    /// whose tenant has spent its share are answered with that.
    fn fill(&self, batch: &mut Vec<Piece>) {
        let (size, most) = (self.batch_size(), self.batch_tokens());
        let mut tokens: u64 = batch.iter().map(|piece| u64::from(piece.tokens)).sum();
        let mut bytes: usize = batch.iter().map(|piece| piece.text.len()).sum();
        while batch.len() < size {
            let fits = |piece: &Piece| {
                batch.is_empty()
                    || piece.order.is_gone()
                    || tokens + u64::from(piece.tokens) <= most && bytes + piece.text.len() <= MAX_TEXTS
            };
            let Some(piece) = lock(&self.waiting).pop_if(fits) else { break };
            let order = &piece.order;
            let taken = match order.is_gone() {
                true => Err(gone()),
                false => {
                    let wish = &order.wish;
                    self.reserve_share(&wish.whose.tenant, u64::from(piece.tokens), wish.spent)
                }
            };
            if let Err(error) = taken {
                order.settle(piece.index, Err(error), &Usage::default());
                continue;
            }
            tokens += u64::from(piece.tokens);
            bytes += piece.text.len();
            batch.push(piece);
        }
    }

    /// Takes out of a batch those whose client has left since.
    fn drop_gone(&self, batch: &mut Vec<Piece>) {
        for piece in batch.extract_if(.., |piece| piece.order.is_gone()) {
            let tenant = &piece.order.wish.whose.tenant;
            self.line.budget.spend_of_tenant(tenant, 0, u64::from(piece.tokens));
            piece.order.settle(piece.index, Err(gone()), &Usage::default());
        }
    }
}

/// A lane's loop: one batch after the other, as many at a time as the limits have places. A batch fills while it
/// waits.
async fn serve(lane: Arc<Lane>) {
    loop {
        while lock(&lane.waiting).is_empty() {
            if lane.is_closed.load(Ordering::SeqCst) {
                return;
            }
            lane.filled.notified().await;
        }
        let mut batch = Vec::new();
        lane.fill(&mut batch);
        let Some(first) = batch.first() else { continue };
        let Wish { urgency, whose, .. } = first.order.wish.clone();
        let limits = &lane.line.limits;
        // A long pause is not waited for: the exchange reports it. No place is held while waiting, or a query would
        // wait, too.
        let mut prepaid = None;
        if !lane.line.blocked() && limits.request_in_turn(urgency, &whose).await.is_ok() {
            lane.fill(&mut batch);
            let tokens = batch.iter().map(|piece| u64::from(piece.tokens)).sum::<u64>();
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            limits.tokens(tokens).await;
            prepaid = Some(tokens);
        }
        let place = limits.place(urgency, &whose).await;
        if !limits.has_token_rate() {
            lane.fill(&mut batch);
        }
        lane.drop_gone(&mut batch);
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
    let spent = batch.iter().map(|piece| piece.order.wish.spent).max().unwrap_or_default();
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
        line.budget.spend_of_tenant(&order.wish.whose.tenant, share, u64::from(tokens));
        let texts = u64::from(result.is_ok());
        let part = Usage { texts, tokens: share, ..std::mem::take(&mut whole) };
        order.settle(index, result, &part);
    }
}

impl Pending {
    fn is_gone(&self) -> bool {
        self.wish.asker.is_gone() || lock(&self.state).answer.as_ref().is_none_or(oneshot::Sender::is_closed)
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
