//! Strategy semantic: splits between sentences whose vectors are far apart compared with others in the
//! document (the percentile method of Greg Kamradt's "Five levels of text splitting", 2024). Chunks have a
//! maximum size and, where a neighbour has room, a minimum size.

use super::sentences::Sentence;
use super::{Piece, ordered, size_limit};
use crate::chunk_settings::Chunking;
use crate::chunk_settings::DEFAULT_PERCENTILE;
use crate::tokenizer::Tokenizer;
use kb_types::Bounds;
use kb_types::error::Result;
use std::cmp::Ordering;
use std::ops::Range;

/// A chunk smaller than the size divided by this joins a neighbour.
const SMALL: usize = 10;

/// Groups the sentences of `text` into pieces. `distances[i]` is the distance of sentence i from the next
/// one.
pub fn pieces(
    text: &str,
    sentences: &[Sentence],
    distances: &[f32],
    chunking: &Chunking,
    tokenizer: &Tokenizer,
    bounds: &Bounds,
) -> Result<Vec<Piece>> {
    bounds.spend(sentences.len() * 64)?;
    let units: Vec<usize> = sentences.iter().map(|sentence| sentence.units).collect();
    let percentile = chunking.percentile.unwrap_or(DEFAULT_PERCENTILE);
    let groups = groups(&units, distances, f64::from(percentile) / 100.0, chunking.size);
    let piece = |group: Range<usize>| {
        let range = sentences.get(group.start)?.range.start..sentences.get(group.end - 1)?.range.end;
        Some(Piece { range, tokens: None })
    };
    let pieces = groups.into_iter().filter_map(piece).collect();
    Ok(ordered(size_limit::enforce(text, pieces, chunking, tokenizer, bounds)?))
}

/// Groups sentences: splits where they differ most, joins groups that are too small and splits those that are
/// too large.
fn groups(units: &[usize], distances: &[f32], quantile: f64, size: usize) -> Vec<Range<usize>> {
    if units.is_empty() {
        return Vec::new();
    }
    let threshold = quantile_of(distances, quantile);
    let mut ends: Vec<usize> =
        (1..units.len()).filter(|end| distances.get(end - 1).is_some_and(|d| *d > threshold)).collect();
    ends.push(units.len());
    let mut start = 0;
    let cut: Vec<Range<usize>> =
        ends.into_iter().map(|end| std::mem::replace(&mut start, end)..end).collect();
    let joined = join_small(cut, units, distances, size);
    joined.into_iter().flat_map(|group| fill(group, units, distances, size)).collect()
}

/// The quantile of the values, interpolated linearly between neighbours. NaN counts as the largest value.
fn quantile_of(values: &[f32], quantile: f64) -> f32 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let at = quantile * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize));
    match (below, above) {
        (Some(&below), Some(&above)) => below + (above - below) * at.fract() as f32,
        _ => f32::INFINITY,
    }
}

/// Joins small groups to a neighbour where both fit into the size, the most similar ones first.
fn join_small(
    groups: Vec<Range<usize>>,
    units: &[usize],
    distances: &[f32],
    size: usize,
) -> Vec<Range<usize>> {
    let sum = |group: &Range<usize>| units[group.clone()].iter().sum::<usize>();
    let mut sums: Vec<usize> = groups.iter().map(sum).collect();
    // For each group that was joined to the one before it, that group or an earlier one of the same join.
    let mut before: Vec<usize> = (0..groups.len()).collect();
    let mut borders: Vec<usize> = (1..groups.len()).collect();
    let distance = |border: &usize| distances.get(groups[*border].start - 1).copied().unwrap_or(0.0);
    borders.sort_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap_or(Ordering::Equal));
    // For each first group of a join, the last group that was joined to it.
    let mut last: Vec<usize> = (0..groups.len()).collect();
    for border in borders {
        let left = first_of(&mut before, border - 1);
        let (left_units, right_units) = (sums[left], sums[border]);
        let is_small = left_units.min(right_units) * SMALL < size;
        if is_small && left_units + right_units <= size {
            sums[left] = left_units + right_units;
            before[border] = left;
            last[left] = last[border];
        }
    }
    let first = (0..groups.len()).filter(|&group| before[group] == group);
    first.map(|group| groups[group].start..groups[last[group]].end).collect()
}

