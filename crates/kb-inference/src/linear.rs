//! A linear layer, in f32 or with weights and inputs rounded to 8 bits.

use super::share;
use super::weights::Weights;
use kb_kernels::memory::Memory;
use kb_kernels::product::{Panels, Rows};
use kb_kernels::rows::{Activation, activate};
use kb_kernels::{InstructionSet, Simd, int8};
use kb_types::Compute;

type Result<T, E = String> = std::result::Result<T, E>;

/// x · weight + bias, for rows x.
pub struct Linear {
    weight: Weight,
    simd: Simd,
    inputs: usize,
    outputs: usize,
}

enum Weight {
    F32 { panels: Panels, bias: Vec<f32> },
    Int8 { matrix: int8::Matrix, kernel: int8::Kernel },
}

/// The buffers in which the layers of a pass are computed, one after the other.
pub struct Scratch {
    rows: int8::RoundedRows,
    /// How many threads share each layer.
    pub threads: usize,
}

impl Scratch {
    pub fn new(threads: usize) -> Scratch {
        Scratch { rows: int8::RoundedRows::default(), threads }
    }
}

/// How layers are computed.
#[derive(Clone, Copy)]
pub struct Way {
    /// None for f32.
    pub int8: Option<int8::Kernel>,
    pub simd: Simd,
}

impl Way {
    pub fn new(compute: Compute, set: InstructionSet) -> Way {
        let int8 = (compute == Compute::Int8).then(|| set.int8());
        Way { int8, simd: Simd::of(set).unwrap_or_else(Simd::best) }
    }
}

impl Linear {
    /// The shape in the file is (outputs, inputs).
    pub fn load(
        weights: &mut Weights,
        name: &str,
        inputs: usize,
        outputs: usize,
        way: Way,
        memory: &mut Memory,
    ) -> Result<Linear> {
        let weight = weights.numbers(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = weights.numbers(&format!("{name}.bias"), &[outputs])?;
        Linear::new(&weight, bias, inputs, way, memory)
    }

    /// `weight` has a row for each output.
    pub fn new(
        weight: &[f32],
        bias: Vec<f32>,
        inputs: usize,
        way: Way,
        memory: &mut Memory,
    ) -> Result<Linear> {
        let Way { int8, simd } = way;
        let outputs = bias.len();
        let problem = || "a weight matrix cannot be used".to_string();
        let weight = match int8 {
            Some(kernel) => {
                let matrix = int8::Matrix::new(kernel, weight, &bias, inputs).ok_or_else(problem)?;
                Weight::Int8 { matrix, kernel }
            }
            _ if weight.len() != inputs * outputs => return Err(problem()),
            _ => {
                let mut panels = Panels::in_memory(memory, simd, inputs, outputs);
                panels.fill_transposed(simd, Rows { numbers: weight, stride: inputs }, inputs, outputs);
                Weight::F32 { panels, bias }
            }
        };
        Ok(Linear { weight, simd, inputs, outputs })
    }

    /// `x` and `out` have contiguous rows. The activation is applied to the outputs.
    pub fn apply(&self, x: &[f32], out: &mut [f32], scratch: &mut Scratch, then: Option<Activation>) {
        let Linear { weight, simd, inputs, outputs } = self;
        let unit = match weight {
            Weight::F32 { .. } => simd.panel(),
            Weight::Int8 { kernel, .. } => {
                let rows = Rows { numbers: x, stride: *inputs };
                scratch.rows.round(*kernel, rows, *inputs, x.len() / inputs);
                int8::PANEL
            }
        };
        let rounded = &scratch.rows;
        share::columns(out, *outputs, unit, scratch.threads, |columns, out| {
            match weight {
                Weight::F32 { panels, bias } => {
                    let rows = Rows { numbers: x, stride: *inputs };
                    panels.multiply(*simd, rows, columns, Some(bias), out);
                }
                Weight::Int8 { matrix, kernel } => matrix.multiply(*kernel, rounded, columns, out),
            }
            if let Some(activation) = then {
                out.iter_mut().for_each(|row| activate(*simd, row, activation));
            }
        });
    }
}
