//! Packed vectors that have no index yet, rounded to 4 bits per number. A question is compared with all of
//! them at a fraction of the cost of reading the vectors themselves. A rounded vector gives a lower bound of
//! the distance, so that only the few vectors that may be among the nearest are compared exactly.
//!
//! Vectors are rotated before they are rounded, as in RaBitQ (Gao and Long, "RaBitQ: Quantizing
//! High-Dimensional Vectors with a Theoretical Error Bound for Approximate Nearest Neighbor Search", 2024).
//! The component of a rounded vector that is orthogonal to the vector then behaves like one in a random
//! direction, and its product with a question exceeds [`SURE`] standard deviations three times in ten
//! million. That is how rarely a vector is nearer than its bound. Reading vectors in the order of their
//! bounds until the next bound is farther than what was found is the threshold algorithm of Fagin, Lotem and
//! Naor ("Optimal aggregation algorithms for middleware", 2003).
//!
//! An import of 300,000 chunks by embedder `hash`, whose vectors come faster than any index is built, shows
//! what this is worth. A question at rest takes 9 ms of CPU time. During the import it takes 10 ms at the
//! median and 20 ms at the 95th percentile, and in the last quarter of the questions 17 ms at the median.
//! Without packing it takes 25 ms, 420 ms and 290 ms, the latter also after the import, until the vectors
//! have an index (2 cores of an AMD EPYC, PostgreSQL 15).

use kb_kernels::ahead::Ahead;
use kb_kernels::rotation::Rotation;
use kb_kernels::rounded;
use kb_kernels::rounded::{MIDDLE, MOST_WEIGHT, Rounded, Width};
use kb_types::Metric;
use kb_types::vector_db::Element;
use uuid::Uuid;

/// The bytes of an entry after its numbers: the length of the vector, the fields of [`Rounded`], and the id
/// of the chunk.
const REST: usize = 4 + 4 + 4 + 16;
/// The most bytes of a block, unless an entry is larger. It fits into a page of a table.
const BLOCK: usize = 8000;
/// The error of a cosine due to computation in 32 bits, here and in pgvector.
const TOLERANCE: f64 = 2e-5;

/// The number of standard deviations within which the rounding error is assumed to be.
const SURE: f64 = 5.0;

/// How many bytes a vector takes.
pub fn entry_size(dimension: usize) -> usize {
    rounded::size(dimension) + REST
}

/// How many vectors fit into a block.
pub fn block_size(dimension: usize) -> usize {
    (BLOCK / entry_size(dimension)).max(1)
}

/// How many bytes are compared in a few milliseconds: packed, and unpacked, where each vector is looked up.
const QUICK: usize = 64 << 20;
const QUICK_UNPACKED: usize = 16 << 20;

/// About how many vectors may be without an index, so that all of them are compared in a few milliseconds,
/// packed or not.
pub fn most_rows(dimension: usize, is_packed: bool) -> u64 {
    let rows = match is_packed {
        true => QUICK / entry_size(dimension),
        false => QUICK_UNPACKED / (size_of::<f32>() * dimension.max(1)),
    };
    rows as u64
}

/// The rotated direction of a vector as the element type holds it, and its length. None if it has no
/// direction or is not finite.
fn direction(vector: &[f32], element: Element, rotation: &Rotation) -> (Option<Vec<f32>>, f64) {
    let mut direction: Vec<f32> = match element {
        Element::Vector => vector.to_vec(),
        Element::Halfvec => vector.iter().map(|number| element.held(*number)).collect(),
    };
    // Several sums in parallel, because each addition waits for the previous one.
    let mut sums = [0f64; 8];
    let (eights, rest) = direction.as_chunks::<8>();
    for eight in eights {
        sums.iter_mut().zip(eight).for_each(|(sum, number)| *sum += f64::from(*number) * f64::from(*number));
    }
    sums.iter_mut().zip(rest).for_each(|(sum, number)| *sum += f64::from(*number) * f64::from(*number));
    let length = sums.iter().sum::<f64>().sqrt();
    if !length.is_normal() {
        return (None, length);
    }
    let inverse = 1.0 / length;
    direction.iter_mut().for_each(|number| *number = (f64::from(*number) * inverse) as f32);
    rotation.turn(&mut direction);
    (Some(direction), length)
}

/// Packs vectors of one dimension.
pub struct Packer {
    rotation: Rotation,
    element: Element,
    width: Width,
}

impl Packer {
    pub fn new(dimension: usize, element: Element) -> Packer {
        Packer { rotation: Rotation::new(dimension), element, width: Width::best() }
    }

