//! The cost of a piece of work: memory, allocations and processor time of the thread that did it.

#[path = "../cost/memory.rs"]
mod counting;
#[path = "../cost/time.rs"]
mod time;

use counting::Spent;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Processor time that an input may take at most, on the slowest machine and build.
const TIME: Duration = Duration::from_secs(20);

/// The permitted cost of an input, and of each of its bytes.
pub struct Limits {
    pub bytes: (usize, usize),
    pub allocations: (usize, usize),
}

#[derive(Debug)]
pub struct Cost {
    spent: Spent,
    time: Duration,
}

pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let begun = time::spent();
    let (result, spent) = counting::measure(work);
    (result, Cost { spent, time: time::spent() - begun })
}

impl Cost {
    /// Fails if work on `size` bytes cost more than is permitted.
    #[track_caller]
    pub fn within(&self, limits: &Limits, size: usize) {
        let most = |(once, each): (usize, usize)| once + each * size;
        assert!(
            self.spent.held <= most(limits.bytes)
                && self.spent.allocations <= most(limits.allocations)
                && self.time <= TIME,
            "{size} bytes of input took {self:?}, over {} bytes, {} allocations or {TIME:?}",
            most(limits.bytes),
            most(limits.allocations)
        );
    }
}
