//! With AVX2: vpmaddubsw multiplies numbers without a sign by numbers with one and adds each two products in 16 bits, which
//! is enough for those of 7 bits; so an input's sign is given to the weight.

use super::{Compute, GROUP, HALF, Inputs, PANEL, Weights, round};
use std::arch::x86_64::*;

/// Outputs of a register.
const LANES: usize = 8;
/// The shift of four inputs.
const SHIFTS: i32 = i32::from_ne_bytes([0x80; 4]);

/// There is one only where the instructions are.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    pub fn find() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }
}

impl Compute for Avx2 {
    /// With four registers each (two of sums in whole numbers, two in f32), half a panel at a time: 12 of 16.
    const ROWS: usize = 3;

    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: &[Weights], sums: &mut [[f32; PANEL]; M]) {
        // SAFETY: self is there, so the instructions are.
        unsafe { tile(rows, panel, sums) }
    }

    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        // SAFETY: as above.
        unsafe { round_row(row, blocks) }
    }
}

#[target_feature(enable = "avx2,fma")]
fn round_row(row: &[f32], blocks: &mut [Inputs]) {
    round(row, blocks);
}

#[target_feature(enable = "avx2,fma")]
fn tile<const M: usize>(rows: [&[Inputs]; M], panel: &[Weights], sums: &mut [[f32; PANEL]; M]) {
    let mut rows = rows;
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    let (shifts, ones) = (_mm256_set1_epi32(SHIFTS), _mm256_set1_epi16(1));
    for half in 0..2 {
        let mut totals = [[_mm256_setzero_ps(); 2]; M];
        for (block, weights) in panel.iter().enumerate() {
            let mut products = [[_mm256_setzero_si256(); 2]; M];
            for (group, numbers) in weights.numbers.iter().enumerate() {
                let numbers = load_i8(&numbers[half]);
                for i in 0..M {
                    let inputs = _mm256_xor_si256(_mm256_set1_epi32(rows[i][block].group(group)), shifts);
                    let sizes = _mm256_abs_epi8(inputs);
                    for part in 0..2 {
                        let pairs = _mm256_maddubs_epi16(sizes, _mm256_sign_epi8(numbers[part], inputs));
                        products[i][part] =
                            _mm256_add_epi32(products[i][part], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            let scales = load_f32(&weights.scales[half]);
            for i in 0..M {
                let scale = _mm256_set1_ps(rows[i][block].scale);
                for part in 0..2 {
                    let product = _mm256_cvtepi32_ps(products[i][part]);
                    totals[i][part] =
                        _mm256_fmadd_ps(product, _mm256_mul_ps(scale, scales[part]), totals[i][part]);
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            let sums = &mut sums.as_chunks_mut::<HALF>().0[half];
            let before = load_f32(sums);
            for (part, sums) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: the array is as large as the register.
                unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(before[part], totals[part])) };
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_i8(numbers: &[i8; HALF * GROUP]) -> [__m256i; 2] {
    let (parts, _) = numbers.as_chunks::<{ LANES * GROUP }>();
    // SAFETY: each array is as large as the register.
    unsafe { [_mm256_loadu_si256(parts[0].as_ptr().cast()), _mm256_loadu_si256(parts[1].as_ptr().cast())] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(numbers: &[f32; HALF]) -> [__m256; 2] {
    let (parts, _) = numbers.as_chunks::<LANES>();
    // SAFETY: each array is as large as the register.
    unsafe { [_mm256_loadu_ps(parts[0].as_ptr()), _mm256_loadu_ps(parts[1].as_ptr())] }
}
