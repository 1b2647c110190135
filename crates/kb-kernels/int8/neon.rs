//! The kernel for AArch64's sdot, which multiplies 16 pairs of numbers and adds the products in fours to four
//! sums.

use super::{BITS, Compute, GROUP, HALF, Inputs, PANEL, Panel, Weights, round, write};
use std::arch::aarch64::*;
use std::arch::asm;

/// The number of outputs in a register.
const LANES: usize = 4;
/// The number of registers for half a panel.
const PARTS: usize = HALF / LANES;
/// The shift of four inputs.
const SHIFTS: i32 = i32::from_ne_bytes([0x80; 4]);

/// A value exists only on machines that have the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

impl Neon {
    pub fn find() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Neon(()))
    }
}

impl Compute for Neon {
    /// Each row needs eight registers (four of integer sums and four of sums in f32) for half a panel at a
    /// time, which makes 24 of 32.
    const ROWS: usize = 3;

    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize) {
        let mut sums = [*panel.bias; M];
        // SAFETY: self exists only on machines that have the instructions.
        unsafe { tile(rows, panel.blocks, &mut sums) }
        write(&sums, out, start);
    }

    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        // Every machine of this architecture has NEON.
        round(row, blocks, BITS);
    }
}

#[target_feature(enable = "neon,dotprod")]
fn tile<const M: usize>(rows: [&[Inputs]; M], panel: &[Weights], sums: &mut [[f32; PANEL]; M]) {
    let mut rows = rows;
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    for half in 0..2 {
        let mut totals = [[vdupq_n_f32(0.0); PARTS]; M];
        for (block, weights) in panel.iter().enumerate() {
            let mut products = [[vdupq_n_s32(0); PARTS]; M];
            for (group, numbers) in weights.numbers.iter().enumerate() {
                let numbers = load_i8(&numbers[half]);
                for i in 0..M {
                    let inputs = vreinterpretq_s8_s32(vdupq_n_s32(rows[i][block].group(group) ^ SHIFTS));
                    for part in 0..PARTS {
                        products[i][part] = dot(products[i][part], inputs, numbers[part]);
                    }
                }
            }
            let scales = load_f32(&weights.scales[half]);
            for i in 0..M {
                for part in 0..PARTS {
                    let scale = vmulq_n_f32(scales[part], rows[i][block].scale);
                    totals[i][part] = vfmaq_f32(totals[i][part], vcvtq_f32_s32(products[i][part]), scale);
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            let sums = &mut sums.as_chunks_mut::<HALF>().0[half];
            let before = load_f32(sums);
            for (part, sums) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: the array is as large as the register.
                unsafe { vst1q_f32(sums.as_mut_ptr(), vaddq_f32(before[part], totals[part])) };
            }
        }
    }
}

/// The intrinsic for this instruction, vdotq_s32, is not stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes only the named registers, and the caller's machine has it.
    unsafe {
        asm!("sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b", sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn load_i8(numbers: &[i8; HALF * GROUP]) -> [int8x16_t; PARTS] {
    let (parts, _) = numbers.as_chunks::<{ LANES * GROUP }>();
    let [a, b, c, d] = [0, 1, 2, 3].map(|part| parts[part].as_ptr());
    // SAFETY: each array is as large as the register.
    unsafe { [vld1q_s8(a), vld1q_s8(b), vld1q_s8(c), vld1q_s8(d)] }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(numbers: &[f32; HALF]) -> [float32x4_t; PARTS] {
    let (parts, _) = numbers.as_chunks::<LANES>();
    let [a, b, c, d] = [0, 1, 2, 3].map(|part| parts[part].as_ptr());
    // SAFETY: each array is as large as the register.
    unsafe { [vld1q_f32(a), vld1q_f32(b), vld1q_f32(c), vld1q_f32(d)] }
}
