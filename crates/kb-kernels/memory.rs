//! Memory for numbers that products read sequentially.
//!
//! The weights of a model are contiguous, in huge pages where the system has them. For few rows all weights
//! are read from memory, and translating addresses for every 4 kB makes a question take a twentieth longer.

use memmap2::{MmapMut, MmapRaw};
use std::sync::Arc;

/// How many numbers fit into a cache line.
pub(super) const LINE: usize = 16;
/// The size of a huge page in bytes, on x86-64 and on AArch64 with pages of 4 kB.
const LARGE_PAGE: usize = 2 << 20;
/// The fewest bytes that are requested from the system at once. Unused bytes take no memory, except for the
/// rest of a huge page.
const PIECE: usize = 16 * LARGE_PAGE;

/// Numbers aligned to a cache line.
pub struct Aligned(Storage);

enum Storage {
    /// A vector, used from the number at this index on, which is aligned to a cache line.
    Own(Vec<f32>, usize),
    Part(Part),
}

/// A part of a [`Memory`], which belongs to this value alone.
struct Part {
    piece: Arc<MmapRaw>,
    /// The offset in the piece in bytes, and the number of numbers.
    start: usize,
    count: usize,
}

impl Default for Aligned {
    fn default() -> Aligned {
        Aligned(Storage::Own(Vec::new(), 0))
    }
}

impl Aligned {
    fn own(count: usize) -> Aligned {
        let numbers = vec![0.0; count + LINE];
        let start = numbers.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Aligned(Storage::Own(numbers, start))
    }

    /// Makes room for `count` numbers. If there were fewer, the content is lost.
    pub(super) fn resize(&mut self, count: usize) {
        if self.all().len() < count {
            *self = Aligned::own(count);
        }
    }

    /// All numbers for which there is room, or more.
    pub(super) fn all(&self) -> &[f32] {
        match &self.0 {
            Storage::Own(numbers, start) => &numbers[*start..],
            // SAFETY: the piece lives as long as its parts, which do not overlap, and any bytes are valid
            // numbers.
            Storage::Part(Part { piece, start, count }) => unsafe {
                std::slice::from_raw_parts(piece.as_ptr().add(*start).cast(), *count)
            },
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Storage::Own(numbers, start) => &mut numbers[*start..],
            // SAFETY: as above.
            Storage::Part(Part { piece, start, count }) => unsafe {
                std::slice::from_raw_parts_mut(piece.as_mut_ptr().add(*start).cast(), *count)
            },
        }
    }
}

/// The memory for the weights of a model. Each part keeps its piece alive.
#[derive(Default)]
pub struct Memory {
    piece: Option<Arc<MmapRaw>>,
    /// The unused bytes of the piece.
    free: std::ops::Range<usize>,
}

impl Memory {
    /// Takes room for `count` numbers, which are zero.
    pub(super) fn take(&mut self, count: usize) -> Aligned {
        let bytes = count.next_multiple_of(LINE) * size_of::<f32>();
        if self.free.len() < bytes {
            self.piece = self.open(bytes.next_multiple_of(LARGE_PAGE).max(PIECE));
        }
        let Some(piece) = &self.piece else { return Aligned::own(count) };
        let start = self.free.start;
        self.free.start += bytes;
        Aligned(Storage::Part(Part { piece: Arc::clone(piece), start, count }))
    }

    /// Requests a new piece of this many bytes. None if the system has no memory.
    fn open(&mut self, bytes: usize) -> Option<Arc<MmapRaw>> {
        self.free = 0..0;
        let piece = MmapRaw::from(MmapMut::map_anon(bytes + LARGE_PAGE).ok()?);
        let start = piece.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE);
        self.free = start..start + bytes;
        // Without huge pages this fails, and small pages are used.
        #[cfg(target_os = "linux")]
        let _ = piece.advise_range(memmap2::Advice::HugePage, start, bytes);
        Some(Arc::new(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_do_not_overlap_and_outlive_their_memory() {
        let mut memory = Memory::default();
        // A few small parts, more than fit into a piece, and some that are larger than a piece.
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
            // Fewer numbers fit into the part, and a larger part is zero again.
            part.resize(count.saturating_sub(1));
            assert!(part.all().iter().all(|x| *x == i as f32));
            part.resize(*count + 100);
            assert!(part.all().len() >= *count + 100 && part.all().iter().all(|x| *x == 0.0));
            assert!(part.all().as_ptr().addr().is_multiple_of(LINE * size_of::<f32>()));
        }
    }
}
