//! A linear layer: in f32 by crate rten, or with weights and inputs rounded to 8 bits by `kernels::int8`.

use super::weights::Weights;
use crate::kernels::InstructionSet;
use crate::kernels::int8::{Kernel, Matrix, Rows};
use crate::model::Compute;
use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::NdTensorView;

type Result<T, E = String> = std::result::Result<T, E>;

/// Rows of which a product in 8 bits is shared between threads: of fewer it takes less time than waking one.
const SHARED: usize = 48;

/// x · weight + bias, for rows x.
pub enum Linear {
    F32 { weight: PackedBMatrix<f32>, bias: Vec<f32>, inputs: usize },
    Int8 { matrix: Matrix, kernel: Kernel },
}

/// What the layers of one pass are computed in, one after the other.
#[derive(Default)]
pub struct Scratch {
    rows: Rows,
    halves: [Vec<f32>; 2],
    /// Whether no other thread has a part of this pass, so that a product may be shared.
    pub is_alone: bool,
}

/// How layers are computed.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub compute: Compute,
    pub set: InstructionSet,
}

impl Linear {
    /// The file has (outputs, inputs).
    pub fn load(
        weights: &mut Weights,
        name: &str,
        inputs: usize,
        outputs: usize,
        way: Way,
    ) -> Result<Linear> {
        let weight = weights.numbers(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = weights.numbers(&format!("{name}.bias"), &[outputs])?;
        Linear::new(&weight, bias, inputs, way)
    }

    /// `weight`: a row for each output.
    pub fn new(weight: &[f32], bias: Vec<f32>, inputs: usize, way: Way) -> Result<Linear> {
        let outputs = bias.len();
        if way.compute == Compute::Int8 {
            let matrix = Matrix::new(weight, &bias, inputs).ok_or("a weight matrix cannot be used")?;
            return Ok(Linear::Int8 { matrix, kernel: way.set.int8() });
        }
        let view = NdTensorView::from_data_with_strides([inputs, outputs], weight, [1, inputs]);
        let view = view.map_err(|e| format!("a weight matrix cannot be used: {e:?}"))?;
        Ok(Linear::F32 { weight: gemm().prepack_b(view), bias, inputs })
    }

    /// `x` and `out` hold whole rows, one behind the other.
    pub fn apply(&self, x: &[f32], out: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        match self {
            Linear::F32 { weight, bias, inputs } => {
                let x = NdTensorView::from_data([x.len() / inputs.max(&1), *inputs], x);
                let bias = Some(BiasVector::Row(bias.as_slice()));
                let options = GemmOptions { bias, ..GemmOptions::default() };
                gemm()
                    .gemm(out, GemmInputA::Unpacked(x), GemmInputB::Packed(weight), options)
                    .map_err(problem)
            }
            Linear::Int8 { matrix, kernel } => {
                scratch.rows.round(*kernel, x, matrix.inputs());
                let is_long = out.len() >= SHARED * matrix.outputs();
                match scratch.is_alone && is_long && rayon::current_num_threads() > 1 {
                    true => share(matrix, *kernel, scratch, out),
                    false => matrix.multiply(*kernel, &scratch.rows, 0..matrix.outputs(), out),
                }
                Ok(())
            }
        }
    }
}

/// Half of the outputs each by two threads.
fn share(matrix: &Matrix, kernel: Kernel, scratch: &mut Scratch, out: &mut [f32]) {
    let Scratch { rows, halves: [first, second], .. } = scratch;
    let outputs = matrix.halves();
    let count = out.len() / matrix.outputs().max(1);
    let half = |half: &mut Vec<f32>, outputs: std::ops::Range<usize>| {
        half.resize(count * outputs.len(), 0.0);
        matrix.multiply(kernel, rows, outputs, half);
    };
    let [left, right] = outputs.clone();
    rayon::join(|| half(first, left), || half(second, right));
    for (row, out) in out.chunks_exact_mut(matrix.outputs().max(1)).enumerate() {
        for (half, outputs) in [&*first, &*second].into_iter().zip(&outputs) {
            let width = outputs.len();
            out[outputs.clone()].copy_from_slice(&half[row * width..(row + 1) * width]);
        }
    }
}

/// What multiplies in f32. Making one costs nothing: the best kernel of this machine is known.
pub fn gemm() -> GemmExecutor {
    GemmExecutor::new()
}

pub fn problem(error: impl std::fmt::Debug) -> String {
    format!("a matrix product failed: {error:?}")
}
