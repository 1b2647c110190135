//! Matrix products under the instruction set of the caller's choice. gemm, by which candle multiplies, always takes the
//! best that the machine has; for portable code its microkernels are called directly.

use super::InstructionSet;
use candle_core::{CpuStorage, CustomOp2, Error, Layout, Result, Shape, Tensor};
use gemm_common::Parallelism;
use gemm_common::simd::{MixedSimd, Scalar};

/// The product of two tensors of f32: each a matrix, or each as many matrices.
pub struct Product(pub InstructionSet);

impl Product {
    /// left · right. Views are multiplied without being copied.
    pub fn of(&self, left: &Tensor, right: &Tensor) -> Result<Tensor> {
        if self.0.is_candles() { left.matmul(right) } else { left.apply_op2_no_bwd(right, &Portable) }
    }
}

/// `Tensor::matmul` in portable code.
struct Portable;

impl CustomOp2 for Portable {
    fn name(&self) -> &'static str {
        "portable product"
    }

    fn cpu_fwd(
        &self,
        left: &CpuStorage,
        left_layout: &Layout,
        right: &CpuStorage,
        right_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let mismatch = || Error::Msg(format!("no product of {left_layout:?} and {right_layout:?}"));
        let left = Matrices::new(left.as_slice()?, left_layout).ok_or_else(mismatch)?;
        let right = Matrices::new(right.as_slice()?, right_layout).ok_or_else(mismatch)?;
        if left.columns != right.rows || left.count != right.count {
            return Err(mismatch());
        }
        let size = left.rows * right.columns;
        let mut out = vec![0f32; left.count * size];
        for (i, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
            multiply(left.at(i), right.at(i), out);
        }
        let mut dims = left_layout.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = right.columns;
        }
        Ok((CpuStorage::F32(out), dims.into()))
    }
}

/// Matrices of one size. Every element of each is within `numbers`.
struct Matrices<'a> {
    numbers: &'a [f32],
    count: usize,
    rows: usize,
    columns: usize,
    /// From a matrix, a row, a column to the next.
    strides: [usize; 3],
}

#[derive(Clone, Copy)]
struct Matrix<'a> {
    first: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
}

impl<'a> Matrices<'a> {
    /// None unless the layout is that of matrices that are within the numbers.
    fn new(numbers: &'a [f32], layout: &Layout) -> Option<Matrices<'a>> {
        let numbers = numbers.get(layout.start_offset()..)?;
        let ([count, rows, columns], strides) = match (layout.dims(), layout.stride()) {
            (&[rows, columns], &[row, column]) => ([1, rows, columns], [0, row, column]),
            (&[count, rows, columns], &[matrix, row, column]) => {
                ([count, rows, columns], [matrix, row, column])
            }
            _ => return None,
        };
        let is_empty = [count, rows, columns].contains(&0);
        let mut last = 0usize;
        for (size, stride) in [count, rows, columns].into_iter().zip(strides) {
            last = last.checked_add(size.saturating_sub(1).checked_mul(stride)?)?;
        }
        (is_empty || last < numbers.len() && isize::try_from(last).is_ok()).then_some(Matrices {
            numbers,
            count,
            rows,
            columns,
            strides,
        })
    }

    fn at(&self, i: usize) -> Matrix<'a> {
        let [matrix, row, column] = self.strides;
        Matrix {
            first: self.numbers.get(i * matrix..).unwrap_or_default(),
            rows: self.rows,
            columns: self.columns,
            row_stride: row as isize,
            column_stride: column as isize,
        }
    }
}

/// `out`, row after row, becomes left · right.
fn multiply(left: Matrix, right: Matrix, out: &mut [f32]) {
    use gemm_f32::microkernel::scalar::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
    assert!(left.columns == right.rows && out.len() == left.rows * right.columns);
    let Some(simd) = <Scalar as MixedSimd<f32, f32, f32, f32>>::try_new() else { return };
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // The kernels write columns: transposed, the rows of `out` are columns. As `gemm_common::gemm_def` calls it: the
    // width of the instructions is 1; m, n, k; dst, its column and row stride, whether it is added to; lhs, rhs and
    // their column and row strides; the factors of dst and of the product; what is to be conjugated.
    // SAFETY: the elements of left and right are within their slices (Matrices::new), and out has exactly the elements
    // of the product and is borrowed by nobody else.
    unsafe {
        gemm_common::gemm::gemm_basic_generic::<_, f32, 1, MR_DIV_N, NR, MR_DIV_N, H_M, H_N>(
            simd,
            right.columns,
            left.rows,
            left.columns,
            out.as_mut_ptr(),
            right.columns as isize,
            1,
            false,
            right.first.as_ptr(),
            right.row_stride,
            right.column_stride,
            left.first.as_ptr(),
            left.row_stride,
            left.column_stride,
            0.0,
            1.0,
            false,
            false,
            false,
            |a, b, c| a * b + c,
            &UKR,
            &H_UKR,
            false,
            parallelism,
        );
    }
}

/// Whether gemm takes it on this machine if it has no better one.
pub fn is_available(set: InstructionSet) -> bool {
    match set {
        InstructionSet::Portable | InstructionSet::Native => true,
        InstructionSet::Neon => cfg!(target_arch = "aarch64"),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => <gemm_common::simd::V3 as MixedSimd<f32, f32, f32, f32>>::try_new().is_some(),
        #[cfg(not(target_arch = "x86_64"))]
        InstructionSet::Avx2 => false,
    }
}
