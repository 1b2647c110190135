//! Matrix products by the kernels of crate gemm, the instruction set being the caller's choice. (gemm itself always
//! takes the best that the machine has.)

use super::InstructionSet;
use candle_core::{CpuStorage, CustomOp2, Error, Layout, Result, Shape};
use gemm_common::Parallelism;

/// The product of two tensors of f32, as `Tensor::matmul` gives it: each a matrix, or each as many matrices.
pub struct Product(pub InstructionSet);

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "product"
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
            multiply(self.0, left.at(i), right.at(i), out);
        }
        let mut dims = left_layout.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = right.columns;
        }
        Ok((CpuStorage::F32(out), dims.into()))
    }
}

/// Matrices of one size. Every element of each lies within `numbers`.
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
    /// None unless the layout is that of matrices that lie within the numbers.
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
fn multiply(set: InstructionSet, left: Matrix, right: Matrix, out: &mut [f32]) {
    assert!(left.columns == right.rows && out.len() == left.rows * right.columns);
    assert!(is_available(set), "{set:?} on a machine without it");
    let threads = candle_core::utils::get_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // The kernels write columns: transposed, the rows of `out` are columns.
    // SAFETY: the elements of left and right lie within their slices (Matrices::new), out has exactly the elements of
    // the product and is nobody else's, and the machine has the instructions.
    unsafe {
        kernel(set)(
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
            parallelism,
        );
    }
}

/// m, n, k; dst, its column and row stride, whether it is added to; lhs, rhs and their column and row strides; the
/// factors of dst and of the product; what is to be conjugated; threads. As crate gemm-f32 declares it.
type Kernel = unsafe fn(
    usize,
    usize,
    usize,
    *mut f32,
    isize,
    isize,
    bool,
    *const f32,
    isize,
    isize,
    *const f32,
    isize,
    isize,
    f32,
    f32,
    bool,
    bool,
    bool,
    Parallelism,
);

/// As `gemm_common::gemm_def` does it, which keeps these to itself.
macro_rules! kernel {
    ($name: ident, $module: ident, $simd: ty, $width: literal) => {
        #[allow(clippy::too_many_arguments)]
        unsafe fn $name(
            m: usize,
            n: usize,
            k: usize,
            dst: *mut f32,
            dst_cs: isize,
            dst_rs: isize,
            read_dst: bool,
            lhs: *const f32,
            lhs_cs: isize,
            lhs_rs: isize,
            rhs: *const f32,
            rhs_cs: isize,
            rhs_rs: isize,
            alpha: f32,
            beta: f32,
            conj_dst: bool,
            conj_lhs: bool,
            conj_rhs: bool,
            parallelism: Parallelism,
        ) {
            use gemm_f32::microkernel::$module::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
            let Some(simd) = try_new::<$simd>() else { return };
            // SAFETY: what the caller promises is what this asks; simd is proof of the instructions.
            unsafe {
                gemm_common::gemm::gemm_basic_generic::<
                    _,
                    f32,
                    $width,
                    { MR_DIV_N * $width },
                    NR,
                    MR_DIV_N,
                    H_M,
                    H_N,
                >(
                    simd,
                    m,
                    n,
                    k,
                    dst,
                    dst_cs,
                    dst_rs,
                    read_dst,
                    lhs,
                    lhs_cs,
                    lhs_rs,
                    rhs,
                    rhs_cs,
                    rhs_rs,
                    alpha,
                    beta,
                    conj_dst,
                    conj_lhs,
                    conj_rhs,
                    |a, b, c| a * b + c,
                    &UKR,
                    &H_UKR,
                    false,
                    parallelism,
                )
            }
        }
    };
}

/// None on a machine that has not the instructions.
fn try_new<S: gemm_common::simd::MixedSimd<f32, f32, f32, f32>>() -> Option<S> {
    S::try_new()
}

kernel!(portable, scalar, gemm_common::simd::Scalar, 1);
#[cfg(target_arch = "x86_64")]
kernel!(avx2, fma, gemm_common::simd::V3, 8);
#[cfg(target_arch = "x86_64")]
kernel!(avx512, avx512f, gemm_common::simd::V4, 16);

pub fn is_available(set: InstructionSet) -> bool {
    match set {
        InstructionSet::Portable => true,
        InstructionSet::Neon => cfg!(target_arch = "aarch64"),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => try_new::<gemm_common::simd::V3>().is_some(),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => try_new::<gemm_common::simd::V4>().is_some(),
        #[cfg(not(target_arch = "x86_64"))]
        InstructionSet::Avx2 | InstructionSet::Avx512 => false,
    }
}

fn kernel(set: InstructionSet) -> Kernel {
    match set {
        InstructionSet::Portable => portable,
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => avx2,
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => avx512,
        // The one that gemm chooses: on AArch64 there is no other.
        _ => gemm_f32::gemm::f32::get_gemm_fn(),
    }
}
