//! Which entries of a memory say related things: each entry that was not compared yet is the centre of a
//! group, with those that are similar enough to it.

use crate::mmr::{cosine, direction};

/// The first entry that is like others, and those before it that are not.
#[derive(Debug, PartialEq)]
pub struct Related {
    /// The indexes of entries that are like no other one.
    pub alone: Vec<usize>,
    /// The indexes of an entry and of those that are most similar to it, the most similar one first. Empty if
    /// there is no such entry.
    pub group: Vec<usize>,
}

/// Compares each of the entries before `new` with all others, until one has others whose cosine similarity to
/// it is at least `least`. A group has at most `most` entries. An entry without a vector is like no other.
/// The work is the number of entries times the number of those that are compared.
pub fn first_group(vectors: &[Vec<f32>], new: usize, least: f64, most: usize) -> Related {
    let directions: Vec<Vec<f32>> = vectors.iter().map(|vector| direction(vector)).collect();
    let mut alone = Vec::new();
    for centre in 0..new.min(directions.len()) {
        if directions[centre].is_empty() {
            alone.push(centre);
            continue;
        }
        let mut similar: Vec<(usize, f64)> = (0..directions.len())
            .filter(|other| *other != centre && directions[*other].len() == directions[centre].len())
            .map(|other| (other, cosine(&directions[centre], &directions[other])))
            .filter(|(_, similarity)| *similarity >= least)
            .collect();
        if similar.is_empty() {
            alone.push(centre);
            continue;
        }
        // Stable: of two that are as similar, the first one comes first.
        similar.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let others = similar.into_iter().map(|(other, _)| other);
        return Related { alone, group: std::iter::once(centre).chain(others).take(most).collect() };
    }
    Related { alone, group: Vec::new() }
}

/// The cosine similarity of a vector to the most similar of others; None if they cannot be compared.
pub fn similarity(vector: &[f32], others: &[Vec<f32>]) -> Option<f64> {
    let this = direction(vector);
    others
        .iter()
        .map(|other| direction(other))
        .filter(|other| !this.is_empty() && other.len() == this.len())
        .map(|other| cosine(&this, &other))
        .max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(given: &[[f32; 2]]) -> Vec<Vec<f32>> {
        given.iter().map(|vector| vector.to_vec()).collect()
    }

    #[test]
    fn a_group_is_a_new_entry_with_those_that_are_most_similar_to_it() {
        let all = vectors(&[[1.0, 0.0], [0.0, 1.0], [0.3, 1.0], [0.0, 7.0], [1.0, -9.0]]);
        let found = first_group(&all, 2, 0.9, 10);
        assert_eq!(found, Related { alone: vec![0], group: vec![1, 3, 2] });
        assert_eq!(first_group(&all, 2, 0.9, 2).group, [1, 3]);
        assert_eq!(first_group(&all, 2, 0.97, 10).group, [1, 3]);
        // Only new entries are compared.
        assert_eq!(first_group(&all, 1, 0.9, 10), Related { alone: vec![0], group: vec![] });
    }

    #[test]
    fn the_similarity_to_several_is_that_to_the_nearest() {
        let others = vectors(&[[0.0, 1.0], [2.0, 0.0]]);
        assert!((similarity(&[3.0, 0.0], &others).unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(similarity(&[0.0, 0.0], &others), None);
        assert_eq!(similarity(&[1.0], &others), None);
        assert_eq!(similarity(&[1.0, 0.0], &[]), None);
    }

    #[test]
    fn an_entry_without_a_vector_or_a_direction_is_alone() {
        let mut all = vectors(&[[0.0, 0.0], [0.0, 0.0]]);
        all.push(Vec::new());
        all.push(vec![f32::NAN, 1.0]);
        assert_eq!(first_group(&all, 4, 0.0, 10), Related { alone: vec![0, 1, 2, 3], group: vec![] });
        assert_eq!(first_group(&[], 3, 0.0, 10), Related { alone: vec![], group: vec![] });
    }
}
