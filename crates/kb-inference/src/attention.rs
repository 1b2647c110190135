//! Multi-head attention between the tokens of a text.
//!
//! Where layers are computed in 8 bits, so are the products of queries and keys. Products of weights and
//! values stay in f32, because rounding a row of weights costs about as much as its product would save.

use super::linear::Way;
use kb_kernels::product::{Panels, Rows};
use kb_kernels::{int8, rows};

/// How many scores a thread holds in memory at once. There is a row for each token, as long as the text. Rows
/// are independent, so the memory for a long text is proportional to its length.
const SCORES: usize = 256 * 1024;

/// The buffers in which a thread computes one head of one text.
#[derive(Default)]
pub struct Head {
    keys: Panels,
    rounded_keys: int8::Matrix,
    rounded_queries: int8::RoundedRows,
    values: Panels,
    scores: Vec<f32>,
}

fn rows_at_once(length: usize) -> usize {
    (SCORES / length.max(1)).clamp(1, length.max(1))
}

impl Head {
    /// Computes a head for a text and writes a row of `out` for each token, from `place` on. Each row of
    /// `text` has query (divided by √ of the head's size), key and value, of `hidden` numbers each. The
    /// numbers of the head are `size` of each, from `first` on.
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
