//! Attention: how much the tokens of a text take of each other, head by head.
//!
//! Where layers are computed in 8 bits, so are the products of queries and keys. Those of weights and values stay in f32: rounding
//! a row of weights takes about what its product would save.

use super::linear::Way;
use kb_kernels::product::{Panels, Rows};
use kb_kernels::{int8, rows};

/// Scores that one thread has in memory at once: a row for each token, as long as the text. Rows do not depend on
/// each other, so a long text takes memory in proportion to its length.
const SCORES: usize = 256 * 1024;

/// What a thread computes one head of one text in.
#[derive(Default)]
pub struct Head {
    keys: Panels,
    rounded_keys: int8::Matrix,
    rounded_queries: int8::Rows,
    values: Panels,
    scores: Vec<f32>,
}

fn rows_at_once(length: usize) -> usize {
    (SCORES / length.max(1)).clamp(1, length.max(1))
}

impl Head {
    /// Writes what a head makes of a text: a row of `out` for each token, from `place` on. `text` has the same rows of query (divided
    /// by √ of the head's size), key and value, each `hidden` numbers, side by side; the head's are `size` of each, from `first` on.
    pub fn attend(
        &mut self,
        way: Way,
        text: Rows,
        [hidden, first, size]: [usize; 3],
        place: usize,
        out: &mut [&mut [f32]],
    ) {
        let Way { simd, int8 } = way;
        let (length, stride) = (out.len(), text.stride);
        let part = |which: usize| Rows { numbers: &text.numbers[which * hidden + first..], stride };
        match int8 {
            Some(kernel) => self.rounded_keys.fill(kernel, part(1), size, length),
            None => self.keys.fill_transposed(simd, part(1), size, length),
        }
        self.values.fill(simd, part(2), length, size);
        let at_once = rows_at_once(length);
        for (i, own) in out.chunks_mut(at_once).enumerate() {
            let queries = Rows { numbers: &part(0).numbers[i * at_once * stride..], stride };
            if self.scores.len() < own.len() * length {
                self.scores.resize(own.len() * length, 0.0);
            }
            let scores = &mut self.scores[..own.len() * length];
            let mut rows: Vec<&mut [f32]> = scores.chunks_exact_mut(length).collect();
            match int8 {
                Some(kernel) => {
                    self.rounded_queries.round(kernel, queries, size, own.len());
                    self.rounded_keys.multiply(kernel, &self.rounded_queries, 0..length, &mut rows);
                }
                None => self.keys.multiply(simd, queries, 0..length, None, &mut rows),
            }
            rows::softmax(simd, scores, length);
            let mut rows: Vec<&mut [f32]> = own.iter_mut().map(|row| &mut row[place..place + size]).collect();
            let weights = Rows { numbers: scores, stride: length };
            self.values.multiply(simd, weights, 0..size, None, &mut rows);
        }
    }
}
