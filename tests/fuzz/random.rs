//! Numbers that look random and can be repeated.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// For choices that belong to an input: the same input, the same choices.
    pub fn seeded_by(input: &[u8]) -> Random {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in input {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Random::new(hash)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }

    /// At least 1, mostly few, 2^(bits - 1) at most.
    pub fn mostly_few(&mut self, bits: usize) -> usize {
        let bits = self.below(bits);
        1 + self.below(1 << bits)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
