//! Matrices and rows in 8 bits, and their products, computed tile by tile.

use super::{Compute, Inputs, Kernel, PANEL, Panel, Weights, blocks_of};
use crate::ahead::Ahead;
use crate::product;
use std::ops::Range;

/// Rows of rounded numbers.
#[derive(Default)]
pub struct RoundedRows {
    blocks: Vec<Inputs>,
    bits: u32,
    count: usize,
    inputs: usize,
}

impl RoundedRows {
    /// Replaces the content by `count` rows. A number that is not finite makes the products of its row NaN or
    /// infinite.
    pub fn round(&mut self, kernel: Kernel, rows: product::Rows, inputs: usize, count: usize) {
        let of_row = blocks_of(inputs);
        (self.bits, self.inputs, self.count) = (kernel.bits(), inputs, count);
        // All blocks are overwritten below.
        self.blocks.resize(count * of_row, Inputs::ZERO);
        for (i, blocks) in self.blocks.chunks_exact_mut(of_row.max(1)).enumerate() {
            kernel.round_inputs(&rows.numbers[i * rows.stride..][..inputs], blocks);
        }
    }

    fn row(&self, i: usize) -> &[Inputs] {
        let of_row = blocks_of(self.inputs);
        &self.blocks[i * of_row..(i + 1) * of_row]
    }
}

/// Rounded weights and a bias, in the order in which they are read.
#[derive(Default)]
pub struct Matrix {
    /// Panel after panel.
    blocks: Vec<Weights>,
    bias: Vec<[f32; PANEL]>,
    bits: u32,
    inputs: usize,
    outputs: usize,
}

impl Matrix {
    /// Makes a matrix for a kernel. `weight` has a row for each output. None if the sizes do not match.
    pub fn new(kernel: Kernel, weight: &[f32], bias: &[f32], inputs: usize) -> Option<Matrix> {
        let outputs = bias.len();
        if inputs == 0 || weight.len() != inputs.checked_mul(outputs)? {
            return None;
        }
        let mut matrix = Matrix::default();
        matrix.fill(kernel, product::Rows { numbers: weight, stride: inputs }, inputs, outputs);
        for (panel, bias) in matrix.bias.iter_mut().zip(bias.chunks(PANEL)) {
            panel[..bias.len()].copy_from_slice(bias);
        }
        Some(matrix)
    }

    /// Replaces the content, without a bias. `rows` has a row of inputs for each output.
    pub fn fill(&mut self, kernel: Kernel, rows: product::Rows, inputs: usize, outputs: usize) {
        let (panels, of_panel) = (outputs.div_ceil(PANEL), blocks_of(inputs));
        (self.bits, self.inputs, self.outputs) = (kernel.bits(), inputs, outputs);
        // All blocks of existing outputs are overwritten below.
        self.blocks.resize(panels * of_panel, Weights::ZERO);
        self.bias.clear();
        self.bias.resize(panels, [0.0; PANEL]);
        let mut rounded = vec![Inputs::ZERO; of_panel];
        for (panel, blocks) in self.blocks.chunks_exact_mut(of_panel.max(1)).enumerate() {
            for place in 0..PANEL.min(outputs - panel * PANEL) {
                let row = &rows.numbers[(panel * PANEL + place) * rows.stride..][..inputs];
                kernel.round(row, &mut rounded);
                for (block, inputs) in blocks.iter_mut().zip(&rounded) {
                    block.put(place, inputs, self.bits);
                }
            }
        }
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes rows · weight + bias for some outputs, which begin with a panel. Each row of `out` gets the
    /// outputs of one row.
    ///
    /// Panics if the sizes do not match, or if rows or matrix belong to a kernel with another number of bits.
    pub fn multiply(
        &self,
        kernel: Kernel,
        rows: &RoundedRows,
        outputs: Range<usize>,
        out: &mut [&mut [f32]],
    ) {
        assert!(rows.inputs == self.inputs && outputs.end <= self.outputs && out.len() == rows.count);
        assert!(outputs.start.is_multiple_of(PANEL));
        assert!(rows.bits == kernel.bits() && self.bits == kernel.bits());
        match kernel {
            Kernel::Portable(kernel) => self.multiply_by(kernel, rows, outputs, out),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(kernel) => self.multiply_by(kernel, rows, outputs, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(kernel) => self.multiply_by(kernel, rows, outputs, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(kernel) => self.multiply_by(kernel, rows, outputs, out),
        }
    }

    fn multiply_by<C: Compute>(
        &self,
        compute: C,
        rows: &RoundedRows,
        outputs: Range<usize>,
        out: &mut [&mut [f32]],
    ) {
        if rows.count == 0 {
            return;
        }
        // Tiles have about the same size, which is better than full tiles and a remainder.
        let size = rows.count.div_ceil(rows.count.div_ceil(C::ROWS));
        for first_output in outputs.clone().step_by(PANEL) {
            for first_row in (0..rows.count).step_by(size) {
                let at = TilePosition { first_output, first_row, size, outputs: outputs.clone() };
                match size.min(rows.count - first_row) {
                    1 => self.tile::<C, 1>(compute, rows, at, out),
                    2 => self.tile::<C, 2>(compute, rows, at, out),
                    3 => self.tile::<C, 3>(compute, rows, at, out),
                    4 => self.tile::<C, 4>(compute, rows, at, out),
                    5 => self.tile::<C, 5>(compute, rows, at, out),
                    _ => self.tile::<C, 6>(compute, rows, at, out),
                }
            }
        }
    }

    #[inline(always)]
    fn tile<C: Compute, const M: usize>(
        &self,
        compute: C,
        rows: &RoundedRows,
        at: TilePosition,
        out: &mut [&mut [f32]],
    ) {
        let (panel, of_panel) = (at.first_output / PANEL, blocks_of(self.inputs));
        let blocks = &self.blocks[panel * of_panel..(panel + 1) * of_panel];
        let behind = &self.blocks[(panel + 1) * of_panel..];
        let next = Ahead::of(&behind[..of_panel.min(behind.len())]);
        let next = next.part(at.first_row / at.size, rows.count.div_ceil(at.size));
        let panel = Panel { blocks, bias: &self.bias[panel], next };
        let rows = std::array::from_fn(|i| rows.row(at.first_row + i));
        let width = PANEL.min(at.outputs.end - at.first_output);
        let start = at.first_output - at.outputs.start;
        let out = &mut out[at.first_row..][..M];
        if width == PANEL {
            return compute.tile::<M>(rows, panel, out, start);
        }
        let mut all = [[0.0; PANEL]; M];
        compute.tile::<M>(rows, panel, &mut all.each_mut().map(|row| &mut row[..]), 0);
        for (out, all) in out.iter_mut().zip(&all) {
            out[start..start + width].copy_from_slice(&all[..width]);
        }
    }
}

/// The position of a tile among the outputs.
struct TilePosition {
    first_output: usize,
    first_row: usize,
    /// The number of rows of a tile.
    size: usize,
    outputs: Range<usize>,
}
