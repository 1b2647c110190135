//! The kernels of local models, for the best instruction set of the machine or the one that
//! KB_INSTRUCTION_SET names.
//!
//! Products in f32 and functions of rows are written once over the vector types of crate rten-simd
//! (`simd.rs`). Products of 8-bit numbers (`int8/`) have a file per instruction set, because no library has
//! scales per block. Each kernel is compared with plain loops for random shapes. `make test-kernels` runs the
//! suite under each instruction set of the machine, on one core and on two, and `tools/sanitize.sh` runs
//! these tests under AddressSanitizer. Expected results are compared with a tolerance.

pub mod ahead;
pub mod int8;
pub mod memory;
pub mod product;
pub mod rotation;
pub mod rounded;
pub mod rows;
mod simd;

pub use simd::Simd;

/// An environment variable of the server, for tests and for machines that must give the same numbers.
pub const VARIABLE: &str = "KB_INSTRUCTION_SET";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// Code that every machine runs.
    Portable,
    /// AArch64.
    Neon,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// The best set of this machine, AVX-512 included.
    Native,
}

impl InstructionSet {
    /// The slowest first.
    const ALL: [InstructionSet; 4] =
        [InstructionSet::Portable, InstructionSet::Neon, InstructionSet::Avx2, InstructionSet::Native];

    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Neon => "neon",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Native => "native",
        }
    }

    /// The sets that this machine has, the slowest first. It is never empty.
    pub fn available() -> Vec<InstructionSet> {
        InstructionSet::ALL.into_iter().filter(|set| Simd::of(*set).is_some()).collect()
    }

    /// The best kernel for products in 8 bits within this set.
    pub fn int8(self) -> int8::Kernel {
        let mut kernels = int8::Kernel::available();
        let fitting = |kernel: &int8::Kernel| self == InstructionSet::Native || kernel.name() == self.name();
        let best = kernels.iter().rposition(fitting).unwrap_or(0);
        kernels.swap_remove(best)
    }

    /// The set to compute with.
    ///
    /// Returns an error if KB_INSTRUCTION_SET names a set that this machine does not have.
    pub fn chosen() -> Result<InstructionSet, String> {
        let wish = std::env::var_os(VARIABLE);
        InstructionSet::wished(wish.as_ref().map(|name| name.to_string_lossy()).as_deref())
    }

    fn wished(name: Option<&str>) -> Result<InstructionSet, String> {
        let available = InstructionSet::available();
        let found = match name {
            None | Some("") => available.last().copied(),
            Some(name) => available.iter().copied().find(|set| set.name() == name),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = available.iter().map(|set| set.name()).collect();
            format!(
                "\"{}\" is none of the instruction sets that this machine has: {}",
                name.unwrap_or_default(),
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests;
