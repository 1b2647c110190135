//! A rate: a token bucket that fills steadily, and a queue of waiters, the most urgent first.
//!
//! Within a class of urgency clients take turns. A class that waits while more urgent ones take is owed a
//! part of what they take ([`FLOOR`]). Once that covers the need of its next waiter, this one goes first. A
//! long import therefore delays questions by no more than that part, and an endless stream of questions does
//! not stop an import. Debts are counted in amounts and not in turns, because a batch takes as much as
//! hundreds of questions (as in deficit round robin; Shreedhar, Varghese, 1995).

use super::super::turns::{Turns, Urgency, Whose};
use kb_types::sync::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Buckets fill at this part of the rate and hold at most the rest, so that no minute, wherever it begins,
/// exceeds the rate.
const FILL: f64 = 0.985;
/// Of every ten parts taken while a less urgent class waits, that class gets one.
const FLOOR: f64 = 9.0;
/// A tolerance, because sums of parts are not exact.
const NEARLY: f64 = 1e-6;

/// The bucket and its queue. `T` notifies a waiter of its turn.
struct Bucket<T> {
    per_second: f64,
    /// The most that the bucket holds unless somebody waits for more.
    burst: f64,
    level: f64,
    at: Instant,
    /// By urgency.
    classes: [UrgencyClass<T>; 3],
}

struct UrgencyClass<T> {
    waiting: Turns<(u32, T)>,
    /// The part of what more urgent classes took that this class is owed; see [`FLOOR`].
    owed: f64,
}

impl<T> UrgencyClass<T> {
    /// The need of its next waiter.
    fn need(&self) -> Option<f64> {
        self.waiting.peek().map(|(count, _)| f64::from(*count))
    }
}

impl<T> Bucket<T> {
    fn new(per_minute: u32, now: Instant) -> Bucket<T> {
        let burst = (1.0 + f64::from(per_minute) * (1.0 - FILL) / 2.0).floor();
        let class = || UrgencyClass { waiting: Turns::default(), owed: 0.0 };
        Bucket {
            per_second: f64::from(per_minute.max(1)) * FILL / 60.0,
            burst,
            level: burst,
            at: now,
            classes: [class(), class(), class()],
        }
    }

    fn push(&mut self, count: u32, urgency: Urgency, whose: &Whose, waiter: T) {
        self.classes[urgency as usize].waiting.push(urgency, whose, (count, waiter));
    }

    /// The class whose turn it is: the least urgent that is owed what it needs, or else the most urgent that
    /// waits.
    fn next(&self) -> Option<usize> {
        let is_due = |class: &UrgencyClass<T>| class.need().is_some_and(|need| class.owed + NEARLY >= need);
        let waits = |class: &UrgencyClass<T>| class.need().is_some();
        self.classes.iter().rposition(is_due).or_else(|| self.classes.iter().position(waits))
    }

    /// Takes from the bucket for the waiters whose turn it is, as far as it suffices. Returns these, and the
    /// time until the next one. Waiters that have left are skipped.
    fn advance(&mut self, now: Instant, has_left: impl Fn(&T) -> bool) -> (Vec<T>, Option<Duration>) {
        for class in &mut self.classes {
            while class.waiting.pop_if(|(_, waiter)| has_left(waiter)).is_some() {}
        }
        // The bucket can hold the largest need, because a batch may need more than a burst.
        let most = self.classes.iter().filter_map(UrgencyClass::need).fold(self.burst, f64::max);
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + self.per_second * elapsed).min(most);
        self.at = self.at.max(now);
        let mut granted = Vec::new();
        while let Some(next) = self.next() {
            let need = self.classes[next].need().unwrap_or_default();
            if self.level + NEARLY < need {
                let wait = Duration::from_secs_f64((need - self.level) / self.per_second);
                return (granted, Some(wait));
            }
            let Some((_, waiter)) = self.classes[next].waiting.pop() else { break };
            self.level = (self.level - need).max(0.0);
            self.classes[next].owed = 0.0;
            for class in self.classes[next + 1..].iter_mut().filter(|class| class.need().is_some()) {
                class.owed += need / FLOOR;
            }
            while self.classes[next].waiting.pop_if(|(_, waiter)| has_left(waiter)).is_some() {}
            granted.push(waiter);
        }
        self.level = self.level.min(self.burst);
        (granted, None)
    }
}