/// Finds the first group of a join, and shortens the path to it.
fn first_of(before: &mut [usize], group: usize) -> usize {
    let mut first = group;
    while before[first] != first {
        first = before[first];
    }
    let mut next = group;
    while before[next] != first {
        next = std::mem::replace(&mut before[next], first);
    }
    first
}

/// Splits a group that exceeds the size. Each part is filled, and ends where its sentences differ most in its
/// second half.
fn fill(group: Range<usize>, units: &[usize], distances: &[f32], size: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = group.start;
    while start < group.end {
        let (mut end, mut sum, mut half) = (start, 0, None);
        while end < group.end && (end == start || sum + units[end] <= size) {
            sum += units[end];
            end += 1;
            if half.is_none() && sum * 2 >= size {
                half = Some(end);
            }
        }
        if end < group.end
            && let Some(half) = half
        {
            let distance = |end: &usize| distances.get(*end - 1).copied().unwrap_or(0.0);
            let farthest = (half..=end).max_by(|a, b| distance(a).total_cmp(&distance(b)));
            end = farthest.unwrap_or(end);
        }
        parts.push(start..end);
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn sentences_are_cut_where_they_differ_most() {
        let distances = [0.1, 0.1, 0.9, 0.1, 0.1, 0.8, 0.1];
        assert_eq!(groups(&[10; 8], &distances, 0.7, 100), [0..3, 3..6, 6..8]);
        // Where all distances are equal, none exceeds the others.
        assert_eq!(groups(&[10; 8], &[0.2; 7], 0.5, 100), vec![0..8]);
        assert_eq!(groups(&[10], &[], 0.95, 100), vec![0..1]);
        assert!(groups(&[], &[], 0.95, 100).is_empty());
        // The same value as numpy's.
        assert_eq!(quantile_of(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert!((quantile_of(&[1.0, 2.0, 3.0], 0.95) - 2.9).abs() < 1e-6);
    }

    #[test]
    fn a_small_group_joins_the_neighbour_that_it_is_nearer_to() {
        let join = |units: &[usize], distances: &[f32], cut: &[Range<usize>]| {
            join_small(cut.to_vec(), units, distances, 100)
        };
        assert_eq!(join(&[50, 2, 40], &[0.9, 0.5], &[0..1, 1..2, 2..3]), [0..1, 1..3]);
        assert_eq!(join(&[50, 2, 40], &[0.4, 0.5], &[0..1, 1..2, 2..3]), [0..2, 2..3]);
        // A neighbour without room is not joined.
        assert_eq!(join(&[99, 2, 99], &[0.4, 0.5], &[0..1, 1..2, 2..3]), [0..1, 1..2, 2..3]);
        assert_eq!(join(&[3; 4], &[0.4, 0.5, 0.3], &[0..1, 1..2, 2..3, 3..4]), vec![0..4]);
    }

    #[test]
    fn a_large_group_is_cut_where_it_differs_most_and_parts_are_within_the_size() {
        let distances = [0.1, 0.2, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1];
        assert_eq!(fill(0..9, &[25; 9], &distances, 100), [0..3, 3..7, 7..9]);
        assert_eq!(fill(0..3, &[200, 10, 10], &[0.1, 0.1], 100), [0..1, 1..3]);
    }

    #[test]
    fn every_sentence_is_in_one_group_and_groups_are_within_the_size() {
        let mut random = Rng::with_seed(7);
        for _ in 0..2000 {
            let count = 1 + random.usize(..40);
            let units: Vec<usize> = (0..count).map(|_| 1 + random.usize(..60)).collect();
            let distances: Vec<f32> = (1..count).map(|_| random.usize(..1000) as f32 / 500.0).collect();
            let size = 60 + random.usize(..200);
            let groups = groups(&units, &distances, 0.01 * (1 + random.usize(..99)) as f64, size);
            let mut next = 0;
            for group in groups {
                assert_eq!(group.start, next);
                assert!(units[group.clone()].iter().sum::<usize>() <= size);
                next = group.end;
            }
            assert_eq!(next, count);
        }
    }
}
