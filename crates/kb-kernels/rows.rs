//! Functions of rows: norms, softmax and activations. All except [`Activation::Gelu`] use crate rten-vecmath.

use super::Simd;
use rten_simd::functional::simd_map;
use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{ApproxGelu, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

/// Normalises each row (Ba, Kiros, Hinton, "Layer Normalization", 2016). A row is as long as `weight` and
/// `bias`.
///
/// Panics if these two differ in length.
pub fn norm(simd: Simd, rows: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert!(weight.len() == bias.len());
    simd.run(Norm { rows, weight, bias, eps });
}

/// Adds two slices elementwise.
///
/// Panics if they differ in length.
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

/// Replaces each row of `length` numbers by its softmax.
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
    /// GELU approximated by the hyperbolic tangent.
    GeluTanh,
    Relu,
}

/// Beyond this many standard deviations the tail of the normal distribution does not change x · Φ(x) in f32.
const FAR: f32 = 5.5;
/// (Φ(x) - 1/2) / x as a rational function of x², the lowest power first, for x up to [`FAR`]. Φ is the
/// normal distribution function. The coefficients minimise the largest error of x · Φ(x) (2.2e-8 before
/// rounding to f32) and were found by Lawson's iteration, as Filip, Nakatsukasa, Trefethen and Beckermann
/// describe it for rational functions ("Rational Minimax Approximation via Adaptive Barycentric
/// Representations", 2018).
const OVER: [f32; 6] =
    [0.398_942, 0.035_142_37, 0.004_761_619, 1.828_585_6e-4, 6.530_740_3e-6, 2.221_589_6e-8];
const UNDER: [f32; 6] = [1.0, 0.254_752_46, 0.029_398_719, 0.001_962_436_8, 7.861_038e-5, 1.195_396_9e-6];

/// x · Φ(x): Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016. The error is at most 1.2e-6, or 1.2e-6
/// of x if that is more, and is largest beyond 3. An implementation by exp has half the error there, twice
/// the error near zero, and takes twice the time.
#[inline(always)]
fn gelu<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let far = ops.splat(-FAR);
    // `max` is not used, because its result for NaN is unspecified, and NaN must stay NaN.
    let x = ops.select(far, x, ops.lt(x, far));
    let near = ops.min(x, ops.splat(FAR));
    let square = ops.mul(near, near);
    let sum = |of: [f32; 6]| {
        let [rest @ .., last] = of.map(|number| ops.splat(number));
        rest.into_iter().rev().fold(last, |sum, number| ops.mul_add(sum, square, number))
    };
    let fraction = ops.div(sum(OVER), sum(UNDER));
    ops.mul(x, ops.mul_add(near, fraction, ops.splat(0.5)))
}

/// Applies the activation to each number.
pub fn activate(simd: Simd, numbers: &mut [f32], activation: Activation) {
    simd.run(Activate { numbers, activation });
}

/// Replaces negative numbers by 0. `max` is not used, because it would turn NaN into 0 and so hide it.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
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
                    |x| gelu(isa, x),
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
            Activation::Relu => numbers.iter_mut().for_each(|x| *x = relu(*x)),
        }
    }
}
