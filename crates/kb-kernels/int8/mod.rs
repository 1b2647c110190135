//! Products of a matrix of weights and rows of inputs in 8 bits.
//!
//! Weights and inputs are rounded to integers from -127 to 127 (with AVX2 from -63 to 63, see avx2.rs). Every
//! 32 inputs of a row, and every 32 weights of an output, share a scale (with AVX-512 the scales of rows are
//! powers of two, see avx512.rs). This is block-wise symmetric quantisation (Dettmers et al., "8-bit
//! Optimizers via Block-wise Quantization", 2022), in the layout of llama.cpp's Q8_0. Sums within a block are
//! exact, in 32 bits, and blocks are added in f32. For the same integers the results of the instruction sets
//! therefore differ only by the rounding of the final sums.
//!
//! Loops and sizes are safe code. Only loads and stores of fixed arrays, and calls of functions for an
//! instruction set that the machine has, are `unsafe`. `tools/sanitize.sh` runs the tests under a sanitizer.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod matrix;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

pub use matrix::{Matrix, RoundedRows};

use super::ahead::Ahead;

/// The number of inputs that share a scale.
const BLOCK: usize = 32;
/// The number of outputs that are computed together.
pub const PANEL: usize = 32;
/// The number of inputs that one instruction sums.
const GROUP: usize = 4;
const GROUPS: usize = BLOCK / GROUP;
/// Half a panel, whose sums fit into one register of 512 bits.
const HALF: usize = PANEL / 2;
/// The bits of an integer.
const BITS: u32 = 8;
/// The bits of a number without its sign.
const UNSIGNED: u32 = u32::MAX >> 1;
/// A block whose numbers are all smaller counts as zero, so that the inverse of the scale is finite.
const LEAST: f32 = 1e-30;

/// The weights of the outputs of a panel for the inputs of a block.
#[derive(Clone)]
#[repr(C, align(64))]
struct Weights {
    /// For each group and half: output after output, the numbers for the inputs of the group.
    numbers: [[[i8; HALF * GROUP]; 2]; GROUPS],
    scales: [[f32; HALF]; 2],
    /// Compensates for the shift of inputs: -shift · the sum of the numbers of an output.
    offsets: [[i32; HALF]; 2],
}

impl Weights {
    const ZERO: Weights = Weights {
        numbers: [[[0; HALF * GROUP]; 2]; GROUPS],
        scales: [[0.0; HALF]; 2],
        offsets: [[0; HALF]; 2],
    };

    /// Sets the weights of the output at this place of the panel, with this number of bits.
    #[inline]
    fn put(&mut self, place: usize, inputs: &Inputs, bits: u32) {
        let (half, lane) = (place / HALF, place % HALF);
        let shift = shift(bits);
        // At most from -127 to 127.
        let numbers = inputs.numbers.map(|number| number.wrapping_sub(shift as u8) as i8);
        let sum: i32 = numbers.iter().map(|number| i32::from(*number)).sum();
        for (group, numbers) in self.numbers.iter_mut().zip(numbers.as_chunks::<GROUP>().0) {
            group[half].as_chunks_mut::<GROUP>().0[lane] = *numbers;
        }
        self.scales[half][lane] = inputs.scale;
        self.offsets[half][lane] = -(shift as i32) * sum;
    }
}

/// The part of a matrix that a tile reads.
#[derive(Clone, Copy)]
struct Panel<'a> {
    blocks: &'a [Weights],
    bias: &'a [f32; PANEL],
    /// A part of the next panel, which the tiles of this panel prefetch.
    next: Ahead,
}

/// A block of a row.
#[derive(Clone)]
#[repr(C, align(4))]
struct Inputs {
    /// The numbers with [`shift`] added.
    numbers: [u8; BLOCK],
    /// The scale, or for a row of inputs with AVX-512 its exponent.
    scale: f32,
}

impl Inputs {
    const ZERO: Inputs = Inputs { numbers: [0; BLOCK], scale: 0.0 };

    /// The numbers of a group in their order in memory.
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

/// Computes with an instruction set. A value exists only on machines that have it.
trait Compute: Copy {
    /// The most rows of a tile that fit into the registers.
    const ROWS: usize;
    /// The bits of an integer.
    const BITS: u32 = BITS;

    /// Writes the products of some rows and a panel plus the bias into each row of `out` from `start` on.
    /// Rows and panel have the same number of blocks.
    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize);

    /// Rounds a row into `blocks`, whose number is [`blocks_of`] its length.
    fn round(self, row: &[f32], blocks: &mut [Inputs]);
}

/// An instruction set to compute with.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// Code that every machine runs.
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
    /// The kernels for this machine, the slowest first. It is never empty.
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

    /// Rounds a row of inputs for [`Compute::tile`] into `blocks`, whose number is [`blocks_of`] its length.
    fn round_inputs(self, row: &[f32], blocks: &mut [Inputs]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(kernel) => kernel.round_inputs(row, blocks),
            _ => self.round(row, blocks),
        }
    }

    /// Rounds the weights of an output.
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

/// The largest integer of this many bits.
const fn most(bits: u32) -> f32 {
    (shift(bits) - 1) as f32
}

/// Is added to inputs, because the instructions need them unsigned.
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

/// Rounds a row. It is compiled for each instruction set.
#[inline(always)]
fn round(row: &[f32], blocks: &mut [Inputs], bits: u32) {
    let (whole, rest) = row.as_chunks::<BLOCK>();
    // This is a loop, because closures of iterators are not compiled for the instruction set.
    for (numbers, block) in whole.iter().zip(blocks.iter_mut()) {
        round_block(numbers, block, bits);
    }
    if let (false, Some(block)) = (rest.is_empty(), blocks.last_mut()) {
        round_block(&padded(rest), block, bits);
    }
}

/// The remainder of a row as a block.
#[inline(always)]
fn padded(rest: &[f32]) -> [f32; BLOCK] {
    let mut numbers = [0.0; BLOCK];
    numbers[..rest.len()].copy_from_slice(rest);
    numbers
}

/// The scale of a block and its inverse, given the bits of the largest absolute value. These bits sort like
/// the numbers, with infinity and NaN last.
#[inline(always)]
fn scale(largest: u32, bits: u32) -> [f32; 2] {
    let largest = f32::from_bits(largest);
    if largest < LEAST { [0.0; 2] } else { [largest / most(bits), most(bits) / largest] }
}

#[inline(always)]
fn round_block(numbers: &[f32; BLOCK], block: &mut Inputs, bits: u32) {
    let [scale, inverse] = scale(numbers.iter().map(|x| x.to_bits() & UNSIGNED).fold(0, u32::max), bits);
    block.scale = scale;
    // An f32 from 2^23 to 2^24 has no fraction, so the addition rounds, ties to even.
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
