//! Products of matrices in f32, by the method of Goto and van de Geijn ("Anatomy of High-Performance Matrix
//! Multiplication", 2008): the right matrix is stored in panels as wide as a few registers, and the sums of a
//! tile of a few rows and a panel stay in registers. Blocking for caches is left to the caller, who
//! multiplies some dozens of rows at a time.

use super::Simd;
use super::memory::{Aligned, LINE, Memory};
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

/// How many numbers ahead are prefetched. For few rows all weights are read from memory, which is slower than
/// the products.
const AHEAD: usize = 64 * LINE;

impl Simd {
    /// The number of outputs in a panel.
    pub fn panel(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(_) => 2 * LINE,
            _ => LINE,
        }
    }
}

/// Rows of numbers at a distance of `stride` numbers.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
}

/// The right matrix of a product. For each panel it has, input after input, the numbers of its outputs, and
/// zeros beyond the last output.
#[derive(Default)]
pub struct Panels {
    numbers: Aligned,
    /// The number of outputs in a panel.
    width: usize,
    inputs: usize,
    outputs: usize,
}

impl Panels {
    /// Panels of zeros for permanent weights, with room for these sizes.
    pub fn in_memory(memory: &mut Memory, simd: Simd, inputs: usize, outputs: usize) -> Panels {
        let width = simd.panel();
        let numbers = memory.take(outputs.div_ceil(width) * width * inputs);
        Panels { numbers, width, inputs, outputs }
    }

    /// Replaces the content. `rows` has a row of inputs for each output.
    pub fn fill_transposed(&mut self, simd: Simd, rows: Rows, inputs: usize, outputs: usize) {
        let width = simd.panel();
        self.resize(width, inputs, outputs);
        let panels = self.numbers.all_mut().chunks_exact_mut((width * inputs).max(1));
        for (panel, first) in panels.zip((0..outputs).step_by(width)) {
            let count = width.min(outputs - first);
            for lane in 0..count {
                let row = &rows.numbers[(first + lane) * rows.stride..][..inputs];
                for (numbers, x) in panel.chunks_exact_mut(width).zip(row) {
                    numbers[lane] = *x;
                }
            }
            panel.chunks_exact_mut(width).for_each(|numbers| numbers[count..].fill(0.0));
        }
    }

    /// Replaces the content. `rows` has a row of outputs for each input.
    pub fn fill(&mut self, simd: Simd, rows: Rows, inputs: usize, outputs: usize) {
        let width = simd.panel();
        self.resize(width, inputs, outputs);
        let panels = self.numbers.all_mut().chunks_exact_mut((width * inputs).max(1));
        for (panel, first) in panels.zip((0..outputs).step_by(width)) {
            let count = width.min(outputs - first);
            for (input, numbers) in panel.chunks_exact_mut(width).enumerate() {
                numbers[..count].copy_from_slice(&rows.numbers[input * rows.stride + first..][..count]);
                numbers[count..].fill(0.0);
            }
        }
    }

    fn resize(&mut self, width: usize, inputs: usize, outputs: usize) {
        (self.width, self.inputs, self.outputs) = (width, inputs, outputs);
        self.numbers.resize(outputs.div_ceil(width) * width * inputs);
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes each row of `out` from a row of `rows` for some outputs, which begin with a panel, and adds
    /// their `bias`.
    ///
    /// Panics if the sizes do not match, or if the panels were filled for an instruction set with another
    /// width.
    pub fn multiply(
        &self,
        simd: Simd,
        rows: Rows,
        outputs: Range<usize>,
        bias: Option<&[f32]>,
        out: &mut [&mut [f32]],
    ) {
        assert!(outputs.start.is_multiple_of(simd.panel()) && outputs.end <= self.outputs);
        assert!(outputs.is_empty() || self.width == simd.panel());
        assert!(bias.is_none_or(|bias| bias.len() == self.outputs));
        simd.run(Multiply { panels: self, rows, outputs, bias, out });
    }
}

struct Multiply<'a, 'b, 'c> {
    panels: &'a Panels,
    rows: Rows<'a>,
    outputs: Range<usize>,
    bias: Option<&'a [f32]>,
    out: &'b mut [&'c mut [f32]],
}

