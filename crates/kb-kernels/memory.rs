//! Memory for the numbers that products read from one end to the other.
//!
//! A model's weights lie one behind the other, in large pages where the system has any: of a few rows all weights come from memory, and
//! a processor that has to find out for every 4 kB where they are takes a twentieth longer for a question.

use memmap2::{MmapMut, MmapRaw};
use std::sync::Arc;

/// Numbers of a cache line.
pub(super) const LINE: usize = 16;
/// Bytes of a large page, on x86-64 and where AArch64 has small ones of 4 kB.
const LARGE_PAGE: usize = 2 << 20;
/// Bytes that are asked of the system at once, at least. What is not used yet takes no memory but for the rest of a large page.
const PIECE: usize = 16 * LARGE_PAGE;

/// Numbers that begin with a cache line.
pub struct Aligned(Place);

enum Place {
    /// Memory of its own, used from the number at this place on, which begins a cache line.
    Own(Vec<f32>, usize),
    Part(Part),
}

/// What a [`Memory`] gave, and gives nobody else.
struct Part {
    piece: Arc<MmapRaw>,
    /// Bytes of the piece before it, and how many numbers it has.
    start: usize,
    count: usize,
}

impl Default for Aligned {
    fn default() -> Aligned {
        Aligned(Place::Own(Vec::new(), 0))
    }
}

impl Aligned {
    fn own(count: usize) -> Aligned {
        let numbers = vec![0.0; count + LINE];
        let start = numbers.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Aligned(Place::Own(numbers, start))
    }

    /// Makes room for so many; what was there is lost where there was less.
    pub(super) fn resize(&mut self, count: usize) {
        if self.all().len() < count {
            *self = Aligned::own(count);
        }
    }

    /// At least as many as there is room for.
    pub(super) fn all(&self) -> &[f32] {
        match &self.0 {
            Place::Own(numbers, start) => &numbers[*start..],
            // SAFETY: the piece is there as long as its parts, which do not overlap; any bytes are numbers.
            Place::Part(Part { piece, start, count }) => unsafe {
                std::slice::from_raw_parts(piece.as_ptr().add(*start).cast(), *count)
            },
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Place::Own(numbers, start) => &mut numbers[*start..],
            // SAFETY: as above.
            Place::Part(Part { piece, start, count }) => unsafe {
                std::slice::from_raw_parts_mut(piece.as_mut_ptr().add(*start).cast(), *count)
            },
        }
    }
}

/// What a model's weights are kept in; each of its parts keeps its piece alive.
#[derive(Default)]
pub struct Memory {
    piece: Option<Arc<MmapRaw>>,
    /// Bytes of the piece that nobody has yet.
    free: std::ops::Range<usize>,
}

impl Memory {
    /// Zeros, so many.
    pub(super) fn take(&mut self, count: usize) -> Aligned {
        let bytes = count.next_multiple_of(LINE) * size_of::<f32>();
        if self.free.len() < bytes {
            self.piece = self.open(bytes.next_multiple_of(LARGE_PAGE).max(PIECE));
        }
        let Some(piece) = &self.piece else { return Aligned::own(count) };
        let start = self.free.start;
        self.free.start += bytes;
        Aligned(Place::Part(Part { piece: Arc::clone(piece), start, count }))
    }

    /// A new piece, of so many bytes; None: the system has none to give.
    fn open(&mut self, bytes: usize) -> Option<Arc<MmapRaw>> {
        self.free = 0..0;
        let piece = MmapRaw::from(MmapMut::map_anon(bytes + LARGE_PAGE).ok()?);
        let start = piece.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE);
        self.free = start..start + bytes;
        // A system without large pages says so, and goes on with small ones.
        #[cfg(target_os = "linux")]
        let _ = piece.advise_range(memmap2::Advice::HugePage, start, bytes);
        Some(Arc::new(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_with_a_line_lie_apart_and_outlive_their_memory() {
        let mut memory = Memory::default();
        // A few small ones, more than a piece has room for, and some larger than one.
        let counts = [1, 0, 15, 16, 17, 1_000, PIECE / 4 - 2_000, 3_000, PIECE / 4 + 1, 5, PIECE / 2, 7];
        let mut parts: Vec<(usize, Aligned)> =
            counts.into_iter().map(|count| (count, memory.take(count))).collect();
        drop(memory);
        for (i, (count, part)) in parts.iter_mut().enumerate() {
            assert!(part.all().len() == *count && part.all().iter().all(|x| *x == 0.0), "{count}");
            assert!(part.all().as_ptr().addr().is_multiple_of(LINE * size_of::<f32>()), "{count}");
            part.all_mut().fill(i as f32);
        }
        for (i, (count, part)) in parts.iter_mut().enumerate() {
            assert!(part.all().iter().all(|x| *x == i as f32), "{count} numbers are not those of number {i}");
            // Fewer have room there; more are zeros again.
            part.resize(count.saturating_sub(1));
            assert!(part.all().iter().all(|x| *x == i as f32));
            part.resize(*count + 100);
            assert!(part.all().len() >= *count + 100 && part.all().iter().all(|x| *x == 0.0));
            assert!(part.all().as_ptr().addr().is_multiple_of(LINE * size_of::<f32>()));
        }
    }
}
