//! Distributes the work of a model over threads. For many texts each thread computes some of them, and for
//! few texts each computes some columns of all rows.

use super::Pause;
use kb_types::sync::lock;
use rayon::Yield;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most threads that share a pass, because each of its steps waits for all of them.
const MOST: usize = 4;

/// How many threads may share a pass.
pub fn threads() -> usize {
    rayon::current_num_threads().min(MOST)
}

/// Runs work for this many threads and keeps the other threads awake meanwhile, because the steps of a pass
/// over a short text take less time than waking a thread.
pub fn together<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    awake(threads, LOOKS, work)
}

/// Keeps the other threads awake while this one waits for something. They yield their cores to anybody else
/// at once.
pub fn while_waiting<T: Send>(threads: usize, wait: impl FnOnce() -> T + Send) -> T {
    awake(threads, 0, wait)
}

fn awake<T: Send>(threads: usize, looks: usize, work: impl FnOnce() -> T + Send) -> T {
    if threads < 2 {
        return work();
    }
    let ended = AtomicBool::new(false);
    rayon::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| help(&ended, looks));
        }
        // Also if the work panics.
        let _end = End(&ended);
        work()
    })
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// How often a helper looks for work before it yields its core: a few microseconds, which is the time between
/// two steps.
const LOOKS: usize = 2000;

/// Executes parts of work until the work has ended. Threads take their own newest task and the oldest of
/// others, so helpers start before the parts that they help with, and no thread that waits for a part becomes
/// a helper. If there is no work, it looks `most` times before it yields its core.
fn help(ended: &AtomicBool, most: usize) {
    let mut looks = 0;
    while !ended.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            looks = 0;
        } else if looks < most {
            looks += 1;
            std::hint::spin_loop();
        } else {
            // There may be more threads than idle cores.
            std::thread::yield_now();
        }
    }
}

/// Distributes items over at most `count` shares of about the same cost, none of them empty: the costliest
/// remaining item goes to the share with the least cost (Graham, "Bounds on Multiprocessing Timing
/// Anomalies", 1969).
pub fn evenly<T>(mut all: Vec<T>, count: usize, cost: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    all.sort_by_key(|one| Reverse(cost(one)));
    let mut shares: Vec<(usize, Vec<T>)> = Vec::new();
    shares.resize_with(count.max(1), Default::default);
    for one in all {
        if let Some((sum, share)) = shares.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += cost(&one);
            share.push(one);
        }
    }
    shares.into_iter().map(|(_, share)| share).filter(|share| !share.is_empty()).collect()
}

/// Whether threads that compute these shares separately finish about as soon as if they computed all of them
/// together. If so, they need not wait for each other at every step.
pub fn is_even(costs: impl Iterator<Item = usize>, threads: usize) -> bool {
    let (most, sum) = costs.fold((0, 0), |(most, sum), cost| (most.max(cost), sum + cost));
    most * threads <= sum + sum / 6
}