impl SimdOp for Multiply<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        // The sums of a tile, a row of a panel and an input fit into the registers.
        match isa.f32().len() {
            16 => self.tiles::<I, 2, 14>(isa),
            8 => self.tiles::<I, 2, 6>(isa),
            _ => self.tiles::<I, 4, 6>(isa),
        }
    }
}

impl Multiply<'_, '_, '_> {
    /// Uses panels of V registers and tiles of at most MOST rows.
    #[inline(always)]
    fn tiles<I: Isa, const V: usize, const MOST: usize>(self, isa: I) {
        let Multiply { panels, rows, outputs, bias, out } = self;
        let (width, depth) = (V * isa.f32().len(), panels.inputs);
        // Tiles have about the same size, which is better than full tiles and a remainder.
        let size = out.len().div_ceil(out.len().div_ceil(MOST).max(1)).max(1);
        for first in outputs.clone().step_by(width) {
            let numbers = &panels.numbers.all()[first * depth..][..width * depth];
            let bias = bias.map(|bias| &bias[first..bias.len().min(first + width)]);
            let place = first - outputs.start..width.min(outputs.end - first) + first - outputs.start;
            for (i, out) in out.chunks_mut(size).enumerate() {
                let rows = Rows { numbers: &rows.numbers[i * size * rows.stride..], ..rows };
                let at = At { numbers, bias, depth, place: place.clone() };
                macro_rules! tile {
                    ($($count:literal)*) => {
                        match out.len() {
                            $($count if $count <= MOST => tile::<I, V, $count>(isa, rows, at, out),)*
                            _ => unreachable!("a tile has 1 to {MOST} rows"),
                        }
                    };
                }
                tile!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
            }
        }
    }
}

/// A panel, and the position of its outputs in rows of the result.
struct At<'a> {
    numbers: &'a [f32],
    bias: Option<&'a [f32]>,
    depth: usize,
    place: Range<usize>,
}

#[inline(always)]
fn tile<I: Isa, const V: usize, const M: usize>(isa: I, rows: Rows, at: At, out: &mut [&mut [f32]]) {
    let ops = isa.f32();
    let (width, depth) = (V * ops.len(), at.depth);
    let Rows { numbers: inputs, stride } = rows;
    assert!((M - 1) * stride + depth <= inputs.len());
    let mut start = [0.0; 2 * LINE];
    if let Some(bias) = at.bias {
        start[..bias.len()].copy_from_slice(bias);
    }
    let mut sums = [ops.load_many::<V>(&start[..width]); M];
    for (input, numbers) in at.numbers.chunks_exact(width).take(depth).enumerate() {
        for line in 0..width / LINE {
            ops.prefetch(numbers.as_ptr().wrapping_add(AHEAD + line * LINE));
        }
        let numbers = ops.load_many::<V>(numbers);
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: i < M and input < depth, so the index is in range, as asserted. (A slice for each row
            // would need more registers than there are, which costs a fifth of the time with AVX-512.)
            let x = ops.splat(unsafe { *inputs.as_ptr().add(i * stride + input) });
            for v in 0..V {
                sums[v] = ops.mul_add(x, numbers[v], sums[v]);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        let out = &mut out[at.place.clone()];
        if out.len() == width {
            for (out, sum) in out.chunks_exact_mut(ops.len()).zip(sums) {
                ops.store(sum, out);
            }
        } else {
            let mut all = [0.0; 2 * LINE];
            for (all, sum) in all.chunks_exact_mut(ops.len()).zip(sums) {
                ops.store(sum, all);
            }
            out.copy_from_slice(&all[..out.len()]);
        }
    }
}
