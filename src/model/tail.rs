//! Vectors that have no index yet, rounded to 8 bits and packed one behind the other: a question is compared with all of them at a
//! fraction of the cost of reading them whole. What is rounded says how near a vector can be at most, so that the few that may be
//! among the nearest are known and compared exactly, and none is missed. Pure.
//!
//! Rounding is scalar quantisation with a scale for each vector. To go on in the order of the bounds until the next one is farther
//! than what was found is the threshold algorithm of Fagin, Lotem and Naor ("Optimal aggregation algorithms for middleware", 2003).

use super::Metric;
use super::vector_db::Element;
use crate::kernels::rounded::{MOST, MOST_WEIGHT, Width};
use uuid::Uuid;

/// Bytes of an entry behind its numbers: length and scale of the vector, how far the rounded one is from it, and the chunk's id.
const REST: usize = 4 + 4 + 4 + 16;
/// Bytes of a block at most, unless an entry is larger: it fits a page of a table.
const BLOCK: usize = 8000;
/// What computing in 32 bits, here and in pgvector, may add to a cosine.
const TOLERANCE: f64 = 2e-5;

/// Bytes that a vector takes.
pub fn entry_size(dimension: usize) -> usize {
    dimension + REST
}

/// Vectors that fit a block.
pub fn block_size(dimension: usize) -> usize {
    (BLOCK / entry_size(dimension)).max(1)
}

/// Bytes that are compared in some milliseconds: packed, and as they are, where each vector is looked up.
const QUICK: usize = 64 << 20;
const QUICK_UNPACKED: usize = 16 << 20;

/// Vectors without an index at most, about: so many are compared in some milliseconds, packed or as they are.
pub fn most_rows(dimension: usize, is_packed: bool) -> u64 {
    let rows = match is_packed {
        true => QUICK / entry_size(dimension),
        false => QUICK_UNPACKED / (size_of::<f32>() * dimension.max(1)),
    };
    rows as u64
}

/// Appends a chunk's vector to a block of those of its dimension.
pub fn pack(block: &mut Vec<u8>, chunk_id: Uuid, vector: &[f32], element: Element) {
    let vector: Vec<f64> = vector.iter().map(|number| f64::from(element.held(*number))).collect();
    let length = vector.iter().map(|number| number * number).sum::<f64>().sqrt();
    let largest = vector.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    let scale = (largest / length / f64::from(MOST)) as f32;
    // One without a direction, or with numbers that are none, is always compared.
    let (scale, is_known) = if scale.is_normal() { (scale, true) } else { (0.0, false) };
    let mut square = 0.0;
    for number in &vector {
        let number = number / length;
        let rounded = if is_known { (number / f64::from(scale)).round().clamp(-127.0, 127.0) } else { 0.0 };
        square += (number - rounded * f64::from(scale)).powi(2);
        block.push(rounded as i8 as u8);
    }
    let error = if is_known { (square.sqrt() as f32).next_up() } else { f32::INFINITY };
    for number in [length as f32, scale, error] {
        block.extend(number.to_le_bytes());
    }
    block.extend(chunk_id.as_bytes());
}

/// A question's vector, to be compared with what is packed.
pub struct Question {
    weights: Vec<i16>,
    /// Of its direction: the number that a weight of 1 is, and how far what is rounded is from it.
    scale: f64,
    error: f64,
    length: f64,
    metric: Metric,
    width: Width,
}

impl Question {
    /// As a table's elements hold it.
    pub fn new(vector: &[f32], metric: Metric, element: Element) -> Question {
        let vector: Vec<f64> = vector.iter().map(|number| f64::from(element.held(*number))).collect();
        let length = vector.iter().map(|number| number * number).sum::<f64>().sqrt();
        let largest = vector.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
        let has_direction = length.is_normal() && (largest / length).is_normal();
        let scale = if has_direction { largest / length / f64::from(MOST_WEIGHT) } else { 0.0 };
        let weight = |number: &f64| if has_direction { (number / length / scale).round() as i16 } else { 0 };
        let weights: Vec<i16> = vector.iter().map(weight).collect();
        let missed = vector.iter().zip(&weights).map(|(number, weight)| {
            if has_direction { (number / length - f64::from(*weight) * scale).powi(2) } else { 0.0 }
        });
        let error = missed.sum::<f64>().sqrt();
        Question { weights, scale, error, length, metric, width: Width::best() }
    }

    /// How far away a vector is at least whose cosine to the question is at most this, as pgvector's operator says it; what cannot be
    /// computed may be anywhere.
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

/// The chunks whose vectors may be nearest to a question.
pub struct Nearest<'a> {
    question: &'a Question,
    /// So many are kept, or twice as many.
    most: usize,
    kept: Vec<(f64, Uuid)>,
    /// One of those that were left out is nowhere nearer.
    left_out: f64,
    sums: Vec<i32>,
}

