//! Memory that is fetched before it is read.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Bytes of memory that are fetched at once.
const LINE: usize = 64;

/// Memory that is likely to be read soon. Nothing is read of it here: the processor is asked to fetch it while it does something else,
/// which changes nothing but its caches, whatever is there.
#[derive(Debug, Clone, Copy)]
pub struct Ahead {
    start: *const u8,
    size: usize,
}

impl Ahead {
    /// So many bytes from an address on.
    pub fn at(start: *const u8, size: usize) -> Ahead {
        Ahead { start, size }
    }

    pub fn nothing() -> Ahead {
        Ahead::at(std::ptr::null(), 0)
    }

    /// What these take.
    pub fn of<T>(all: &[T]) -> Ahead {
        Ahead::at(all.as_ptr().cast(), size_of_val(all))
    }

    /// One of so many equal parts, in whole lines.
    #[inline]
    pub fn part(self, part: usize, parts: usize) -> Ahead {
        let place = |part: usize| part * self.size / parts / LINE * LINE;
        Ahead::at(self.start.wrapping_add(place(part)), place(part + 1) - place(part))
    }

    /// Has all of it fetched.
    #[inline]
    pub fn fetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in (0..self.size).step_by(LINE) {
            // SAFETY: no address makes it fail.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.start.wrapping_add(line).cast()) };
        }
    }
}
