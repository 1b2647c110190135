//! The kernel for AVX-512. VNNI's vpdpbusd multiplies 64 pairs of numbers and adds the products in fours to
//! 16 sums.

use super::{BITS, BLOCK, Compute, GROUP, HALF, Inputs, LEAST, PANEL, Panel, UNSIGNED, padded, scale, shift};
use std::arch::x86_64::*;

/// A value exists only on machines that have the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    pub fn find() -> Option<Avx512> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Avx512(()))
    }
}

impl Compute for Avx512 {
    /// Each row needs two registers for sums of integers and two for sums in f32, which makes 24 of 32.
    const ROWS: usize = 6;

    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize) {
        // SAFETY: self exists only on machines that have the instructions.
        unsafe { tile(rows, panel, out, start) }
    }

    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        // SAFETY: as above.
        unsafe { round_row(row, blocks, |largest| scale(largest, BITS)) }
    }
}

impl Avx512 {
    /// Rounds a row of inputs. Their scales are powers of two, so that the multiplier, which vpdpbusd uses as
    /// well, need not apply them. The exponent is stored.
    pub(super) fn round_inputs(self, row: &[f32], blocks: &mut [Inputs]) {
        // SAFETY: as above.
        unsafe { round_row(row, blocks, power) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round_row(row: &[f32], blocks: &mut [Inputs], scale: impl Fn(u32) -> [f32; 2]) {
    let (whole, rest) = row.as_chunks::<BLOCK>();
    for (numbers, block) in whole.iter().zip(blocks.iter_mut()) {
        round_block(numbers, block, &scale);
    }
    if let (false, Some(block)) = (rest.is_empty(), blocks.last_mut()) {
        round_block(&padded(rest), block, &scale);
    }
}

/// The least power of two that can be the scale of a block, and its inverse, given the bits of the largest
/// absolute value.
#[inline(always)]
fn power(largest: u32) -> [f32; 2] {
    /// The number of bits of the fraction of an f32, and the exponent bits of 1.
    const FRACTION: u32 = 23;
    const ONE: i32 = 127;
    /// The distance from the fraction of 127 to the next power of two.
    const ABOVE: u32 = (1 << (FRACTION - 6)) - 1;
    if largest >= f32::INFINITY.to_bits() {
        return [f32::INFINITY, 0.0];
    }
    if f32::from_bits(largest) < LEAST {
        return [0.0; 2];
    }
    let power = ((largest + ABOVE) >> FRACTION) as i32 - ONE - (BITS as i32 - 2);
    [power as f32, f32::from_bits(((ONE - power) as u32) << FRACTION)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round_block(numbers: &[f32; BLOCK], block: &mut Inputs, scale: impl Fn(u32) -> [f32; 2]) {
    let (numbers, _) = numbers.as_chunks::<HALF>();
    let numbers = [load_f32(&numbers[0]), load_f32(&numbers[1])];
    let unsigned = |x| _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(UNSIGNED as i32));
    let largest = _mm512_reduce_max_epu32(_mm512_max_epu32(unsigned(numbers[0]), unsigned(numbers[1])));
    let [scale, inverse] = scale(largest);
    block.scale = scale;
    let (inverse, shift) = (_mm512_set1_ps(inverse), _mm512_set1_epi32(shift(BITS) as i32));
    for (bytes, numbers) in block.numbers.as_chunks_mut::<HALF>().0.iter_mut().zip(numbers) {
        // Rounds to the nearest integer, ties to even.
        let whole = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(numbers, inverse)), shift);
        // SAFETY: the array is as large as the register.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(whole)) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn tile<const M: usize>(
    rows: [&[Inputs]; M],
    Panel { blocks, bias, next }: Panel,
    out: &mut [&mut [f32]],
    start: usize,
) {
    let mut rows = rows;
    for row in &mut rows {
        *row = &row[..blocks.len()];
    }
    let (bias, _) = bias.as_chunks::<HALF>();
    let mut totals = [[load_f32(&bias[0]), load_f32(&bias[1])]; M];
    for (block, weights) in blocks.iter().enumerate() {
        // A little with each block, because fetching all at once would stall.
        next.part(block, blocks.len()).fetch();
        let mut products = [[load_i32(&weights.offsets[0]), load_i32(&weights.offsets[1])]; M];
        for (group, numbers) in weights.numbers.iter().enumerate() {
            let numbers = [load_i8(&numbers[0]), load_i8(&numbers[1])];
            for i in 0..M {
                let inputs = _mm512_set1_epi32(rows[i][block].group(group));
                for half in 0..2 {
                    products[i][half] = _mm512_dpbusd_epi32(products[i][half], inputs, numbers[half]);
                }
            }
        }
        let scales = [load_f32(&weights.scales[0]), load_f32(&weights.scales[1])];
        for i in 0..M {
            let power = _mm512_set1_ps(rows[i][block].scale);
            for half in 0..2 {
                let scale = _mm512_scalef_ps(scales[half], power);
                totals[i][half] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[i][half]), scale, totals[i][half]);
            }
        }
    }
    for (out, totals) in out.iter_mut().zip(totals) {
        for (out, total) in out[start..start + PANEL].as_chunks_mut::<HALF>().0.iter_mut().zip(totals) {
            // SAFETY: the array is as large as the register.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), total) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_i8(numbers: &[i8; HALF * GROUP]) -> __m512i {
    // SAFETY: the array is as large as the register.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_i32(numbers: &[i32; HALF]) -> __m512i {
    // SAFETY: the array is as large as the register.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_f32(numbers: &[f32; HALF]) -> __m512 {
    // SAFETY: the array is as large as the register.
    unsafe { _mm512_loadu_ps(numbers.as_ptr()) }
}
