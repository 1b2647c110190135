//! Vector instructions by crate rten-simd, of a named instruction set.

use super::InstructionSet;
use rten_simd::SimdOp;
#[cfg(target_arch = "aarch64")]
use rten_simd::isa::ArmNeonIsa;
use rten_simd::isa::GenericIsa;
#[cfg(target_arch = "x86_64")]
use rten_simd::isa::{Avx2Isa, Avx512Isa};

/// An instruction set that this machine has.
#[derive(Clone, Copy)]
pub enum Simd {
    Portable(GenericIsa),
    #[cfg(target_arch = "aarch64")]
    Neon(ArmNeonIsa),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Isa),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Isa),
}

impl Simd {
    /// None if this machine does not have the set.
    pub fn of(set: InstructionSet) -> Option<Simd> {
        match set {
            InstructionSet::Portable => Some(Simd::Portable(GenericIsa::new())),
            InstructionSet::Native => Some(Simd::best()),
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => ArmNeonIsa::new().map(Simd::Neon),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => Avx2Isa::new().map(Simd::Avx2),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    pub fn best() -> Simd {
        #[cfg(target_arch = "x86_64")]
        if let Some(isa) = Avx512Isa::new() {
            return Simd::Avx512(isa);
        }
        let known = [InstructionSet::Avx2, InstructionSet::Neon];
        known.into_iter().find_map(Simd::of).unwrap_or(Simd::Portable(GenericIsa::new()))
    }

    /// Evaluates an operation that is compiled for each set.
    #[inline]
    pub(crate) fn run<Op: SimdOp>(self, op: Op) -> Op::Output {
        match self {
            Simd::Portable(isa) => op.eval(isa),
            // Every machine of this target has it.
            #[cfg(target_arch = "aarch64")]
            Simd::Neon(isa) => op.eval(isa),
            // SAFETY: an Avx2Isa exists only on machines that have the features for which the function is
            // compiled.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2(isa) => unsafe { by_avx2(isa, op) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(isa) => unsafe { by_avx512(isa, op) },
        }
    }
}

/// The features are those that rten-simd looks for before it makes an `Avx2Isa`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,avx2,fma,f16c")]
fn by_avx2<Op: SimdOp>(isa: Avx2Isa, op: Op) -> Op::Output {
    op.eval(isa)
}

/// As for an `Avx512Isa`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
fn by_avx512<Op: SimdOp>(isa: Avx512Isa, op: Op) -> Op::Output {
    op.eval(isa)
}