pub struct Rate {
    bucket: Mutex<Bucket<oneshot::Sender<()>>>,
    /// Is notified when somebody has taken or left, because the next turn may then be earlier than expected.
    changed: Notify,
}

impl Rate {
    pub fn new(per_minute: u32) -> Rate {
        Rate { bucket: Mutex::new(Bucket::new(per_minute, Instant::now())), changed: Notify::new() }
    }

    /// Waits in turn until this much may be used. If dropped earlier, it uses nothing.
    pub async fn take(&self, count: u32, urgency: Urgency, whose: &Whose) {
        if count == 0 {
            return;
        }
        let (give, given) = oneshot::channel();
        lock(&self.bucket).push(count, urgency, whose, give);
        let mut turn = Turn { rate: self, count, given };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let wait = self.advance();
            tokio::select! {
                biased;
                _ = &mut turn.given => return,
                () = changed => {}
                () = tokio::time::sleep(wait.unwrap_or_default()) => {}
            }
        }
    }

    /// Notifies the waiters whose turn it is, and returns the time until the next turn.
    fn advance(&self) -> Option<Duration> {
        let mut bucket = lock(&self.bucket);
        let (granted, wait) = bucket.advance(Instant::now(), oneshot::Sender::is_closed);
        if !granted.is_empty() {
            self.changed.notify_waiters();
        }
        for give in granted {
            // A receiver is only closed under the lock.
            let _ = give.send(());
        }
        wait
    }
}