    /// Appends the vector of a chunk to a block of vectors of the same dimension.
    ///
    /// Panics if the vector has another dimension.
    pub fn pack(&self, block: &mut Vec<u8>, chunk_id: Uuid, vector: &[f32]) {
        // A vector without a direction is always compared.
        let unknown = Rounded { factor: 0.0, missed: f32::INFINITY };
        let (direction, length) = direction(vector, self.element, &self.rotation);
        let rounded = match direction {
            Some(direction) => self.width.round(&direction, block),
            None => {
                block.resize(block.len() + rounded::size(vector.len()), 0);
                unknown
            }
        };
        let rounded = if rounded.factor.is_normal() { rounded } else { unknown };
        for number in [length as f32, rounded.factor, rounded.missed] {
            block.extend(number.to_le_bytes());
        }
        block.extend(chunk_id.as_bytes());
    }
}

/// The vector of a question, prepared for comparison with packed vectors.
pub struct PackedQuery {
    dimension: usize,
    /// The rotated direction: the numbers for the lower and for the upper bits, and their sum.
    weights: [Vec<i8>; 2],
    sum: i32,
    /// The number that a weight of 1 represents, and the distance of the rounded direction from the
    /// direction.
    scale: f64,
    error: f64,
    length: f64,
    metric: Metric,
    width: Width,
}

impl PackedQuery {
    /// Prepares a vector as the element type holds it.
    pub fn new(vector: &[f32], metric: Metric, element: Element) -> PackedQuery {
        let dimension = vector.len();
        let (direction, length) = direction(vector, element, &Rotation::new(dimension));
        // Without a direction every cosine is 0, because nothing is known.
        let direction = direction.unwrap_or_else(|| vec![0.0; dimension]);
        let largest = direction.iter().fold(0f32, |largest, number| largest.max(number.abs()));
        let scale = if largest.is_normal() { largest / MOST_WEIGHT } else { 1.0 };
        let mut numbers: Vec<i8> = direction.iter().map(|number| (number / scale).round() as i8).collect();
        let missed = direction
            .iter()
            .zip(&numbers)
            .map(|(number, weight)| (f64::from(*number) - f64::from(*weight) * f64::from(scale)).powi(2));
        let error = missed.sum::<f64>().sqrt();
        let sum = numbers.iter().map(|weight| i32::from(*weight)).sum();
        let mut upper = numbers.split_off(rounded::size(dimension));
        upper.resize(numbers.len(), 0);
        let (scale, weights, width) = (f64::from(scale), [numbers, upper], Width::best());
        PackedQuery { dimension, weights, sum, scale, error, length, metric, width }
    }

    /// The bound of the product of two directions, one of which is random.
    fn sure(&self) -> f64 {
        (SURE / (self.dimension as f64).sqrt()).min(1.0)
    }

    /// The least distance, by pgvector's operator, of a vector whose cosine to the question is at most this.
    /// If it cannot be computed, the vector may be anywhere.
    fn bound(&self, cosine: f64, length: f64) -> f64 {
        let bound = match self.metric {
            Metric::Cosine => 1.0 - cosine,
            Metric::Ip => -self.length * length * cosine,
            Metric::L2 => {
                let squares = self.length * self.length + length * length;
                let square = squares * (1.0 - TOLERANCE) - 2.0 * self.length * length * cosine;
                if square < 0.0 { 0.0 } else { square.sqrt() }
            }
        };
        if bound.is_finite() { bound } else { f64::NEG_INFINITY }
    }
}

/// The chunks whose vectors may be the nearest to a question.
pub struct NearestPacked<'a> {
    question: &'a PackedQuery,
    /// This many are kept, and temporarily twice as many.
    most: usize,
    kept: Vec<(f64, Uuid)>,
    /// A lower bound of the distance of all that were dropped.
    left_out: f64,
    sums: Vec<i32>,
}

