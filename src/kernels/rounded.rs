//! Products of one vector with many others that are rounded to 8 bits.
//!
//! Sums are of whole numbers and exact, so that every instruction set gives the same. `unsafe` are the loads of fixed arrays, the
//! call of the function for an instruction set that was found on this machine, and the wish for memory that is read soon.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The largest of a vector's rounded numbers, without its sign.
pub const MOST: f32 = 127.0;
/// The same for the one vector that all others are multiplied by, which has more bits.
pub const MOST_WEIGHT: f32 = 2047.0;
/// So many products fit into 32 bits.
pub const MOST_NUMBERS: usize = 8192;
/// Bytes of memory that are fetched at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Whether this machine has instructions that multiply 16 numbers at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    One,
    #[cfg(target_arch = "x86_64")]
    Sixteen(Avx2),
}

/// There is one only where the instructions are.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

impl Width {
    /// Those that this machine has, the slowest first.
    pub fn available() -> Vec<Width> {
        let mut widths = vec![Width::One];
        #[cfg(target_arch = "x86_64")]
        widths.extend(is_x86_feature_detected!("avx2").then_some(Width::Sixteen(Avx2(()))));
        widths
    }

    pub fn best() -> Width {
        Width::available().pop().unwrap_or(Width::One)
    }

    /// Appends a sum for each entry of `stride` bytes: of the products of its first bytes, which are numbers from -127 to 127, and
    /// `weights`, from -2047 to 2047 and [`MOST_NUMBERS`] at most.
    ///
    /// Panics where an entry is shorter than `weights`, or these are too many.
    pub fn products(self, entries: &[u8], stride: usize, weights: &[i16], sums: &mut Vec<i32>) {
        assert!(stride >= weights.len().max(1) && weights.len() <= MOST_NUMBERS);
        match self {
            Width::One => sums.extend(entries.chunks_exact(stride).map(|entry| sum(entry, weights))),
            // SAFETY: there is an Avx2, so the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Width::Sixteen(Avx2(())) => unsafe { by_sixteen(entries, stride, weights, sums) },
        }
    }
}

/// Has the processor fetch bytes that are read soon, while it does something else.
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    bytes.iter().step_by(LINE).chain(bytes.last()).for_each(|byte| {
        // SAFETY: of an address that is there; it changes nothing but caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
    });
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// As many numbers of the entry as there are weights.
#[inline(always)]
fn sum(entry: &[u8], weights: &[i16]) -> i32 {
    let product = |(number, weight): (&u8, &i16)| i32::from(*number as i8) * i32::from(*weight);
    entry.iter().zip(weights).map(product).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_sixteen(entries: &[u8], stride: usize, weights: &[i16], sums: &mut Vec<i32>) {
    let (whole, rest) = weights.as_chunks::<16>();
    for entry in entries.chunks_exact(stride) {
        let (numbers, others) = entry.split_at(weights.len() - rest.len());
        let (numbers, _) = numbers.as_chunks::<16>();
        let mut totals = [_mm256_setzero_si256(); 2];
        for (i, (numbers, weights)) in numbers.iter().zip(whole).enumerate() {
            // SAFETY: each array is as large as the register.
            let (numbers, weights) = unsafe {
                (_mm_loadu_si128(numbers.as_ptr().cast()), _mm256_loadu_si256(weights.as_ptr().cast()))
            };
            let products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(numbers), weights);
            totals[i % 2] = _mm256_add_epi32(totals[i % 2], products);
        }
        let total = _mm256_add_epi32(totals[0], totals[1]);
        let half = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
        let quarter = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
        let last = _mm_add_epi32(quarter, _mm_shuffle_epi32::<0b10_11_00_01>(quarter));
        sums.push(_mm_cvtsi128_si32(last) + sum(others, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_gives_the_sums_of_a_plain_loop() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as i32
        };
        for numbers in (0..70).chain([384, 1000, MOST_NUMBERS]) {
            for more in [1, 3, 28] {
                let stride = numbers + more;
                let count = if numbers > 100 { 3 } else { 9 };
                let mut entries: Vec<u8> =
                    (0..stride * count + 5).map(|_| (random() % 255 - 127) as i8 as u8).collect();
                let mut weights: Vec<i16> = (0..numbers).map(|_| (random() % 4095 - 2047) as i16).collect();
                if more == 28 {
                    // The largest sum.
                    entries.fill(127);
                    weights.fill(-2047);
                }
                let plain = |entry: &[u8]| {
                    let products = weights.iter().zip(entry);
                    products
                        .map(|(weight, number)| i64::from(*weight) * i64::from(*number as i8))
                        .sum::<i64>()
                };
                let expected: Vec<i64> = entries.chunks_exact(stride).map(plain).collect();
                for width in Width::available() {
                    let mut sums = vec![-1];
                    width.products(&entries, stride, &weights, &mut sums);
                    assert_eq!(sums.remove(0), -1, "what was there stays");
                    let sums: Vec<i64> = sums.into_iter().map(i64::from).collect();
                    assert_eq!(sums, expected, "{width:?}, {numbers} numbers of {stride}");
                }
            }
        }
    }
}