/// A place in the queue of a rate, which is given up when this is dropped.
struct Turn<'a> {
    rate: &'a Rate,
    count: u32,
    given: oneshot::Receiver<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut bucket = lock(&self.rate.bucket);
        self.given.close();
        // The amount was granted, but the waiter did not learn of it.
        if self.given.try_recv().is_ok() {
            bucket.level += f64::from(self.count);
        }
        self.rate.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Urgency::{Bulk, Ingest, Query};

    /// A bucket with a simulated clock, whose waiters are names.
    struct Clock {
        bucket: Bucket<&'static str>,
        begun: Instant,
        left: Vec<&'static str>,
        /// The whole second at which each got its turn.
        came: Vec<(&'static str, u64)>,
    }

    impl Clock {
        /// An empty bucket that fills by one a second.
        fn new() -> Clock {
            let begun = Instant::now();
            let mut bucket = Bucket::new(60, begun);
            (bucket.per_second, bucket.level) = (1.0, 0.0);
            Clock { bucket, begun, left: Vec::new(), came: Vec::new() }
        }

        fn push(&mut self, name: &'static str, urgency: Urgency, count: u32) {
            self.bucket.push(count, urgency, &Whose::default(), name);
        }

        fn advance(&mut self, second: u64) -> Option<u64> {
            let left = &self.left;
            let now = self.begun + Duration::from_secs(second);
            let (granted, wait) = self.bucket.advance(now, |name| left.contains(name));
            self.came.extend(granted.into_iter().map(|name| (name, second)));
            wait.map(|wait| wait.as_secs_f64().ceil() as u64)
        }

        /// Runs the clock until this second, sleeping as told.
        fn run(&mut self, mut second: u64, until: u64) {
            while let Some(wait) = self.advance(second) {
                second += wait.max(1);
                if second > until {
                    return;
                }
            }
        }
    }

    #[test]
    fn no_minute_exceeds_the_rate_and_a_long_run_nearly_reaches_it() {
        // What a full bucket and a minute of filling allow, by the bucket's own figures.
        for per_minute in [1, 2, 59, 60, 133, 134, 600, 3000, 100_000] {
            let bucket = Bucket::<()>::new(per_minute, Instant::now());
            let in_a_minute = (bucket.per_second * 60.0).floor() + bucket.burst;
            let per_minute = f64::from(per_minute);
            assert!(in_a_minute <= per_minute.max(1.0), "{per_minute}: {in_a_minute}");
            assert!(bucket.per_second * 60.0 >= per_minute * 0.97, "{per_minute}");
        }
    }

    #[test]
    fn a_question_takes_what_a_batch_has_waited_for() {
        let mut clock = Clock::new();
        clock.push("batch", Ingest, 40);
        assert_eq!(clock.advance(0), Some(40));
        assert_eq!(clock.advance(30), Some(10));
        // The bucket has 30 by now, of which the question needs 5.
        clock.push("question", Query, 5);
        assert_eq!(clock.advance(30), Some(15));
        clock.push("second", Query, 35);
        assert_eq!(clock.advance(30), Some(10), "what is next is the question, not the batch");
        clock.run(30, 100);
        assert_eq!(clock.came, [("question", 30), ("second", 40), ("batch", 80)]);
    }

    #[test]
    fn questions_go_first_then_bulk_calls_then_ingestion_whoever_came_first() {
        let mut clock = Clock::new();
        for (name, urgency) in [("i", Ingest), ("j", Ingest), ("b", Bulk), ("q", Query), ("r", Query)] {
            clock.push(name, urgency, 1);
        }
        clock.run(0, 100);
        assert_eq!(clock.came, [("q", 1), ("r", 2), ("b", 3), ("i", 4), ("j", 5)]);
        // The same if all get their turn at once, as after a long sleep of the machine.
        let mut clock = Clock::new();
        for (name, urgency) in [("i", Ingest), ("b", Bulk), ("q", Query)] {
            clock.push(name, urgency, 30);
        }
        clock.bucket.level = 90.0;
        clock.bucket.burst = 90.0;
        clock.advance(0);
        assert_eq!(clock.came, [("q", 0), ("b", 0), ("i", 0)]);
    }

    #[test]
    fn endless_questions_leave_one_part_in_ten_to_each_waiting_class() {
        for (urgency, count) in [(Ingest, 1), (Ingest, 40), (Bulk, 1), (Bulk, 40)] {
            let mut clock = Clock::new();
            for _ in 0..400 {
                clock.push("waits", urgency, count);
            }
            for _ in 0..4000 {
                clock.push("q", Query, 1);
            }
            clock.run(0, 4000);
            let others = clock.came.iter().filter(|(name, _)| *name == "waits").count() as u32 * count;
            assert!((360..=400).contains(&others), "{urgency:?} {count}: {others}");
            // The first question does not wait, and no two of the others are adjacent.
            assert_eq!(clock.came[0], ("q", 1));
            let mut two = clock.came.windows(2);
            assert!(two.all(|two| two[0].0 == "q" || two[1].0 == "q"), "{urgency:?} {count}");
        }
        let mut clock = Clock::new();
        for (name, urgency) in [("q", Query), ("b", Bulk), ("i", Ingest)] {
            (0..1000).for_each(|_| clock.push(name, urgency, 1));
        }
        clock.run(0, 1000);
        let count = |name| clock.came.iter().filter(|came| came.0 == name).count();
        assert!(count("q") >= 800 && count("b") >= 85 && count("i") >= 85, "{:?}", clock.came);
    }

    #[test]
    fn a_waiter_that_leaves_gives_its_turn_back() {
        let mut clock = Clock::new();
        clock.push("gone", Query, 100);
        clock.push("batch", Ingest, 10);
        assert_eq!(clock.advance(5), Some(95));
        clock.left.push("gone");
        assert_eq!(clock.advance(5), Some(5));
        clock.run(5, 100);
        assert_eq!(clock.came, [("batch", 10)]);
        // The amount that was held for it is not left over.
        assert_eq!(clock.bucket.level, 0.0);
        clock.advance(100);
        assert_eq!(clock.bucket.level, clock.bucket.burst);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn a_question_that_is_cancelled_lets_the_next_go_and_uses_nothing() {
        runtime().block_on(async {
            let rate = Rate::new(60);
            let whose = Whose::default();
            {
                // The first needs a day's worth, and the one after it needs what is there.
                let mut gone = Box::pin(rate.take(86_400, Query, &whose));
                let mut batch = Box::pin(rate.take(1, Ingest, &whose));
                tokio::select! {
                    biased;
                    () = &mut gone => panic!("there is not so much"),
                    () = &mut batch => panic!("it went ahead of the question"),
                    () = tokio::task::yield_now() => {}
                }
                drop(gone);
                batch.await;
            }
            // One that was granted and is dropped before it learns of it.
            lock(&rate.bucket).level = 0.0;
            let mut granted = Box::pin(rate.take(1, Query, &whose));
            tokio::select! {
                biased;
                () = &mut granted => panic!("there is nothing"),
                () = tokio::task::yield_now() => {}
            }
            lock(&rate.bucket).level = 1.0;
            assert_eq!(rate.advance(), None);
            assert!(lock(&rate.bucket).level < 0.5);
            drop(granted);
            assert!(lock(&rate.bucket).level >= 1.0);
        });
    }
}
