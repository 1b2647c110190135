//! Counts what a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    /// This may be below zero, because a thread frees memory that another allocated.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    ALLOCATED.set(ALLOCATED.get() + bytes);
    HELD.set(HELD.get() + bytes as isize);
    MOST.set(MOST.get().max(HELD.get()));
}

fn take(bytes: usize) {
    HELD.set(HELD.get() - bytes as isize);
}

// SAFETY: every call is the system allocator's own; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller guarantees it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: the caller guarantees it.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(layout.size());
        add(size);
        // SAFETY: the caller guarantees it.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Memory of a call, in bytes but for the first.
#[derive(Debug)]
#[allow(dead_code)] // Not every program reads all of it.
pub struct Spent {
    pub allocations: usize,
    /// In all.
    pub allocated: usize,
    /// At the same time, at most.
    pub held: usize,
}

pub fn measure<T>(call: impl FnOnce() -> T) -> (T, Spent) {
    let (allocations, allocated, held) = (ALLOCATIONS.get(), ALLOCATED.get(), HELD.get());
    MOST.set(held);
    let result = call();
    let spent = Spent {
        allocations: ALLOCATIONS.get() - allocations,
        allocated: ALLOCATED.get() - allocated,
        held: (MOST.get() - held).max(0) as usize,
    };
    (result, spent)
}
