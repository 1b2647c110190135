//! The cost of a piece of work, measured by an allocator that counts for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn note(allocations: usize, bytes: isize) {
    COUNT.set(COUNT.get() + allocations);
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: the system's allocator does the work; counting changes only numbers of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as isize);
        // SAFETY: the caller guarantees it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, -(layout.size() as isize));
        // SAFETY: the caller guarantees it.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as isize - layout.size() as isize);
        // SAFETY: the caller guarantees it.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The cost of one piece of work, on the thread that did it.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub allocations: usize,
    /// The most bytes that were held at the same time.
    pub bytes: usize,
    /// Processor time, not elapsed time.
    pub seconds: f64,
}

/// The permitted cost of an input, and of each of its bytes.
pub struct Limits {
    pub bytes: (usize, usize),
    pub allocations: (usize, usize),
}

/// The most processor time that an input may take, on the slowest machine and build.
const SECONDS: f64 = 20.0;

pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (count, live) = (COUNT.get(), LIVE.get());
    PEAK.set(live);
    let begun = processor_seconds();
    let result = work();
    let cost = Cost {
        allocations: COUNT.get() - count,
        bytes: usize::try_from(PEAK.get() - live).unwrap_or(0),
        seconds: processor_seconds() - begun,
    };
    (result, cost)
}

impl Cost {
    /// Fails if work on `size` bytes cost more than is permitted.
    #[track_caller]
    pub fn within(&self, limits: &Limits, size: usize) {
        let bytes = limits.bytes.0 + limits.bytes.1 * size;
        let allocations = limits.allocations.0 + limits.allocations.1 * size;
        assert!(self.bytes <= bytes, "{size} bytes of input took {self:?}, over {bytes} bytes");
        assert!(
            self.allocations <= allocations,
            "{size} bytes of input took {self:?}, over {allocations} allocations"
        );
        assert!(self.seconds <= SECONDS, "{size} bytes of input took {self:?}");
    }
}

fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the variable is ours, and every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
