//! Compares each instruction set of this machine with plain loops.

use super::*;
use crate::product;
use fastrand::Rng;
use std::ops::Range;

/// From -1 to 1, a few far larger, as those of models are.
fn numbers(random: &mut Rng, count: usize) -> Vec<f32> {
    let mut number = || (2.0 * random.f32() - 1.0) * if random.u8(..50) == 0 { 40.0 } else { 1.0 };
    (0..count).map(|_| number()).collect()
}

/// Rounds numbers to integers of `bits` bits, and returns them with their scale, which may have to be a power
/// of two.
fn rounded(numbers: &[f32], bits: u32, is_power: bool) -> (Vec<i64>, f64) {
    let largest = numbers.iter().fold(0f32, |most, x| most.max(x.abs()));
    if largest < LEAST {
        return (vec![0; numbers.len()], 0.0);
    }
    let (mut scale, mut inverse) = (largest / most(bits), most(bits) / largest);
    if is_power {
        scale = (-140..128)
            .map(|power| 2f64.powi(power) as f32)
            .find(|power| largest / power <= most(bits))
            .unwrap();
        inverse = 1.0 / scale;
    }
    let whole = numbers.iter().map(|x| (x * inverse).round_ties_even() as i64).collect();
    (whole, f64::from(scale))
}

/// The expected products, and for each the sum of the absolute values of its terms, to which the rounding
/// error of f32 is proportional.
fn expected(x: &[f32], weight: &[f32], bias: &[f32], inputs: usize, kernel: Kernel) -> Vec<(f64, f64)> {
    let (bits, is_power) = (kernel.bits(), kernel.name() == "avx512");
    let mut all = Vec::new();
    for row in x.chunks_exact(inputs) {
        for (output, bias) in weight.chunks_exact(inputs).zip(bias) {
            let (mut sum, mut size) = (f64::from(*bias), f64::from(bias.abs()));
            for (row, output) in row.chunks(BLOCK).zip(output.chunks(BLOCK)) {
                let ((a, of_a), (b, of_b)) = (rounded(row, bits, is_power), rounded(output, bits, false));
                let products: i64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
                sum += products as f64 * of_a * of_b;
                size += (products as f64 * of_a * of_b).abs();
            }
            all.push((sum, size));
        }
    }
    all
}

fn multiply(matrix: &Matrix, kernel: Kernel, rows: &RoundedRows, outputs: Range<usize>, out: &mut [f32]) {
    let mut of_rows: Vec<&mut [f32]> = out.chunks_exact_mut(outputs.len().max(1)).collect();
    matrix.multiply(kernel, rows, outputs, &mut of_rows);
}

/// Rounds contiguous rows.
fn round(rows: &mut RoundedRows, kernel: Kernel, numbers: &[f32], inputs: usize) {
    rows.round(kernel, product::Rows { numbers, stride: inputs }, inputs, numbers.len() / inputs);
}

fn check(x: &[f32], weight: &[f32], bias: &[f32], inputs: usize) {
    for kernel in Kernel::available() {
        let expected = expected(x, weight, bias, inputs, kernel);
        let matrix = Matrix::new(kernel, weight, bias, inputs).unwrap();
        let mut rows = RoundedRows::default();
        round(&mut rows, kernel, x, inputs);
        let mut out = vec![f32::NAN; expected.len()];
        multiply(&matrix, kernel, &rows, 0..bias.len(), &mut out);
        for (i, (found, (sum, size))) in out.iter().zip(&expected).enumerate() {
            let (row, output) = (i / bias.len(), i % bias.len());
            let differs = (f64::from(*found) - sum).abs();
            assert!(
                differs <= size * 1e-6,
                "{}, {inputs} inputs: row {row}, output {output} is {found}, not {sum}",
                kernel.name()
            );
        }
    }
}

#[test]
fn every_instruction_set_gives_what_plain_loops_give() {
    let mut random = Rng::with_seed(1);
    for _ in 0..60 {
        let (rows, inputs, outputs) = (random.usize(..15), 1 + random.usize(..200), 1 + random.usize(..100));
        let (x, weight) = (numbers(&mut random, rows * inputs), numbers(&mut random, inputs * outputs));
        check(&x, &weight, &numbers(&mut random, outputs), inputs);
    }
    for (rows, inputs, outputs) in
        [(1, 1, 1), (13, 384, 96), (7, 1536, 33), (6, 32, 32), (2, 31, 65), (0, 5, 5)]
    {
        let (x, weight) = (numbers(&mut random, rows * inputs), numbers(&mut random, inputs * outputs));
        check(&x, &weight, &numbers(&mut random, outputs), inputs);
    }
}

#[test]
fn no_sum_overflows() {
    for (a, b) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
        let (inputs, outputs) = (8192, 33);
        check(&vec![a; 2 * inputs], &vec![b; inputs * outputs], &vec![0.0; outputs], inputs);
    }
}