/// Runs work for each item and returns the results in order. Each of `threads` idle threads takes the next
/// item after a `pause`. Work within a pause may be shared between threads itself, because nothing there
/// waits for parts of this work.
pub fn one_by_one<A: Sync, B: Send>(
    all: &[A],
    threads: usize,
    work: impl Fn(&A) -> B + Sync,
    pause: Pause,
) -> Vec<B> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all.len())));
    let take = || {
        let mut is_first = true;
        loop {
            if !std::mem::take(&mut is_first) {
                pause();
            }
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(n) else { return };
            let result = work(one);
            lock(&done).push((n, result));
        }
    };
    rayon::scope(|scope| {
        (1..threads.min(all.len())).for_each(|_| scope.spawn(|_| take()));
        take();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Lets each thread compute some columns of the rows in `out`, which are `width` wide. The first column of a
/// thread is a multiple of `unit`.
pub fn columns(
    out: &mut [f32],
    width: usize,
    unit: usize,
    threads: usize,
    work: impl Fn(Range<usize>, &mut [&mut [f32]]) + Sync,
) {
    let rows = out.chunks_exact_mut(width.max(1));
    let share = width.div_ceil(unit.max(1)).div_ceil(threads.max(1)) * unit.max(1);
    if threads < 2 || share >= width {
        return work(0..width, &mut rows.collect::<Vec<_>>());
    }
    let mut parts: Vec<(Range<usize>, Vec<&mut [f32]>)> =
        (0..width).step_by(share).map(|first| (first..width.min(first + share), Vec::new())).collect();
    for mut rest in rows {
        for (columns, rows) in &mut parts {
            let (own, others) = rest.split_at_mut(columns.len());
            rows.push(own);
            rest = others;
        }
    }
    parts.into_par_iter().with_max_len(1).for_each(|(columns, mut rows)| work(columns, &mut rows));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;

    #[test]
    fn shares_are_even_if_no_thread_waits_for_more_than_a_sixth() {
        let is_even = |costs: &[usize], threads| is_even(costs.iter().copied(), threads);
        assert!(is_even(&[4, 4], 2) && is_even(&[4, 3], 2) && is_even(&[1, 1, 1, 1], 4));
        assert!(!is_even(&[4, 2], 2) && !is_even(&[1], 2) && !is_even(&[2, 1, 1, 1], 4));
        // More threads than share one text.
        assert!(is_even(&[1; 8], 4) && !is_even(&[1; 3], 4));
    }

    #[test]
    fn each_column_of_each_row_is_computed_once() {
        for (rows, width, unit, threads) in
            [(3, 100, 32, 2), (1, 32, 32, 4), (5, 65, 32, 3), (2, 7, 1, 4), (4, 96, 16, 1), (0, 8, 4, 2)]
        {
            let mut out = vec![0f32; rows * width];
            columns(&mut out, width, unit, threads, |columns, out| {
                assert!(columns.start % unit == 0 && out.len() == rows);
                for (i, row) in out.iter_mut().enumerate() {
                    assert_eq!(row.len(), columns.len());
                    row.iter_mut().zip(columns.clone()).for_each(|(x, c)| *x += (i * width + c + 1) as f32);
                }
            });
            assert!(out.iter().enumerate().all(|(i, x)| *x == (i + 1) as f32), "{rows} {width} {threads}");
        }
    }

    #[test]
    fn shares_cost_about_the_same_and_each_is_given_once() {
        let costs: Vec<usize> = (0..97).map(|i| 20 + i * 7919 % 237).collect();
        for count in [1, 2, 3, 8] {
            let shares = evenly(costs.clone(), count, |cost| *cost);
            let sums: Vec<usize> = shares.iter().map(|share| share.iter().sum()).collect();
            let (least, most) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
            assert!(shares.len() == count && most - least <= 20, "{sums:?}");
            let mut given: Vec<usize> = shares.concat();
            let mut all = costs.clone();
            given.sort_unstable();
            all.sort_unstable();
            assert_eq!(given, all);
        }
        assert_eq!(evenly(vec![3, 5], 4, |cost| *cost), [[5], [3]]);
        assert!(evenly(Vec::<usize>::new(), 2, |cost| *cost).is_empty());
    }

    #[test]
    fn each_item_is_done_once_in_order_with_a_pause_before_the_next() {
        for threads in [1, 2, 3] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (began, paused) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |n: &usize| {
                began.fetch_add(1, Ordering::Relaxed);
                n * n
            };
            // The work in a pause uses all threads, too.
            let pause = || {
                paused.fetch_add(1, Ordering::Relaxed);
                assert_eq!(together(threads, || 7), 7);
            };
            let all: Vec<usize> = (0..50).collect();
            let found = pool.install(|| one_by_one(&all, threads, work, &pause));
            assert!(found.iter().enumerate().all(|(n, square)| *square == n * n) && found.len() == all.len());
            assert_eq!((began.into_inner(), paused.into_inner()), (50, 50), "by {threads} threads");
        }
    }

    #[test]
    fn a_panic_of_one_part_is_reported_and_later_work_is_done() {
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let all: Vec<usize> = (0..10).collect();
        let panics = |n: &usize| assert_ne!(*n, 3, "as planned");
        let panics = || pool.install(|| one_by_one(&all, 2, panics, &|| ()));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(pool.install(|| one_by_one(&all, 2, |n| n + 1, &|| ()))[9], 10);
    }

    #[test]
    fn helpers_end_with_the_work_even_if_it_panics() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for _ in 0..100 {
            assert_eq!(pool.install(|| together(3, || 7)), 7);
        }
        let panics = || pool.install(|| together(3, || panic!("as planned")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(pool.install(|| together(3, || 8)), 8);
    }

    #[test]
    fn threads_that_help_do_parts_of_the_work() {
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut seen = std::collections::HashSet::new();
        // The system decides which thread takes what. In many tries each thread takes something.
        for _ in 0..10_000 {
            let mut out = vec![0f32; 64];
            pool.install(|| {
                together(2, || {
                    columns(&mut out, 64, 32, 2, |_, rows| {
                        let index = rayon::current_thread_index().unwrap();
                        std::thread::yield_now();
                        rows.iter_mut().for_each(|row| row.fill(index as f32));
                    })
                })
            });
            seen.extend(out.iter().map(|x| *x as usize));
            if seen.len() == 2 {
                return;
            }
        }
        panic!("only {seen:?} computed");
    }
}
