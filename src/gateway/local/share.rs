//! One pass of a model by several threads: each computes some columns of all rows.

use rayon::Yield;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that one pass is shared between at most: each of its steps waits for all.
const MOST: usize = 4;

/// How many threads may share a pass.
pub fn threads() -> usize {
    rayon::current_num_threads().min(MOST)
}

/// Does some work of so many threads, and keeps the others awake meanwhile: the steps of a pass over a short text are shorter than
/// it takes to wake one.
pub fn together<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    if threads < 2 {
        return work();
    }
    let ended = AtomicBool::new(false);
    rayon::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| help(&ended));
        }
        // Also where the work panics.
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

/// Looks for work that a helper does without letting others have its core: some microseconds, as the steps between parts take.
const LOOKS: usize = 200;

/// Takes up parts of work until it has ended. A thread takes its own newest task and another's oldest, so that helpers are
/// begun before the parts that they help with, and nobody who waits for a part begins to help.
fn help(ended: &AtomicBool) {
    let mut looks = 0;
    while !ended.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            looks = 0;
        } else if looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
        } else {
            // There may be more threads than free cores.
            std::thread::yield_now();
        }
    }
}

/// Has each thread do its columns of the rows in `out`, which are `width` wide; a thread's columns begin with a multiple of `unit`.
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
    fn helpers_end_with_the_work_also_where_it_panics() {
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
        // Which thread takes what is up to the system: in many tries each has taken something.
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
