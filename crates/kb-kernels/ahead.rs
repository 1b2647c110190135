//! Prefetches memory before it is read.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// How many bytes are fetched at a time.
const LINE: usize = 64;

/// Memory that is likely to be read soon. It is not read here. The processor is only asked to fetch it into
/// its caches while it does something else, which is harmless for any address.
#[derive(Debug, Clone, Copy)]
pub struct Ahead {
    start: *const u8,
    size: usize,
}

impl Ahead {
    /// `size` bytes from an address on.
    pub fn at(start: *const u8, size: usize) -> Ahead {
        Ahead { start, size }
    }

    pub fn nothing() -> Ahead {
        Ahead::at(std::ptr::null(), 0)
    }

    /// The memory of a slice.
    pub fn of<T>(all: &[T]) -> Ahead {
        Ahead::at(all.as_ptr().cast(), size_of_val(all))
    }

    /// One of `count` equal parts, in whole lines.
    #[inline]
    pub fn part(self, part: usize, parts: usize) -> Ahead {
        let place = |part: usize| part * self.size / parts / LINE * LINE;
        Ahead::at(self.start.wrapping_add(place(part)), place(part + 1) - place(part))
    }

    /// Asks the processor to fetch all of it.
    #[inline]
    pub fn fetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in (0..self.size).step_by(LINE) {
            // SAFETY: prefetching does not fail for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.start.wrapping_add(line).cast()) };
        }
    }
}
