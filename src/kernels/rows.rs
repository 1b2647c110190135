//! What is done to rows of numbers by themselves: norms, softmax, activations. By crate rten-vecmath.

use super::Simd;
use rten_simd::functional::simd_map;
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{ApproxGelu, Gelu, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

/// Makes each row its norm: Ba, Kiros, Hinton, "Layer Normalization", 2016. A row is as long as `weight` and `bias`.
///
/// Panics where these two are not as long as each other.
pub fn norm(simd: Simd, rows: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert!(weight.len() == bias.len());
    simd.run(Norm { rows, weight, bias, eps });
}

/// Adds to each number the one at its place.
///
/// Panics where there are not as many.
pub fn add(simd: Simd, numbers: &mut [f32], others: &[f32]) {
    assert!(numbers.len() == others.len());
    simd.run(Add { numbers, others });
}

struct Add<'a> {
    numbers: &'a mut [f32],
    others: &'a [f32],
}

impl SimdOp for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        self.numbers.iter_mut().zip(self.others).for_each(|(x, y)| *x += y);
    }
}

struct Norm<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
}

impl SimdOp for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Norm { rows, weight, bias, eps } = self;
        let size = weight.len();
        for row in rows.chunks_exact_mut(size.max(1)) {
            let mean = Sum::new(row).eval(isa) / size as f32;
            let variance = SumSquareSub::new(row, mean).eval(isa) / size as f32;
            let options = NormalizeOptions {
                pre_scale_bias: mean,
                scale: 1.0 / (variance + eps).sqrt(),
                element_scale: Some(weight),
                element_bias: Some(bias),
                ..NormalizeOptions::default()
            };
            Normalize::new_mut(row, options).eval(isa);
        }
    }
}

/// Makes each row of so many numbers its softmax.
pub fn softmax(simd: Simd, rows: &mut [f32], length: usize) {
    simd.run(Softmaxes { rows, length });
}

struct Softmaxes<'a> {
    rows: &'a mut [f32],
    length: usize,
}

impl SimdOp for Softmaxes<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for row in self.rows.chunks_exact_mut(self.length.max(1)) {
            Softmax::new_mut(row).eval(isa);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    Gelu,
    /// By the hyperbolic tangent.
    GeluTanh,
    Relu,
}

/// Makes each number its activation.
pub fn activate(simd: Simd, numbers: &mut [f32], activation: Activation) {
    simd.run(Activate { numbers, activation });
}

struct Activate<'a> {
    numbers: &'a mut [f32],
    activation: Activation,
}

impl SimdOp for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Activate { numbers, activation } = self;
        match activation {
            Activation::Gelu => {
                simd_map(
                    isa.f32(),
                    numbers,
                    #[inline(always)]
                    |x| Gelu {}.eval(isa, x),
                );
            }
            Activation::GeluTanh => {
                simd_map(
                    isa.f32(),
                    numbers,
                    #[inline(always)]
                    |x| ApproxGelu {}.eval(isa, x),
                );
            }
            Activation::Relu => numbers.iter_mut().for_each(|x| *x = x.max(0.0)),
        }
    }
}
