//! Tests that every instruction set of this machine gives the products of a plain loop.

use super::product::{Panels, Rows};
use super::rows::{self, Activation};
use super::{InstructionSet, Simd};

/// Numbers in -0.5..0.5 that are the same on every machine.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f32() - 0.5).collect()
}

/// Compares sums of `inputs` products of numbers below 1/2 and a bias with the plain sums. The error may be
/// 2^-24 for each rounding.
fn compare(x: Rows, weight: &[f32], bias: Option<&[f32]>, [rows, inputs, outputs]: [usize; 3]) {
    let transposed: Vec<f32> =
        (0..inputs * outputs).map(|i| weight[i % outputs * inputs + i / outputs]).collect();
    for set in InstructionSet::available() {
        let simd = Simd::of(set).unwrap();
        let (mut panels, mut other) = (Panels::default(), Panels::default());
        // The previous content does not matter.
        panels.fill(simd, Rows { numbers: &numbers(77 * 90, 3), stride: 90 }, 77, 90);
        panels.fill_transposed(simd, Rows { numbers: weight, stride: inputs }, inputs, outputs);
        other.fill(simd, Rows { numbers: &transposed, stride: outputs }, inputs, outputs);
        assert_eq!((panels.inputs(), panels.outputs()), (inputs, outputs));
        for panels in [panels, other] {
            let mut out = vec![f32::NAN; rows * outputs];
            let mut of_rows: Vec<&mut [f32]> = out.chunks_exact_mut(outputs).collect();
            panels.multiply(simd, x, 0..outputs, bias, &mut of_rows);
            for (i, found) in out.iter().enumerate() {
                let (row, output) = (i / outputs, i % outputs);
                let x = &x.numbers[row * x.stride..][..inputs];
                let products = x.iter().zip(&weight[output * inputs..]);
                let sum = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
                    + f64::from(bias.map_or(0.0, |bias| bias[output]));
                let tolerance = (inputs + 2) as f64 / f64::from(1u32 << 24);
                assert!(
                    (f64::from(*found) - sum).abs() <= tolerance,
                    "{set:?}, {rows} rows, {inputs} inputs: row {row}, output {output} is {found}, not {sum}"
                );
            }
            // Some of the outputs, beginning with a panel.
            for first in (0..outputs).step_by(simd.panel()).skip(1) {
                for last in [outputs, outputs.min(first + simd.panel()), outputs.min(first + 3)] {
                    let mut part = vec![f32::NAN; rows * (last - first)];
                    let mut of_rows: Vec<&mut [f32]> = part.chunks_exact_mut(last - first).collect();
                    panels.multiply(simd, x, first..last, bias, &mut of_rows);
                    for (part, whole) in part.chunks_exact(last - first).zip(out.chunks_exact(outputs)) {
                        assert_eq!(part, &whole[first..last], "{set:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_instruction_set_gives_the_products_of_a_plain_loop() {
    let shapes = [[1, 1, 1], [1, 384, 7], [3, 5, 1], [17, 2, 9], [31, 33, 65], [130, 384, 40], [5, 2000, 3]];
    // Tiles of each number of rows, and random shapes.
    let tiles = (1..=29).map(|rows| [rows, 1 + rows * 7 % 50, 1 + rows * 11 % 80]);
    let up_to = |most: f32, x: f32| 1 + (most * (x + 0.5)) as usize;
    let random: Vec<[usize; 3]> = numbers(3 * 40, 5)
        .chunks_exact(3)
        .map(|x| [up_to(40.0, x[0]), up_to(100.0, x[1]), up_to(150.0, x[2])])
        .collect();
    for (i, shape @ [rows, inputs, outputs]) in shapes.into_iter().chain(tiles).chain(random).enumerate() {
        let seed = 10 * i as u64;
        // Contiguous rows and rows at a distance. The last row ends with the numbers.
        for stride in [inputs, inputs + 5] {
            let x = numbers((rows - 1) * stride + inputs, seed);
            let (weight, bias) = (numbers(inputs * outputs, seed + 1), numbers(outputs, seed + 2));
            compare(Rows { numbers: &x, stride }, &weight, (i % 2 == 0).then_some(&bias), shape);
        }
    }
    // tools/test-kernels.sh reads these lines.
    InstructionSet::available().iter().for_each(|set| println!("instruction set {}", set.name()));
}

/// Rows of 1 to 70 numbers, and some longer ones, from -8 to 8.
fn rows_of_all_lengths() -> impl Iterator<Item = (usize, Vec<f32>)> {
    (1..=70).chain([96, 384, 1000]).map(|length| {
        let rows = numbers(3 * length, length as u64);
        (length, rows.iter().map(|x| x * 16.0).collect())
    })
}

fn assert_near(found: &[f32], expected: impl Iterator<Item = f64>, tolerance: f64, what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let differs = (f64::from(*found) - expected).abs();
        assert!(
            differs <= tolerance * expected.abs().max(1.0),
            "{what}: number {i} is {found}, not {expected}"
        );
    }
}

#[test]
fn every_instruction_set_gives_the_norms_sums_and_softmaxes_of_plain_loops() {
    for (length, x) in rows_of_all_lengths() {
        let (weight, bias) = (numbers(length, 1), numbers(length, 2));
        let norms = x.chunks_exact(length).flat_map(|row| {
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / length as f64;
            let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / length as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let of = row.iter().zip(weight.iter().zip(&bias));
            of.map(|(x, (w, b))| (f64::from(*x) - mean) * scale * f64::from(*w) + f64::from(*b))
                .collect::<Vec<_>>()
        });
        let softmaxes = x.chunks_exact(length).flat_map(|row| {
            let powers: Vec<f64> = row.iter().map(|x| f64::from(*x).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(|power| power / sum).collect::<Vec<_>>()
        });
        let (norms, softmaxes): (Vec<f64>, Vec<f64>) = (norms.collect(), softmaxes.collect());
        let others = numbers(x.len(), 3);
        for set in InstructionSet::available() {
            let (simd, what) = (Simd::of(set).unwrap(), format!("{set:?}, {length} numbers"));
            let mut found = x.clone();
            rows::norm(simd, &mut found, &weight, &bias, 1e-5);
            assert_near(&found, norms.iter().copied(), 1e-5, &what);
            found.clone_from(&x);
            rows::softmax(simd, &mut found, length);
            assert_near(&found, softmaxes.iter().copied(), 1e-6, &what);
            found.clone_from(&x);
            rows::add(simd, &mut found, &others);
            assert!(found.iter().zip(x.iter().zip(&others)).all(|(f, (x, y))| *f == x + y), "{what}");
        }
    }
}

#[test]
fn every_instruction_set_gives_the_activations_of_a_plain_loop() {
    let plain = |activation, x: f64| match activation {
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Activation::Relu => x.max(0.0),
    };
    for (length, x) in rows_of_all_lengths() {
        for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Relu] {
            for set in InstructionSet::available() {
                let mut found = x.clone();
                rows::activate(Simd::of(set).unwrap(), &mut found, activation);
                let expected = x.iter().map(|x| plain(activation, f64::from(*x)));
                assert_near(&found, expected, 2e-6, &format!("{set:?}, {activation:?}, {length} numbers"));
            }
        }
    }
}

#[test]
fn nan_stays_nan_in_every_activation() {
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Relu] {
        for set in InstructionSet::available() {
            let mut x = [1.0, f32::NAN, -1.0];
            rows::activate(Simd::of(set).unwrap(), &mut x, activation);
            assert!(x[0] > 0.8 && x[1].is_nan() && x[2] > -0.2, "{set:?}, {activation:?}: {x:?}");
        }
    }
}

/// Also far from zero, where it is the number itself or 0, and for NaN.
#[test]
fn gelu_is_near_its_definition_everywhere() {
    let mut x: Vec<f32> = (-160_000..=160_000).map(|i| i as f32 / 16_000.0).collect();
    x.extend([-1e30, 1e30, -300.0, 300.0, -0.0, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 1.0]);
    let expected: Vec<f64> =
        x.iter().map(|x| f64::from(*x) * 0.5 * libm::erfc(-f64::from(*x) / 2f64.sqrt())).collect();
    for set in InstructionSet::available() {
        let mut found = x.clone();
        rows::activate(Simd::of(set).unwrap(), &mut found, Activation::Gelu);
        for (x, (found, expected)) in x.iter().zip(found.iter().zip(&expected)) {
            let is_near = (f64::from(*found) - expected).abs() <= 1.2e-6 * expected.abs().clamp(1.0, 1e30);
            let is_same = x.is_nan() && found.is_nan() || *x == f32::INFINITY && *found == f32::INFINITY;
            assert!(is_near || is_same, "{set:?}: {x} gives {found}, not {expected}");
        }
    }
}

#[test]
fn a_nan_affects_only_its_own_row() {
    for set in InstructionSet::available() {
        let simd = Simd::of(set).unwrap();
        let mut panels = Panels::default();
        panels.fill(simd, Rows { numbers: &[0.5; 5 * 40], stride: 40 }, 5, 40);
        let mut x = vec![0.25; 3 * 5];
        x[7] = f32::NAN;
        let mut out = vec![0.0; 3 * 40];
        let mut rows: Vec<&mut [f32]> = out.chunks_exact_mut(40).collect();
        panels.multiply(simd, Rows { numbers: &x, stride: 5 }, 0..40, None, &mut rows);
        for (row, out) in out.chunks_exact(40).enumerate() {
            assert!(out.iter().all(|x| x.is_nan() == (row == 1)), "{set:?}: {out:?}");
        }
    }
}

#[test]
fn sizes_that_do_not_match_are_refused() {
    let simd = Simd::best();
    let refused =
        |work: &mut dyn FnMut()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    let mut panels = Panels::default();
    assert!(refused(&mut || panels.fill(simd, Rows { numbers: &[0.0; 7], stride: 4 }, 2, 4)));
    assert!(refused(&mut || panels.fill_transposed(simd, Rows { numbers: &[0.0; 7], stride: 4 }, 4, 2)));
    panels.fill(simd, Rows { numbers: &[0.0; 8], stride: 4 }, 2, 4);
    let multiply = |count: usize, outputs: std::ops::Range<usize>, bias: &[f32], width: usize| {
        let (x, mut out) = ([0.0; 4], vec![0.0; 2 * width]);
        let mut rows: Vec<&mut [f32]> = out.chunks_exact_mut(width).collect();
        let x = Rows { numbers: &x[..count], stride: 2 };
        refused(&mut || panels.multiply(simd, x, outputs.clone(), Some(bias), &mut rows))
    };
    assert!(!multiply(4, 0..4, &[0.0; 4], 4));
    assert!(multiply(3, 0..4, &[0.0; 4], 4), "a row that ends early");
    assert!(multiply(4, 0..5, &[0.0; 4], 5), "outputs that are not there");
    assert!(multiply(4, 1..4, &[0.0; 4], 3), "outputs that begin within a panel");
    assert!(multiply(4, 0..4, &[0.0; 3], 4), "a bias that is too short");
    assert!(multiply(4, 0..4, &[0.0; 4], 3), "rows of the result that are too short");
}

#[test]
fn the_variable_forces_an_instruction_set_and_a_wrong_one_is_an_error() {
    let available = InstructionSet::available();
    for set in &available {
        assert_eq!(InstructionSet::wished(Some(set.name())).unwrap(), *set);
    }
    for none in [None, Some("")] {
        assert_eq!(InstructionSet::wished(none).unwrap(), *available.last().unwrap());
    }
    let problem = InstructionSet::wished(Some("sse9")).unwrap_err();
    assert!(problem.contains("\"sse9\"") && problem.contains("portable"), "{problem}");
}
