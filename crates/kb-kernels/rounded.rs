//! Vectors rounded to 4 bits per number, and the products of one vector with many of them.
//!
//! Vectors are rotated by a [`Rotation`](super::rotation::Rotation) first. Their numbers are then nearly
//! normally distributed, for which sixteen equal steps of [`STEP`] have the least error. Two numbers share a
//! byte: number i has the lower bits of byte i, and number i + half has the upper bits.
//!
//! Sums are exact sums of integers, so that every instruction set gives the same. Only loads of fixed arrays,
//! and calls of functions for an instruction set that the machine has, are `unsafe`.

use super::ahead::Ahead;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The step between two rounded numbers, in standard deviations: Max, "Quantizing for Minimum Distortion",
/// 1960, table II.
const STEP: f32 = 0.3352;
/// The largest rounded number.
const MOST: f32 = 15.0;
/// A rounded number n represents (2 n - 15) half steps.
pub const MIDDLE: i32 = 15;
/// The largest absolute value of a number of the vector with which all others are multiplied.
pub const MOST_WEIGHT: f32 = 127.0;
/// How many sums are computed in parallel.
const LANES: usize = 8;

/// How many numbers the instructions of a machine process at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    One,
    #[cfg(target_arch = "x86_64")]
    Many(Avx2),
}

/// A value exists only on machines that have the instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// The properties of a rounded vector of length 1, besides its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounded {
    /// Half a step, divided by the product of the vector and the rounded vector. The product of another
    /// vector and this one is approximately this · Σ (2 n - 15) · its number.
    pub factor: f32,
    /// The length of the component of the rounded vector that is orthogonal to the vector, divided by the
    /// same product.
    pub missed: f32,
}

/// How many bytes this many numbers take.
pub fn size(numbers: usize) -> usize {
    numbers.div_ceil(2)
}

impl Width {
    /// The widths that this machine has, the slowest first.
    pub fn available() -> Vec<Width> {
        let mut widths = vec![Width::One];
        #[cfg(target_arch = "x86_64")]
        widths.extend(is_x86_feature_detected!("avx2").then_some(Width::Many(Avx2(()))));
        widths
    }

    pub fn best() -> Width {
        Width::available().pop().unwrap_or(Width::One)
    }

    /// Appends the rounded numbers of a vector of length 1, [`size`] bytes.
    pub fn round(self, vector: &[f32], bytes: &mut Vec<u8>) -> Rounded {
        match self {
            Width::One => round(vector, bytes),
            // SAFETY: an Avx2 exists only on machines that have the instructions.
            #[cfg(target_arch = "x86_64")]
            Width::Many(Avx2(())) => unsafe { round_by_many(vector, bytes) },
        }
    }

