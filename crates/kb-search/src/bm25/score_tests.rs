//! Tests of scores: the formula, exact sums, and that no input gives NaN.

use super::super::test_chunks::{Log, naive_score};
use super::*;
use fastrand::Rng;

#[test]
fn parameters_out_of_range_are_refused() {
    for (k1, b) in
        [(-0.1, 0.5), (f64::NAN, 0.5), (f64::INFINITY, 0.5), (1.0, -0.1), (1.0, 1.1), (1.0, f64::NAN)]
    {
        assert_eq!(Parameters::new(k1, b), None, "{k1} {b}");
    }
    assert!(Parameters::new(0.0, 0.0).is_some() && Parameters::new(1e9, 1.0).is_some());
}

#[test]
fn the_idf_is_positive_and_falls_with_df() {
    let counts = [i64::MIN, -5, 0, 1, 2, 10, 500_000, 10_000_000_000, i64::MAX];
    for chunks in counts {
        for pair in counts.windows(2) {
            let (rarer, more) = (idf(pair[0], chunks), idf(pair[1], chunks));
            assert!(more > 0.0 && rarer >= more && rarer.is_finite(), "{pair:?} of {chunks}: {rarer} {more}");
        }
    }
    assert!((idf(3, 10) - (1.0f64 + 7.5 / 3.5).ln()).abs() < 1e-12);
}

#[test]
fn scores_are_those_of_the_formula() {
    let mut random = Rng::with_seed(1);
    for _ in 0..2000 {
        let (k1, b) = (random.f64() * 4.0, random.f64());
        let totals = Totals { chunks: random.log(1e6) as i64, sum_length: random.log(1e8) as i64 };
        let weights: Vec<f64> = (0..5).map(|_| random.f64() * 20.0).collect();
        let frequencies: Vec<u32> = (0..5).map(|_| random.log(1e5) as u32 - 1).collect();
        let length = (frequencies.iter().sum::<u32>() + random.log(1e7) as u32).max(1);
        let scorer = Scorer::new(Parameters::new(k1, b).unwrap(), totals, &weights);
        let average = totals.sum_length as f64 / totals.chunks as f64;
        let terms: Vec<_> = weights.iter().copied().zip(frequencies.iter().map(|f| f64::from(*f))).collect();
        let naive = naive_score(k1, b, average, length.into(), &terms);
        let score = scorer.score(length, &frequencies);
        assert!((score - naive).abs() < 1e-9, "{score} {naive} {k1} {b} {average} {length} {terms:?}");
    }
}

#[test]
fn sums_do_not_depend_on_their_order_and_bounds_hold() {
    let mut random = Rng::with_seed(2);
    for _ in 0..2000 {
        let (k1, b) =
            ([0.0, 1e-9, 1.2, 50.0, 1e9, f64::MAX][random.usize(..6)], [0.0, 0.75, 1.0][random.usize(..3)]);
        let weights: Vec<f64> = (0..9).map(|_| random.log(1e6) * 1e-4).collect();
        let totals = Totals { chunks: 1000, sum_length: random.log(1e7) as i64 };
        let scorer = Scorer::new(Parameters::new(k1, b).unwrap(), totals, &weights);
        let (mut parts, mut bounds) = (Vec::new(), Vec::new());
        for weight in &weights {
            let frequency = random.log(1e9) as u32;
            let length = frequency + random.log(1e9) as u32;
            let part = scorer.part(*weight, frequency, length);
            let bound = scorer.upper_bound(
                *weight,
                frequency + random.usize(..2) as u32,
                length - random.usize(..2) as u32,
            );
            assert!(part >= scorer.unit() && part <= bound && bound.is_finite(), "{part} {bound} {scorer:?}");
            parts.push(part);
            bounds.push(bound);
        }
        for mut numbers in [parts, bounds] {
            let sum: f64 = numbers.iter().sum();
            assert_eq!(sum, numbers.iter().rev().sum::<f64>());
            numbers.sort_by(f64::total_cmp);
            assert_eq!(sum, numbers.iter().sum::<f64>());
        }
    }
}

#[test]
fn no_input_gives_a_score_that_is_not_a_number() {
    let extremes = [i64::MIN, -1, 0, 1, i64::MAX];
    let weights = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e-300, 1.0];
    for (k1, b) in [(0.0, 0.0), (0.0, 1.0), (1.2, 0.75), (f64::MAX, 0.0), (f64::MAX, 1.0)] {
        for (chunks, sum_length) in extremes.iter().flat_map(|a| extremes.map(|b| (*a, b))) {
            let scorer =
                Scorer::new(Parameters::new(k1, b).unwrap(), Totals { chunks, sum_length }, &weights);
            for (length, frequency) in [(0, 0), (0, 1), (1, u32::MAX), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
                let score = scorer.score(length, &[frequency; 7]);
                assert!(score.is_finite() && (score > 0.0) == (frequency > 0), "{score} {scorer:?}");
            }
        }
    }
}
