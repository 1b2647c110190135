//! Counts what is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counting.
pub struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    ALLOCATED.fetch_add(bytes, Relaxed);
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(held, Relaxed);
}

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Relaxed);
        add(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// What a call allocated in all, and held at its most, in bytes.
pub fn of<T>(call: impl FnOnce() -> T) -> (T, usize, usize) {
    let (allocated, held) = (ALLOCATED.load(Relaxed), HELD.load(Relaxed));
    MOST.store(held, Relaxed);
    let result = call();
    (result, ALLOCATED.load(Relaxed) - allocated, MOST.load(Relaxed).saturating_sub(held))
}