#[test]
fn numbers_of_any_size_are_rounded() {
    for size in [0.0, f32::MIN_POSITIVE / 4.0, 1e-31, 1e-20, 1e20] {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 - 31.5) * size).collect();
        let weight: Vec<f32> = (0..64 * 3).map(|i| ((i * 7 % 13) as f32 - 6.0) * 1e-3).collect();
        check(&x, &weight, &[0.0, 0.5, -1.0], 64);
    }
}

#[test]
fn a_nan_stays_a_nan() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 17, 63, 64] {
            let mut x = vec![0.25; 3 * 65];
            x[65 + place] = bad;
            for kernel in Kernel::available() {
                let matrix = Matrix::new(kernel, &[0.5; 65 * 40], &[0.0; 40], 65).unwrap();
                let mut rows = RoundedRows::default();
                round(&mut rows, kernel, &x, 65);
                let mut out = vec![0.0; 3 * 40];
                multiply(&matrix, kernel, &rows, 0..40, &mut out);
                let finite: Vec<bool> = out.iter().map(|x| x.is_finite()).collect();
                let expected: Vec<bool> = (0..3 * 40).map(|i| i / 40 != 1).collect();
                assert_eq!(finite, expected, "{}, {bad} as number {place}", kernel.name());
            }
        }
    }
}

#[test]
fn a_part_of_the_outputs_equals_that_part_of_all_outputs() {
    let mut random = Rng::with_seed(2);
    for outputs in [1, 32, 33, 64, 70, 100, 384] {
        let (rows, inputs) = (5, 70);
        let (x, weight) = (numbers(&mut random, rows * inputs), numbers(&mut random, inputs * outputs));
        let bias = numbers(&mut random, outputs);
        for kernel in Kernel::available() {
            let matrix = Matrix::new(kernel, &weight, &bias, inputs).unwrap();
            assert_eq!((matrix.inputs(), matrix.outputs()), (inputs, outputs));
            let mut held = RoundedRows::default();
            // The previous content does not matter.
            round(&mut held, kernel, &numbers(&mut random, 9 * 40), 40);
            round(&mut held, kernel, &x, inputs);
            let mut whole = vec![0.0; rows * outputs];
            multiply(&matrix, kernel, &held, 0..outputs, &mut whole);
            for first in (0..outputs).step_by(PANEL) {
                let some = first..outputs.min(first + 2 * PANEL);
                let mut part = vec![0.0; rows * some.len()];
                multiply(&matrix, kernel, &held, some.clone(), &mut part);
                for row in 0..rows {
                    let of_whole = &whole[row * outputs..][some.clone()];
                    assert_eq!(
                        &part[row * some.len()..(row + 1) * some.len()],
                        of_whole,
                        "{}",
                        kernel.name()
                    );
                }
            }
        }
    }
}

#[test]
fn columns_of_longer_rows_give_the_same_as_rows_of_their_own() {
    let mut random = Rng::with_seed(3);
    for kernel in Kernel::available() {
        // The previous content does not matter, whether larger or smaller.
        let (mut matrix, mut rows) =
            (Matrix::new(kernel, &[9.0; 200], &[7.0; 5], 40).unwrap(), RoundedRows::default());
        for (count, inputs, stride) in
            [(70usize, 32, 96), (3, 5, 5), (40, 64, 200), (33, 24, 100), (1, 1, 3), (0, 4, 4)]
        {
            // The last row ends where its columns do.
            let numbers = numbers(&mut random, (count * stride + inputs).saturating_sub(stride));
            let strided = product::Rows { numbers: &numbers, stride };
            let alone: Vec<f32> = numbers.chunks(stride).flat_map(|row| &row[..inputs]).copied().collect();
            matrix.fill(kernel, strided, inputs, count);
            rows.round(kernel, strided, inputs, count);
            let mut found = vec![f32::NAN; count * count];
            multiply(&matrix, kernel, &rows, 0..count, &mut found);
            let by_itself = Matrix::new(kernel, &alone, &vec![0.0; count], inputs).unwrap();
            round(&mut rows, kernel, &alone, inputs);
            let mut expected = vec![0.0; count * count];
            multiply(&by_itself, kernel, &rows, 0..count, &mut expected);
            assert_eq!(found, expected, "{}, {count} of {inputs}", kernel.name());
        }
    }
}

#[test]
fn sizes_that_do_not_match_are_refused() {
    for kernel in Kernel::available() {
        assert!(Matrix::new(kernel, &[0.0; 6], &[0.0; 2], 4).is_none());
        assert!(Matrix::new(kernel, &[], &[], 0).is_none());
        assert!(Matrix::new(kernel, &[], &[0.0], usize::MAX).is_none());
        assert!(Matrix::new(kernel, &[0.0; 8], &[0.0; 2], 4).is_some());
    }
}
