//! Each instruction set that this machine has gives the products that a plain loop gives.

use super::{InstructionSet, Product};
use crate::error::Error;
use candle_core::{Device, Tensor};

/// In -0.5..0.5, the same everywhere.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn tensor(dims: &[usize], seed: u64) -> Tensor {
    Tensor::from_vec(numbers(dims.iter().product(), seed), dims, &Device::Cpu).unwrap()
}

/// One after the other, in f64, by index.
fn plain(left: &Tensor, right: &Tensor) -> Vec<f64> {
    let left = left.to_vec3::<f32>().unwrap();
    let right = right.to_vec3::<f32>().unwrap();
    let mut out = Vec::new();
    for (left, right) in left.iter().zip(&right) {
        for row in left {
            for column in 0..right.first().map_or(0, Vec::len) {
                out.push(row.iter().zip(right).map(|(a, b)| f64::from(*a) * f64::from(b[column])).sum());
            }
        }
    }
    out
}

/// Sums of k products of numbers below 1/2, rounded k times: within k · 2^-24 of the plain sum.
fn compare(left: &Tensor, right: &Tensor) {
    let inner = *left.dims().last().unwrap();
    let expected = plain(&three(left), &three(right));
    for set in InstructionSet::available() {
        let product = Product(set).of(left, right).unwrap();
        assert_eq!(product.dims(), left.matmul(right).unwrap().dims());
        let got = product.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(got.len(), expected.len());
        let tolerance = inner as f64 / f64::from(1u32 << 24);
        for (got, expected) in got.iter().zip(&expected) {
            assert!((f64::from(*got) - expected).abs() <= tolerance, "{set:?} {left:?} {right:?}");
        }
    }
}

fn three(tensor: &Tensor) -> Tensor {
    if tensor.rank() == 3 { tensor.clone() } else { tensor.unsqueeze(0).unwrap() }
}

#[test]
fn every_instruction_set_gives_the_products_of_a_plain_loop() {
    for (i, (m, k, n)) in [
        (1, 1, 1),
        (1, 384, 7),
        (3, 5, 1),
        (17, 2, 9),
        (16, 16, 16),
        (31, 33, 65),
        (130, 384, 40),
        (64, 1536, 48),
        (5, 2000, 3),
    ]
    .into_iter()
    .enumerate()
    {
        compare(&tensor(&[m, k], i as u64), &tensor(&[k, n], 99 + i as u64));
    }
    // tools/test-kernels.sh reads these lines.
    InstructionSet::available().iter().for_each(|set| println!("instruction set {}", set.name()));
}

/// As attention has them: heads side by side in a row, the second transposed.
#[test]
fn views_of_a_tensor_are_multiplied_without_a_copy() {
    let (length, heads, head) = (13, 4, 8);
    let joined = tensor(&[length + 2, 3 * heads * head], 5).narrow(0, 1, length).unwrap();
    let joined = joined.reshape((length, 3, heads, head)).unwrap();
    let part = |i: usize| joined.narrow(1, i, 1).unwrap().squeeze(1).unwrap().transpose(0, 1).unwrap();
    compare(&part(0), &part(1).transpose(1, 2).unwrap());
    compare(&tensor(&[heads, length, length], 6), &part(2));
}

#[test]
fn tensors_that_have_no_product_are_refused() {
    let product = Product(InstructionSet::Portable);
    for (left, right) in [(vec![2, 3], vec![2, 3]), (vec![2, 3, 4], vec![3, 4, 2]), (vec![3], vec![3, 3])] {
        assert!(product.of(&tensor(&left, 1), &tensor(&right, 2)).is_err(), "{left:?} {right:?}");
    }
    let empty = product.of(&tensor(&[2, 0], 1), &tensor(&[0, 3], 2)).unwrap();
    assert_eq!(empty.to_vec2::<f32>().unwrap(), [[0.0; 3]; 2]);
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
    let Error::Configuration { object, problems, .. } = InstructionSet::wished(Some("sse9")).unwrap_err()
    else {
        panic!("another error");
    };
    assert!(object.contains(super::VARIABLE));
    assert!(problems[0].contains("\"sse9\"") && problems[0].contains("portable"), "{problems:?}");
}
