//! Computes BM25 scores.
//!
//! Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the idf that
//! is never negative, as in Lucene: ln(1 + (N - df + 0.5) / (df + 0.5)). A term adds weight * f * (k1 + 1) /
//! (f + k1 * (1 - b + b * length / average)).

use std::ops::AddAssign;

/// Counts of chunks and terms. They are signed, because those of a segment may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub chunks: i64,
    pub sum_length: i64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.chunks = self.chunks.saturating_add(other.chunks);
        self.sum_length = self.sum_length.saturating_add(other.sum_length);
    }
}

/// k1 limits what repetition of a term adds, and b determines how much the length of a chunk matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    k1: f64,
    b: f64,
}

impl Parameters {
    /// None unless k1 is finite and at least 0, and b is between 0 and 1.
    pub fn new(k1: f64, b: f64) -> Option<Self> {
        (k1.is_finite() && k1 >= 0.0 && (0.0..=1.0).contains(&b)).then_some(Parameters { k1, b })
    }
}

/// The weight of a term that `df` of `chunks` chunks contain, which is positive. Counts out of range are
/// clamped.
pub fn idf(df: i64, chunks: i64) -> f64 {
    let chunks = chunks.max(0) as f64;
    let df = (df.max(0) as f64).min(chunks);
    ((chunks - df + 0.5) / (df + 0.5)).ln_1p()
}

/// Larger weights are reduced to this.
const MAX_WEIGHT: f64 = 1e12;

/// Computes the scores of chunks for the terms of one question.
///
/// What a term adds is rounded to a multiple of a small power of two, which is chosen so that every sum of
/// such numbers is exact. Scores therefore do not depend on the order in which terms are added, and equal
/// chunks have equal scores, also in different segments. The error is below 1e-15 of the greatest possible
/// score for each term.
#[derive(Debug, Clone)]
pub struct Scorer {
    weights: Vec<f64>,
    /// A term adds weight * f / (f * frequency + constant + length * length of the chunk), which is the
    /// formula with numerator and denominator divided by k1 + 1, so that no k1 overflows.
    frequency: f64,
    constant: f64,
    length: f64,
    /// An upper bound of all scores.
    greatest: f64,
    /// The unit of scores.
    unit: f64,
    /// Adding and subtracting this rounds to the unit.
    rounder: f64,
}

impl Scorer {
    /// `weights` has one weight per term of the question: the idf times the frequency in the question, or 0
    /// if the term does not count for the score. `totals` are the sums over the whole index.
    pub fn new(parameters: Parameters, totals: Totals, weights: &[f64]) -> Self {
        let Parameters { k1, b } = parameters;
        let known = totals.chunks > 0 && totals.sum_length > 0;
        let average = if known { totals.sum_length as f64 / totals.chunks as f64 } else { 1.0 };
        let share = k1 / (k1 + 1.0);
        let (frequency, constant, length) = (1.0 / (k1 + 1.0), share * (1.0 - b), share * b / average);
        let sane = |w: &f64| if *w > 0.0 { w.min(MAX_WEIGHT) } else { 0.0 };
        let weights: Vec<f64> = weights.iter().map(sane).collect();
        // A frequency is at most the length, and below 2^32.
        let greatest = 2f64.powi(32);
        let most = (k1 + 1.0).min(greatest / (constant + length * greatest));
        let sum = weights.iter().sum::<f64>() * most + f64::MIN_POSITIVE;
        // Sums below 2^53 units are exact. This leaves room for rounding up.
        let unit = 2f64.powi((sum.log2().ceil() as i32 - 50).max(-1000));
        let rounder = unit * 1.5 * 2f64.powi(52);
        Scorer { weights, frequency, constant, length, greatest: sum, unit, rounder }
    }

    /// The score of a chunk, given the frequencies of the question's terms in the order of the weights. It is
    /// 0 if the chunk has no term that counts.
    pub fn score(&self, length: u32, frequencies: &[u32]) -> f64 {
        let terms = self.weights.iter().zip(frequencies).filter(|(w, f)| **w > 0.0 && **f > 0);
        terms.map(|(w, f)| self.part(*w, *f, length.max(1))).sum()
    }

    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The score as a fraction, from 0 to 1, of the greatest score that a chunk of any text could have, with
    /// every term as often as possible. Terms that no chunk contains count, too.
    pub fn share(&self, score: f64) -> f64 {
        (score / self.greatest).clamp(0.0, 1.0)
    }

    /// The least score of a chunk that contains any of the terms.
    pub fn unit(&self) -> f64 {
        self.unit
    }

    /// What a term with this weight adds, which is at least the unit.
    #[inline]
    pub fn part(&self, weight: f64, frequency: u32, length: u32) -> f64 {
        self.round(self.exact_part(weight, frequency, length)).max(self.unit)
    }

    /// An upper bound of what a term adds to any chunk with at most this frequency and at least this length.
    pub fn upper_bound(&self, weight: f64, max_frequency: u32, min_length: u32) -> f64 {
        // The formula is monotonic, but its evaluation in floating point only nearly so.
        self.round(self.exact_part(weight, max_frequency, min_length) * (1.0 + 1e-12)) + self.unit
    }

    #[inline]
    fn exact_part(&self, weight: f64, frequency: u32, length: u32) -> f64 {
        let f = f64::from(frequency);
        weight * f / (f * self.frequency + self.constant + f64::from(length) * self.length)
    }

    #[inline]
    fn round(&self, value: f64) -> f64 {
        (value + self.rounder) - self.rounder
    }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
