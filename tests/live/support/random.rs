//! Numbers that look random and can be repeated: fastrand's methods, over the generator that the seeds of the
//! tests were chosen with.

use std::ops::RangeTo;

/// xorshift64*.
pub struct Rng(u64);

impl Rng {
    pub fn with_seed(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn usize(&mut self, range: RangeTo<usize>) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % range.end.max(1)
    }

    pub fn choice<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.usize(..from.len()))
    }
}
