//! Products of a matrix of weights and rows of numbers in 8 bits.
//!
//! Weights and inputs are rounded to whole numbers from -127 to 127 (with AVX2 from -63 to 63: see there), and each 32 inputs (of a
//! row, or of what an output takes) share a scale (with AVX-512 those of a row are powers of two: see there): block-wise symmetric quantisation, as Dettmers et al. have it ("8-bit Optimizers
//! via Block-wise Quantization", 2022) and llama.cpp's Q8_0 lays it out. Sums within a block are exact, in 32 bits; blocks are added in f32. So of the same whole
//! numbers the result does not depend on the instruction set but for the rounding of these last sums.
//!
//! Loops and sizes are safe code; `unsafe` are the loads and stores of fixed arrays and the calls of functions for an
//! instruction set that was found on this machine. `tools/sanitize.sh` runs the tests under a sanitizer.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod matrix;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

pub use matrix::{Matrix, Rows};

use super::ahead::Ahead;

/// Inputs that share a scale.
const BLOCK: usize = 32;
/// Outputs that are computed together.
pub const PANEL: usize = 32;
/// Inputs that one instruction sums.
const GROUP: usize = 4;
const GROUPS: usize = BLOCK / GROUP;
/// Half a panel: what one register of 512 bits holds sums of.
const HALF: usize = PANEL / 2;
/// Bits of a whole number.
const BITS: u32 = 8;
/// The bits of a number but for its sign.
const UNSIGNED: u32 = u32::MAX >> 1;
/// A block whose numbers are all smaller is zero: the inverse of its scale is still a number.
const LEAST: f32 = 1e-30;

/// What a panel's outputs take of a block's inputs.
#[derive(Clone)]
#[repr(C, align(64))]
struct Weights {
    /// Of each group and half: output after output, the numbers of the group's inputs.
    numbers: [[[i8; HALF * GROUP]; 2]; GROUPS],
    scales: [[f32; HALF]; 2],
    /// What takes an input's shift out of the sum: -shift · the sum of an output's numbers.
    offsets: [[i32; HALF]; 2],
}

impl Weights {
    const ZERO: Weights = Weights {
        numbers: [[[0; HALF * GROUP]; 2]; GROUPS],
        scales: [[0.0; HALF]; 2],
        offsets: [[0; HALF]; 2],
    };

    /// What the output at this place of the panel takes, of so many bits.
    #[inline]
    fn put(&mut self, place: usize, inputs: &Inputs, bits: u32) {
        let (half, lane) = (place / HALF, place % HALF);
        let shift = shift(bits);
        // From -127 to 127 at most.
        let numbers = inputs.numbers.map(|number| number.wrapping_sub(shift as u8) as i8);
        let sum: i32 = numbers.iter().map(|number| i32::from(*number)).sum();
        for (group, numbers) in self.numbers.iter_mut().zip(numbers.as_chunks::<GROUP>().0) {
            group[half].as_chunks_mut::<GROUP>().0[lane] = *numbers;
        }
        self.scales[half][lane] = inputs.scale;
        self.offsets[half][lane] = -(shift as i32) * sum;
    }
}

/// What a tile reads of a matrix.
#[derive(Clone, Copy)]
struct Panel<'a> {
    blocks: &'a [Weights],
    bias: &'a [f32; PANEL],
    /// A part of what the tiles behind this one read: the tiles of this panel fetch the next one.
    next: Ahead,
}

/// A block of a row.
#[derive(Clone)]
#[repr(C, align(4))]
struct Inputs {
    /// Each with [`shift`] added.
    numbers: [u8; BLOCK],
    /// Of a row of inputs for AVX-512, the power of two that it is.
    scale: f32,
}

impl Inputs {
    const ZERO: Inputs = Inputs { numbers: [0; BLOCK], scale: 0.0 };

    /// A group's numbers as they lie in memory.
    #[inline(always)]
    fn group(&self, i: usize) -> i32 {
        let at = i * GROUP;
        i32::from_ne_bytes([
            self.numbers[at],
            self.numbers[at + 1],
            self.numbers[at + 2],
            self.numbers[at + 3],
        ])
    }
}

/// Computes with an instruction set that this machine has: there is no value of one that it lacks.
trait Compute: Copy {
    /// Rows of a tile at most: what fits into the registers.
    const ROWS: usize;
    /// Of a whole number.
    const BITS: u32 = BITS;