impl<'a> NearestPacked<'a> {
    pub fn new(question: &'a PackedQuery, most: usize) -> NearestPacked<'a> {
        NearestPacked {
            question,
            most: most.max(1),
            kept: Vec::new(),
            left_out: f64::INFINITY,
            sums: Vec::new(),
        }
    }

    /// Compares the question with all vectors of a block, while `next` is prefetched. A block of another
    /// dimension is ignored.
    pub fn add(&mut self, block: &[u8], next: Ahead) {
        let PackedQuery { dimension, weights, scale, error, width, .. } = self.question;
        let (size, sure) = (entry_size(*dimension), self.question.sure());
        self.sums.clear();
        width.products(block, size, [&weights[0], &weights[1]], next, &mut self.sums);
        for (entry, sum) in block.chunks_exact(size).zip(&self.sums) {
            let Some((numbers, id)) = entry[rounded::size(*dimension)..].split_first_chunk::<12>() else {
                continue;
            };
            let number = |at: usize| {
                f32::from_le_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]])
            };
            let [length, factor, missed] = [number(0), number(4), number(8)].map(f64::from);
            let product = f64::from(2 * sum - MIDDLE * self.question.sum) * scale * factor;
            let cosine = product + sure * (missed + error * (1.0 + missed)) + TOLERANCE;
            let bound = self.question.bound(cosine, length);
            if bound < self.left_out
                && let Ok(id) = Uuid::from_slice(id)
            {
                self.kept.push((bound, id));
            }
        }
        if self.kept.len() >= 2 * self.most {
            self.kept.select_nth_unstable_by(self.most, |(a, _), (b, _)| a.total_cmp(b));
            self.left_out = self.kept[self.most].0;
            self.kept.truncate(self.most);
        }
    }

    /// The chunks that may be the nearest with the least distances of their vectors, in that order, and the
    /// least distance of all others.
    pub fn sorted(mut self) -> (Vec<(f64, Uuid)>, f64) {
        self.kept.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        (self.kept, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers in -1..1.
    fn random(seed: u64) -> impl FnMut() -> f32 {
        let mut random = fastrand::Rng::with_seed(seed);
        move || 2.0 * random.f32() - 1.0
    }

    /// The distance as pgvector computes it.
    fn distance(metric: Metric, element: Element, a: &[f32], b: &[f32]) -> f64 {
        let held = |v: &[f32]| v.iter().map(|x| f64::from(element.held(*x))).collect::<Vec<f64>>();
        let (a, b) = (held(a), held(b));
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        match metric {
            Metric::Cosine => 1.0 - product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt(),
            Metric::Ip => -product(&a, &b),
            Metric::L2 => a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
        }
    }

    #[test]
    fn a_rounded_vector_gives_a_tight_lower_bound_of_the_distance() {
        for metric in [Metric::Cosine, Metric::L2, Metric::Ip] {
            for element in [Element::Vector, Element::Halfvec] {
                for dimension in [1, 2, 7, 16, 33, 384, 1500] {
                    let mut number = random(dimension as u64);
                    let question: Vec<f32> = (0..dimension).map(|_| number() * 3.0).collect();
                    let vectors: Vec<Vec<f32>> = (0..100)
                        .map(|i| {
                            // The question itself, its opposite, sparse vectors, and vectors of very
                            // different lengths.
                            let size = 10f32.powi(i % 7 - 3);
                            match i {
                                0 => question.clone(),
                                1 => question.iter().map(|x| -x).collect(),
                                _ => (0..dimension)
                                    .map(|n| if i % 3 == 0 && n % 5 > 0 { 0.0 } else { number() * size })
                                    .collect(),
                            }
                        })
                        .collect();
                    let (mut block, packer) = (Vec::new(), Packer::new(dimension, element));
                    for (i, vector) in vectors.iter().enumerate() {
                        packer.pack(&mut block, Uuid::from_u128(i as u128), vector);
                    }
                    assert_eq!(block.len(), 100 * entry_size(dimension));
                    let asked = PackedQuery::new(&question, metric, element);
                    let mut nearest = NearestPacked::new(&asked, 100);
                    nearest.add(&block, Ahead::nothing());
                    let (found, left_out) = nearest.sorted();
                    assert!(found.len() == 100 && left_out == f64::INFINITY);
                    assert!(found.is_sorted_by(|(a, _), (b, _)| a <= b));
                    for (bound, id) in found {
                        let vector = &vectors[id.as_u128() as usize];
                        let distance = distance(metric, element, &question, vector);
                        assert!(
                            bound <= distance,
                            "{metric:?}, {dimension}: {bound} is more than {distance}"
                        );
                        let length = |v: &[f32]| v.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
                        let (a, b) = (length(&question), length(vector));
                        let (far, most) = match metric {
                            Metric::Cosine => (distance - bound, 1.0),
                            Metric::Ip => (distance - bound, a * b),
                            Metric::L2 => (distance.powi(2) - bound.powi(2), 2.0 * (a * a + b * b)),
                        };
                        // With few numbers the bound is less tight.
                        let most = most * if dimension < 300 { 0.6 } else { 0.06 };
                        assert!(far <= most, "{metric:?}, {dimension}: {bound} for {distance}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_bound_holds_for_many_vectors_with_patterns() {
        for dimension in [26, 64, 255, 384] {
            let mut number = random(dimension as u64);
            let packer = Packer::new(dimension, Element::Vector);
            let mut close = 0;
            for round in 0..40 {
                // The question, one number, a constant, both signs, a slope, a wave, and vectors near these.
                let kinds: [&dyn Fn(usize) -> f32; 6] = [
                    &|_| 0.0,
                    &|i| if i == round { 9.0 } else { 0.0 },
                    &|_| 1.0,
                    &|i| if i % 2 == 0 { 1.0 } else { -1.0 },
                    &|i| i as f32,
                    &|i| (i as f32 * 0.3).sin(),
                ];
                let question: Vec<f32> = (0..dimension).map(|i| number() + kinds[round % 6](i)).collect();
                let asked = PackedQuery::new(&question, Metric::Cosine, Element::Vector);
                let (mut block, mut all) = (Vec::new(), Vec::new());
                for i in 0..600 {
                    let (kind, share) = (kinds[i % 6], (i / 6) as f32 / 50.0);
                    let vector: Vec<f32> = question
                        .iter()
                        .enumerate()
                        .map(|(i, x)| x * share + kind(i) + number() * 0.2)
                        .collect();
                    packer.pack(&mut block, Uuid::from_u128(i as u128), &vector);
                    all.push(distance(Metric::Cosine, Element::Vector, &question, &vector));
                }
                let mut nearest = NearestPacked::new(&asked, 600);
                nearest.add(&block, Ahead::nothing());
                let (found, _) = nearest.sorted();
                for (bound, id) in found {
                    let distance = all[id.as_u128() as usize];
                    assert!(bound <= distance, "{dimension}, {round}: {bound} is more than {distance}");
                    close += usize::from(distance - bound < 0.05);
                }
            }
            assert!(dimension < 300 || close > 20_000, "only {close}");
        }
    }

    #[test]
    fn the_nearest_are_kept_and_none_that_was_dropped_is_nearer() {
        let mut number = random(3);
        let question: Vec<f32> = (0..20).map(|_| number()).collect();
        let asked = PackedQuery::new(&question, Metric::Cosine, Element::Vector);
        let mut nearest = NearestPacked::new(&asked, 30);
        let mut all = Vec::new();
        let packer = Packer::new(20, Element::Vector);
        for i in 0..100u128 {
            let mut block = Vec::new();
            for j in 0..20 {
                let vector: Vec<f32> = (0..20).map(|_| number()).collect();
                let id = Uuid::from_u128(i * 20 + j);
                packer.pack(&mut block, id, &vector);
                all.push((distance(Metric::Cosine, Element::Vector, &question, &vector), id));
            }
            nearest.add(&block, Ahead::nothing());
        }
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (found, left_out) = nearest.sorted();
        assert!((30..60).contains(&found.len()));
        for (distance, id) in all {
            assert!(distance >= left_out || found.iter().any(|(_, other)| *other == id));
        }
    }

    #[test]
    fn vectors_without_a_direction_or_with_nan_are_always_compared() {
        for metric in [Metric::Cosine, Metric::L2, Metric::Ip] {
            let asked = PackedQuery::new(&[1.0, -2.0, 0.5], metric, Element::Vector);
            let mut nearest = NearestPacked::new(&asked, 100);
            let (mut block, packer) = (Vec::new(), Packer::new(3, Element::Vector));
            for odd in [[0.0; 3], [f32::NAN; 3], [f32::INFINITY, 0.0, 1.0], [1e-42, 0.0, 1e-45], [3e38; 3]] {
                packer.pack(&mut block, Uuid::nil(), &odd);
            }
            nearest.add(&block, Ahead::nothing());
            let (found, _) = nearest.sorted();
            let odd = found.iter().filter(|(bound, _)| *bound <= 0.0).count();
            assert!(found.len() == 5 && odd >= 3, "{metric:?}: {found:?}");
            // A question without a direction is compared by length, or with all.
            let asked = PackedQuery::new(&[0.0; 3], metric, Element::Vector);
            let mut nearest = NearestPacked::new(&asked, 100);
            nearest.add(&block, Ahead::nothing());
            assert!(nearest.sorted().0.iter().all(|(bound, _)| *bound <= 6e38));
        }
        // A block of other vectors, or a damaged one.
        let asked = PackedQuery::new(&[1.0; 3], Metric::L2, Element::Vector);
        let mut nearest = NearestPacked::new(&asked, 100);
        nearest.add(&[1; 7], Ahead::nothing());
        nearest.add(&[], Ahead::nothing());
        assert_eq!(nearest.sorted(), (vec![], f64::INFINITY));
    }
}