    /// Appends a sum for each entry of `stride` bytes: the products of the lower four bits of its first bytes
    /// with the lower weights, plus those of the upper four bits with the upper weights. Weights are from
    /// -127 to 127. Meanwhile `next` is prefetched.
    ///
    /// Panics if an entry is shorter than the weights, or if there are not as many lower as upper weights.
    pub fn products(
        self,
        entries: &[u8],
        stride: usize,
        [lower, upper]: [&[i8]; 2],
        next: Ahead,
        sums: &mut Vec<i32>,
    ) {
        assert!(stride >= lower.len().max(1) && lower.len() == upper.len());
        match self {
            Width::One => {
                next.fetch();
                sums.extend(
                    entries.chunks_exact(stride).map(|entry| sum(&entry[..lower.len()], lower, upper)),
                );
            }
            // SAFETY: an Avx2 exists only on machines that have the instructions.
            #[cfg(target_arch = "x86_64")]
            Width::Many(Avx2(())) => unsafe { products_by_many(entries, stride, lower, upper, next, sums) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn round_by_many(vector: &[f32], bytes: &mut Vec<u8>) -> Rounded {
    round(vector, bytes)
}

/// Compiled for each instruction set.
#[inline(always)]
fn round(vector: &[f32], bytes: &mut Vec<u8>) -> Rounded {
    let step = STEP / (vector.len() as f32).sqrt();
    let inverse = 1.0 / step;
    let (lower, upper) = vector.split_at(size(vector.len()));
    // An f32 from 2^23 to 2^24 has no fraction, so the addition rounds. NaN gives an arbitrary number.
    let number =
        |x: f32| ((x * inverse + MIDDLE as f32 / 2.0).clamp(0.0, MOST) + (1 << 23) as f32).to_bits() as u8;
    let start = bytes.len();
    bytes.extend(lower.iter().map(|x| number(*x)));
    for (byte, x) in bytes[start..].iter_mut().zip(upper) {
        *byte |= number(*x) << 4;
    }
    let rounded = &bytes[start..];
    let of = |n: u8| (2 * i32::from(n) - MIDDLE) as f32;
    let mut product = 0.0;
    for (half, shift) in [(lower, 0), (upper, 4)] {
        product += lanes(half, &rounded[..half.len()], |x, byte| x * of(byte >> shift & 15));
    }
    // In half steps: the difference between the rounded vector and its projection on the vector.
    let mut missed = 0.0;
    for (half, shift) in [(lower, 0), (upper, 4)] {
        missed += lanes(half, &rounded[..half.len()], |x, byte| {
            let other = of(byte >> shift & 15) - product * x;
            other * other
        });
    }
    Rounded { factor: 1.0 / product, missed: missed.sqrt() / product }
}

/// The sum of a term for each number and its byte, computed in parallel sums.
#[inline(always)]
fn lanes(numbers: &[f32], bytes: &[u8], term: impl Fn(f32, u8) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = numbers.as_chunks::<LANES>();
    let (whole_bytes, rest_bytes) = bytes.as_chunks::<LANES>();
    for (numbers, bytes) in whole.iter().zip(whole_bytes) {
        for i in 0..LANES {
            sums[i] += term(numbers[i], bytes[i]);
        }
    }
    for (i, (x, byte)) in rest.iter().zip(rest_bytes).enumerate() {
        sums[i] += term(*x, *byte);
    }
    sums.iter().sum()
}

#[inline(always)]
fn sum(bytes: &[u8], lower: &[i8], upper: &[i8]) -> i32 {
    let product = |(byte, (lower, upper)): (&u8, (&i8, &i8))| {
        i32::from(byte & 15) * i32::from(*lower) + i32::from(byte >> 4) * i32::from(*upper)
    };
    bytes.iter().zip(lower.iter().zip(upper)).map(product).sum()
}

/// How many registers of products fit into sums of 16 bits. Each product is at most 2 · 15 · 127.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 8;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn products_by_many(
    entries: &[u8],
    stride: usize,
    lower: &[i8],
    upper: &[i8],
    next: Ahead,
    sums: &mut Vec<i32>,
) {
    let ((of_lower, rest_lower), (of_upper, rest_upper)) = (lower.as_chunks::<32>(), upper.as_chunks::<32>());
    let (ones, low) = (_mm256_set1_epi16(1), _mm256_set1_epi8(15));
    let count = entries.len() / stride;
    for (place, entry) in entries.chunks_exact(stride).enumerate() {
        // A little with each entry, because fetching all at once would stall as long as reading it.
        next.part(place, count).fetch();
        let (bytes, rest) = entry[..lower.len()].as_chunks::<32>();
        let mut total = _mm256_setzero_si256();
        let weights = of_lower.chunks(SHORT).zip(of_upper.chunks(SHORT));
        for (bytes, (lower, upper)) in bytes.chunks(SHORT).zip(weights) {
            let mut short = [_mm256_setzero_si256(); 2];
            for (bytes, (lower, upper)) in bytes.iter().zip(lower.iter().zip(upper)) {
                // SAFETY: each array is as large as the register.
                let (bytes, lower, upper) = unsafe {
                    (
                        _mm256_loadu_si256(bytes.as_ptr().cast()),
                        _mm256_loadu_si256(lower.as_ptr().cast()),
                        _mm256_loadu_si256(upper.as_ptr().cast()),
                    )
                };
                let of_lower = _mm256_maddubs_epi16(_mm256_and_si256(bytes, low), lower);
                let of_upper =
                    _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16::<4>(bytes), low), upper);
                short = [_mm256_add_epi16(short[0], of_lower), _mm256_add_epi16(short[1], of_upper)];
            }
            for short in short {
                total = _mm256_add_epi32(total, _mm256_madd_epi16(short, ones));
            }
        }
        let half = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
        let quarter = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
        let last = _mm_add_epi32(quarter, _mm_shuffle_epi32::<0b10_11_00_01>(quarter));
        sums.push(_mm_cvtsi128_si32(last) + sum(rest, rest_lower, rest_upper));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_gives_the_sums_of_a_plain_loop() {
        let mut random = fastrand::Rng::with_seed(7);
        for half in (0..70).chain([192, 500, 800, 2000]) {
            for more in [1, 3, 28] {
                let stride = half + more;
                let count = if half > 100 { 3 } else { 9 };
                let mut entries: Vec<u8> = (0..stride * count + 5).map(|_| random.u8(..)).collect();
                let mut weights: [Vec<i8>; 2] =
                    std::array::from_fn(|_| (0..half).map(|_| random.i8(-127..)).collect());
                if more == 28 {
                    // The largest sum.
                    entries.fill(255);
                    weights.iter_mut().for_each(|weights| weights.fill(-127));
                }
                let plain = |entry: &[u8]| {
                    (0..half)
                        .map(|i| {
                            i64::from(entry[i] & 15) * i64::from(weights[0][i])
                                + i64::from(entry[i] >> 4) * i64::from(weights[1][i])
                        })
                        .sum::<i64>()
                };
                let expected: Vec<i64> = entries.chunks_exact(stride).map(plain).collect();
                // Prefetching is harmless for any address.
                let anywhere = Ahead::at(std::ptr::without_provenance(usize::MAX - 100), 8192);
                let ahead =
                    [Ahead::nothing(), Ahead::at(entries.as_ptr(), entries.len()), anywhere][more % 3];
                for width in Width::available() {
                    let mut sums = vec![-1];
                    width.products(&entries, stride, [&weights[0], &weights[1]], ahead, &mut sums);
                    assert_eq!(sums.remove(0), -1, "what was there stays");
                    let sums: Vec<i64> = sums.into_iter().map(i64::from).collect();
                    assert_eq!(sums, expected, "{width:?}, {half} bytes of {stride}");
                }
            }
        }
    }

    #[test]
    fn a_rounded_vector_and_its_orthogonal_component_are_as_described() {
        let mut random = fastrand::Rng::with_seed(7);
        for numbers in [1, 2, 3, 7, 16, 33, 384, 1025] {
            let vector: Vec<f64> = (0..numbers).map(|_| f64::from(random.i32(-1000..=1000))).collect();
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            let vector: Vec<f32> = vector.iter().map(|x| (x / length) as f32).collect();
            for width in Width::available() {
                let mut bytes = vec![7];
                let Rounded { factor, missed } = width.round(&vector, &mut bytes);
                assert_eq!((bytes.remove(0), bytes.len()), (7, size(numbers)), "what was there stays");
                let half = size(numbers);
                let of = |i: usize| if i < half { bytes[i] & 15 } else { bytes[i - half] >> 4 };
                let of: Vec<f64> = (0..numbers).map(|i| f64::from(2 * i32::from(of(i)) - MIDDLE)).collect();
                let product: f64 = vector.iter().zip(&of).map(|(x, n)| f64::from(*x) * n).sum();
                assert!((f64::from(factor) * product - 1.0).abs() < 1e-5, "{width:?}, {numbers}");
                let square: f64 =
                    vector.iter().zip(&of).map(|(x, n)| (n - product * f64::from(*x)).powi(2)).sum();
                let expected = square.sqrt() / product;
                assert!(
                    (f64::from(missed) - expected).abs() < 1e-5,
                    "{width:?}, {numbers}: {missed}, not {expected}"
                );
                // Each number is the nearest step.
                let step = f64::from(STEP) / (numbers as f64).sqrt();
                for (x, n) in vector.iter().zip(&of) {
                    let nearest = f64::from(*x).clamp(-7.5 * step, 7.5 * step);
                    assert!((n / 2.0 * step - nearest).abs() <= step * 0.50001, "{width:?}, {numbers}");
                }
            }
        }
    }

    #[test]
    fn nan_and_infinity_are_rounded_to_something() {
        for width in Width::available() {
            let mut bytes = Vec::new();
            let rounded = width.round(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &mut bytes);
            assert_eq!(bytes, [0, 15]);
            assert!(!rounded.missed.is_finite());
            width.round(&[], &mut bytes);
            assert_eq!(bytes.len(), 2);
        }
    }
}