    /// Writes the products of some rows and a panel, and the bias, into `out`, of each row from `start` on; row and panel have the
    /// same number of blocks.
    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize);

    /// Rounds a row; `blocks` has [`blocks_of`] its length.
    fn round(self, row: &[f32], blocks: &mut [Inputs]);
}

/// An instruction set to compute with.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// What every machine has.
    Portable(portable::Portable),
    /// AArch64 with dot products (ARMv8.4, and most servers before it).
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    /// x86-64 with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    /// x86-64 with AVX-512 and its VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Kernel {
    /// Those of this machine, the slowest first; never empty.
    pub fn available() -> Vec<Kernel> {
        let mut kernels = vec![Kernel::Portable(portable::Portable)];
        #[cfg(target_arch = "aarch64")]
        kernels.extend(neon::Neon::find().map(Kernel::Neon));
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(avx2::Avx2::find().map(Kernel::Avx2));
            kernels.extend(avx512::Avx512::find().map(Kernel::Avx512));
        }
        kernels
    }

    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable(_) => "portable",
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(_) => "neon",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(_) => "avx512",
        }
    }

    fn bits(self) -> u32 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(_) => avx2::Avx2::BITS,
            _ => BITS,
        }
    }

    /// Rounds a row of inputs, as [`Compute::tile`] reads them; `blocks` has [`blocks_of`] its length.
    fn round_inputs(self, row: &[f32], blocks: &mut [Inputs]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(kernel) => kernel.round_inputs(row, blocks),
            _ => self.round(row, blocks),
        }
    }

    /// Rounds what an output takes.
    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        match self {
            Kernel::Portable(kernel) => kernel.round(row, blocks),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(kernel) => kernel.round(row, blocks),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(kernel) => kernel.round(row, blocks),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(kernel) => kernel.round(row, blocks),
        }
    }
}

/// The largest whole number of so many bits.
const fn most(bits: u32) -> f32 {
    (shift(bits) - 1) as f32
}

/// Added to an input, which instructions want without a sign.
const fn shift(bits: u32) -> u32 {
    1 << (bits - 1)
}

fn blocks_of(inputs: usize) -> usize {
    inputs.div_ceil(BLOCK)
}

/// Writes a tile.
#[inline(always)]
fn write<const M: usize>(sums: &[[f32; PANEL]; M], out: &mut [&mut [f32]], start: usize) {
    for (out, sums) in out.iter_mut().zip(sums) {
        out[start..start + PANEL].copy_from_slice(sums);
    }
}

/// Rounds a row. Compiled again for each instruction set.
#[inline(always)]
fn round(row: &[f32], blocks: &mut [Inputs], bits: u32) {
    let (whole, rest) = row.as_chunks::<BLOCK>();
    // A loop, since what a method of an iterator calls is not compiled for the instruction set.
    for (numbers, block) in whole.iter().zip(blocks.iter_mut()) {
        round_block(numbers, block, bits);
    }
    if let (false, Some(block)) = (rest.is_empty(), blocks.last_mut()) {
        round_block(&padded(rest), block, bits);
    }
}

/// The rest of a row as a block.
#[inline(always)]
fn padded(rest: &[f32]) -> [f32; BLOCK] {
    let mut numbers = [0.0; BLOCK];
    numbers[..rest.len()].copy_from_slice(rest);
    numbers
}

/// A block's scale and its inverse, given the bits of the largest number without their signs: they are in the order of the
/// numbers, infinity and NaN behind all others.
#[inline(always)]
fn scale(largest: u32, bits: u32) -> [f32; 2] {
    let largest = f32::from_bits(largest);
    if largest < LEAST { [0.0; 2] } else { [largest / most(bits), most(bits) / largest] }
}

#[inline(always)]
fn round_block(numbers: &[f32; BLOCK], block: &mut Inputs, bits: u32) {
    let [scale, inverse] = scale(numbers.iter().map(|x| x.to_bits() & UNSIGNED).fold(0, u32::max), bits);
    block.scale = scale;
    // A number of f32 from 2^23 to 2^24 has no digits behind the point: adding rounds, to even where two are as near.
    let add = 1.5 * (1 << 23) as f32 + shift(bits) as f32;
    let mut whole = [0u32; BLOCK];
    for (whole, x) in whole.iter_mut().zip(numbers) {
        *whole = (x * inverse + add).to_bits();
    }
    for (byte, whole) in block.numbers.iter_mut().zip(whole) {
        *byte = whole as u8;
    }
}

#[cfg(test)]
mod tests;