impl<'a> Nearest<'a> {
    pub fn new(question: &'a Question, most: usize) -> Nearest<'a> {
        Nearest { question, most: most.max(1), kept: Vec::new(), left_out: f64::INFINITY, sums: Vec::new() }
    }

    /// Compares the question with all of a block; one of vectors of another dimension has nothing to be compared.
    pub fn add(&mut self, block: &[u8]) {
        let Question { weights, scale, error, width, .. } = self.question;
        let size = entry_size(weights.len());
        self.sums.clear();
        width.products(block, size, weights, &mut self.sums);
        for (entry, sum) in block.chunks_exact(size).zip(&self.sums) {
            let Some((numbers, id)) = entry[weights.len()..].split_first_chunk::<12>() else { continue };
            let number = |at: usize| {
                f32::from_le_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]])
            };
            let [length, of_vector, missed] = [number(0), number(4), number(8)].map(f64::from);
            let rounded = f64::from(*sum) * scale * of_vector;
            let cosine = rounded + missed + error * (1.0 + missed) + TOLERANCE;
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

    /// Those that may be nearest, with how far away they are at least, in that order; and how far away all others are at least.
    pub fn sorted(mut self) -> (Vec<(f64, Uuid)>, f64) {
        self.kept.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        (self.kept, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in -1..1.
    fn random(seed: u64) -> impl FnMut() -> f32 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    /// As pgvector computes it.
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
    fn a_vector_is_nowhere_nearer_than_what_is_rounded_says_and_not_much_farther() {
        for metric in [Metric::Cosine, Metric::L2, Metric::Ip] {
            for element in [Element::Vector, Element::Halfvec] {
                for dimension in [1, 2, 7, 16, 33, 384, 1500] {
                    let mut number = random(dimension as u64);
                    let question: Vec<f32> = (0..dimension).map(|_| number() * 3.0).collect();
                    let vectors: Vec<Vec<f32>> = (0..100)
                        .map(|i| {
                            // The question itself, its opposite, some with a few numbers only, and of very different lengths.
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
                    let mut block = Vec::new();
                    for (i, vector) in vectors.iter().enumerate() {
                        pack(&mut block, Uuid::from_u128(i as u128), vector, element);
                    }
                    assert_eq!(block.len(), 100 * entry_size(dimension));
                    let asked = Question::new(&question, metric, element);
                    let mut nearest = Nearest::new(&asked, 100);
                    nearest.add(&block);
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
                            Metric::Cosine => (distance - bound, 0.02),
                            Metric::Ip => (distance - bound, 0.02 * a * b),
                            Metric::L2 => (distance.powi(2) - bound.powi(2), 0.05 * (a * a + b * b)),
                        };
                        assert!(far <= most, "{metric:?}, {dimension}: {bound} for {distance}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_nearest_are_kept_however_many_come_and_what_is_left_out_is_not_nearer() {
        let mut number = random(3);
        let question: Vec<f32> = (0..20).map(|_| number()).collect();
        let asked = Question::new(&question, Metric::Cosine, Element::Vector);
        let mut nearest = Nearest::new(&asked, 30);
        let mut all = Vec::new();
        for i in 0..100u128 {
            let mut block = Vec::new();
            for j in 0..20 {
                let vector: Vec<f32> = (0..20).map(|_| number()).collect();
                let id = Uuid::from_u128(i * 20 + j);
                pack(&mut block, id, &vector, Element::Vector);
                all.push((distance(Metric::Cosine, Element::Vector, &question, &vector), id));
            }
            nearest.add(&block);
        }
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (found, left_out) = nearest.sorted();
        assert!((30..60).contains(&found.len()));
        for (distance, id) in all {
            assert!(distance >= left_out || found.iter().any(|(_, other)| *other == id));
        }
    }

    #[test]
    fn what_has_no_direction_or_no_numbers_is_always_compared() {
        for metric in [Metric::Cosine, Metric::L2, Metric::Ip] {
            let asked = Question::new(&[1.0, -2.0, 0.5], metric, Element::Vector);
            let mut nearest = Nearest::new(&asked, 100);
            let mut block = Vec::new();
            for odd in [[0.0; 3], [f32::NAN; 3], [f32::INFINITY, 0.0, 1.0], [1e-42, 0.0, 1e-45], [3e38; 3]] {
                pack(&mut block, Uuid::nil(), &odd, Element::Vector);
            }
            nearest.add(&block);
            let (found, _) = nearest.sorted();
            let odd = found.iter().filter(|(bound, _)| *bound <= 0.0).count();
            assert!(found.len() == 5 && odd >= 3, "{metric:?}: {found:?}");
            // A question without a direction: by length, or all.
            let asked = Question::new(&[0.0; 3], metric, Element::Vector);
            let mut nearest = Nearest::new(&asked, 100);
            nearest.add(&block);
            assert!(nearest.sorted().0.iter().all(|(bound, _)| *bound <= 6e38));
        }
        // A block of other vectors, or a torn one.
        let asked = Question::new(&[1.0; 3], Metric::L2, Element::Vector);
        let mut nearest = Nearest::new(&asked, 100);
        nearest.add(&[1; 7]);
        nearest.add(&[]);
        assert_eq!(nearest.sorted(), (vec![], f64::INFINITY));
    }
}
