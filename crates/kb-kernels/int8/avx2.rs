//! The kernel for AVX2. vpmaddubsw multiplies unsigned by signed numbers and adds pairs of products in 16
//! bits, which is enough for four products of 7-bit numbers. Two such sums are therefore added before they
//! are extended to 32 bits. With 8-bit numbers each pair would have to be extended by itself, which takes one
//! more multiplication. Measured, that is slower than f32 on processors that multiply integers at half the
//! speed of floats (AMD before Zen 3).

use super::{
    BLOCK, Compute, GROUP, HALF, Inputs, PANEL, Panel, UNSIGNED, Weights, padded, scale, shift, write,
};
use std::arch::x86_64::*;

/// The bits of an integer.
const BITS: u32 = 7;
/// The number of outputs in a register.
const LANES: usize = 8;
/// The number of registers for a panel.
const PARTS: usize = PANEL / LANES;

/// A value exists only on machines that have the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    pub fn find() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }
}

impl Compute for Avx2 {
    /// Each row needs four registers of sums and two of inputs, which makes 12 of 16.
    const ROWS: usize = 2;
    const BITS: u32 = BITS;

    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize) {
        let mut sums = [*panel.bias; M];
        // SAFETY: self exists only on machines that have the instructions.
        unsafe { tile(rows, panel.blocks, &mut sums) }
        write(&sums, out, start);
    }

    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        // SAFETY: as above.
        unsafe { round_row(row, blocks) }
    }
}

#[target_feature(enable = "avx2,fma")]
fn round_row(row: &[f32], blocks: &mut [Inputs]) {
    let (whole, rest) = row.as_chunks::<BLOCK>();
    for (numbers, block) in whole.iter().zip(blocks.iter_mut()) {
        round_block(numbers, block);
    }
    if let (false, Some(block)) = (rest.is_empty(), blocks.last_mut()) {
        round_block(&padded(rest), block);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn round_block(numbers: &[f32; BLOCK], block: &mut Inputs) {
    let (parts, _) = numbers.as_chunks::<LANES>();
    // SAFETY: each array is as large as the register.
    let numbers = [0, 1, 2, 3].map(|part| unsafe { _mm256_loadu_ps(parts[part].as_ptr()) });
    let mut sizes = [_mm256_setzero_si256(); 4];
    for (size, numbers) in sizes.iter_mut().zip(numbers) {
        *size = _mm256_and_si256(_mm256_castps_si256(numbers), _mm256_set1_epi32(UNSIGNED as i32));
    }
    let largest =
        _mm256_max_epu32(_mm256_max_epu32(sizes[0], sizes[1]), _mm256_max_epu32(sizes[2], sizes[3]));
    let half = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256::<1>(largest));
    let quarter = _mm_max_epu32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
    let last = _mm_max_epu32(quarter, _mm_shuffle_epi32::<0b10_11_00_01>(quarter));
    let [scale, inverse] = scale(_mm_cvtsi128_si32(last) as u32, BITS);
    block.scale = scale;
    let (inverse, shift) = (_mm256_set1_ps(inverse), _mm256_set1_epi16(shift(BITS) as i16));
    let mut whole = [_mm256_setzero_si256(); 4];
    for (whole, numbers) in whole.iter_mut().zip(numbers) {
        // Rounds to the nearest integer, ties to even.
        *whole = _mm256_cvtps_epi32(_mm256_mul_ps(numbers, inverse));
    }
    let first = _mm256_add_epi16(_mm256_packs_epi32(whole[0], whole[1]), shift);
    let second = _mm256_add_epi16(_mm256_packs_epi32(whole[2], whole[3]), shift);
    // Each half of a register was packed by itself.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
    // SAFETY: the array is as large as the register.
    unsafe { _mm256_storeu_si256(block.numbers.as_mut_ptr().cast(), bytes) };
}

#[target_feature(enable = "avx2,fma")]
fn tile<const M: usize>(rows: [&[Inputs]; M], panel: &[Weights], sums: &mut [[f32; PANEL]; M]) {
    let mut rows = rows;
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    let ones = _mm256_set1_epi16(1);
    for (block, weights) in panel.iter().enumerate() {
        let mut products = [[_mm256_setzero_si256(); PARTS]; M];
        for part in 0..PARTS {
            let offsets = load_i32(&weights.offsets[part / 2], part % 2);
            products.iter_mut().for_each(|products| products[part] = offsets);
        }
        for (pair, numbers) in weights.numbers.as_chunks::<2>().0.iter().enumerate() {
            let mut inputs = [[_mm256_setzero_si256(); 2]; M];
            for i in 0..M {
                let group = |group| _mm256_set1_epi32(rows[i][block].group(2 * pair + group));
                inputs[i] = [group(0), group(1)];
            }
            for part in 0..PARTS {
                let numbers =
                    [load_i8(&numbers[0][part / 2], part % 2), load_i8(&numbers[1][part / 2], part % 2)];
                for i in 0..M {
                    let sums = _mm256_add_epi16(
                        _mm256_maddubs_epi16(inputs[i][0], numbers[0]),
                        _mm256_maddubs_epi16(inputs[i][1], numbers[1]),
                    );
                    products[i][part] = _mm256_add_epi32(products[i][part], _mm256_madd_epi16(sums, ones));
                }
            }
        }
        for i in 0..M {
            let scale = _mm256_set1_ps(rows[i][block].scale);
            let (sums, _) = sums[i].as_chunks_mut::<LANES>();
            for part in 0..PARTS {
                let scales = load_f32(&weights.scales[part / 2], part % 2);
                let product = _mm256_cvtepi32_ps(products[i][part]);
                // SAFETY: the array is as large as the register.
                unsafe {
                    let before = _mm256_loadu_ps(sums[part].as_ptr());
                    let after = _mm256_fmadd_ps(product, _mm256_mul_ps(scale, scales), before);
                    _mm256_storeu_ps(sums[part].as_mut_ptr(), after);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_i8(numbers: &[i8; HALF * GROUP], part: usize) -> __m256i {
    let (parts, _) = numbers.as_chunks::<{ LANES * GROUP }>();
    // SAFETY: the array is as large as the register.
    unsafe { _mm256_loadu_si256(parts[part].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_i32(numbers: &[i32; HALF], part: usize) -> __m256i {
    let (parts, _) = numbers.as_chunks::<LANES>();
    // SAFETY: the array is as large as the register.
    unsafe { _mm256_loadu_si256(parts[part].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(numbers: &[f32; HALF], part: usize) -> __m256 {
    let (parts, _) = numbers.as_chunks::<LANES>();
    // SAFETY: the array is as large as the register.
    unsafe { _mm256_loadu_ps(parts[part].as_ptr()) }
}
