//! A rotation that is the same for all vectors of a dimension and behaves like a random one. It spreads the
//! content of a few numbers over all of them, and gives the error of subsequent rounding no preferred
//! direction.
//!
//! It combines random signs and Walsh-Hadamard transforms (Ailon and Chazelle, "The Fast
//! Johnson-Lindenstrauss Transform", 2009). If the dimension is not a power of two, the transform applies
//! alternately to the first and to the last numbers, and each number of the first half is mixed with one of
//! the second half, as in a step of Kac's walk.

use std::f32::consts::FRAC_1_SQRT_2;

const ROUNDS: usize = 3;

pub struct Rotation {
    /// For each round, the factor of each number: a sign, and the normalisation of the transform.
    factors: Vec<f32>,
    dimension: usize,
    /// How many numbers a transform covers.
    window: usize,
}

impl Rotation {
    pub fn new(dimension: usize) -> Rotation {
        let window = dimension.checked_ilog2().map_or(0, |log| 1 << log);
        let norm = 1.0 / (window as f32).sqrt();
        let mut random = SplitMix64(dimension as u64);
        let factors = (0..ROUNDS * dimension)
            .map(|i| {
                let is_in = in_window(i / dimension, dimension, window).contains(&(i % dimension));
                let size = if is_in { norm } else { 1.0 };
                if random.next() >> 63 == 0 { size } else { -size }
            })
            .collect();
        Rotation { factors, dimension, window }
    }

    /// Rotates a vector, which keeps its length.
    ///
    /// Panics if the vector has another dimension.
    pub fn turn(&self, vector: &mut [f32]) {
        assert!(vector.len() == self.dimension);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has the instructions.
            return unsafe { turn_by_avx2(self, vector) };
        }
        turn(self, vector);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn turn_by_avx2(rotation: &Rotation, vector: &mut [f32]) {
    turn(rotation, vector);
}

fn in_window(round: usize, dimension: usize, window: usize) -> std::ops::Range<usize> {
    if round.is_multiple_of(2) { 0..window } else { dimension - window..dimension }
}

/// Compiled for each instruction set. This must not change results, so nothing is contracted and the order of
/// operations is the same.
#[inline(always)]
fn turn(rotation: &Rotation, vector: &mut [f32]) {
    let Rotation { factors, dimension, window } = rotation;
    for (round, factors) in factors.chunks_exact((*dimension).max(1)).enumerate() {
        vector.iter_mut().zip(factors).for_each(|(x, factor)| *x *= factor);
        transform(&mut vector[in_window(round, *dimension, *window)]);
        if window < dimension {
            let (first, second) = vector.split_at_mut(dimension / 2);
            for (a, b) in first.iter_mut().zip(second) {
                (*a, *b) = ((*a + *b) * FRAC_1_SQRT_2, (*a - *b) * FRAC_1_SQRT_2);
            }
        }
    }
}

/// The Walsh-Hadamard transform of numbers whose count is a power of two.
#[inline(always)]
fn transform(numbers: &mut [f32]) {
    let mut width = 1;
    // Eight numbers are transformed at once, so that they stay in registers.
    let (eights, rest) = numbers.as_chunks_mut::<8>();
    if rest.is_empty() {
        for eight in eights {
            for step in [1, 2, 4] {
                let mut next = [0.0; 8];
                for i in 0..8 {
                    let other = eight[i ^ step];
                    next[i] = if i & step == 0 { eight[i] + other } else { other - eight[i] };
                }
                *eight = next;
            }
        }
        width = 8;
    }
    while width < numbers.len() {
        for pair in numbers.chunks_exact_mut(2 * width) {
            let (first, second) = pair.split_at_mut(width);
            for (a, b) in first.iter_mut().zip(second) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        width *= 2;
    }
}

/// The generator of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    #[test]
    fn lengths_and_angles_are_preserved() {
        let mut random = SplitMix64(1);
        let mut number = || (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        for dimension in [1, 2, 3, 5, 7, 8, 100, 255, 256, 257, 384, 511, 1000, 1536] {
            let rotation = Rotation::new(dimension);
            let [a, b]: [Vec<f32>; 2] = std::array::from_fn(|_| (0..dimension).map(|_| number()).collect());
            let [mut c, mut d] = [a.clone(), b.clone()];
            rotation.turn(&mut c);
            Rotation::new(dimension).turn(&mut d);
            for (before, after) in [(product(&a, &a), product(&c, &c)), (product(&a, &b), product(&c, &d))] {
                assert!((before - after).abs() < 1e-5 * dimension as f64, "{dimension}: {before}, {after}");
            }
            assert!(
                dimension < 3 || a.iter().zip(&c).any(|(a, c)| (a - c).abs() > 1e-3),
                "{dimension}: not turned"
            );
        }
        Rotation::new(0).turn(&mut []);
    }

    #[test]
    fn the_content_of_one_number_is_spread_over_all() {
        for dimension in [64, 100, 255, 256, 257, 300, 384, 511, 768, 1000, 1023, 1536, 3072] {
            let rotation = Rotation::new(dimension);
            for place in [0, 1, dimension / 3, dimension / 2, dimension - 1] {
                let mut vector = vec![0.0; dimension];
                vector[place] = 1.0;
                rotation.turn(&mut vector);
                // Measured in standard deviations.
                let scale = (dimension as f32).sqrt();
                let largest = vector.iter().fold(0f32, |most, x| most.max(x.abs())) * scale;
                let fourth = vector.iter().map(|x| (x * scale).powi(4)).sum::<f32>() / dimension as f32;
                assert!(largest < 6.0 && fourth < 8.0, "{dimension}, {place}: {largest}, {fourth}");
            }
        }
    }

    #[test]
    fn the_rotation_is_the_same_on_every_machine() {
        let mut vector: Vec<f32> = (0..6).map(|i| i as f32).collect();
        Rotation::new(6).turn(&mut vector);
        let mut plain: Vec<f32> = (0..6).map(|i| i as f32).collect();
        turn(&Rotation::new(6), &mut plain);
        assert_eq!(vector, plain);
        let rounded: Vec<i32> = vector.iter().map(|x| (x * 1000.0).round() as i32).collect();
        assert_eq!(rounded, [2121, -4773, 2298, 3182, -2652, 2298]);
    }
}
