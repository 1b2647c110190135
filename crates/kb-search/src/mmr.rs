//! Maximal marginal relevance (Carbonell and Goldstein 1998): each next row is the one with the best balance
//! of relevance and difference from the rows before it.

use super::request::Check;
use kb_types::Candidate;
use std::collections::HashMap;
use uuid::Uuid;

/// The most candidates that are ordered, because the work is their number times the rows of the request, each
/// a product of two vectors.
pub const POOL: usize = 1000;

/// The first `top_k` in the new order, chosen from the first [`POOL`] candidates. Their rank_score becomes
/// the value that orders them: lambda * relevance - (1 - lambda) * greatest cosine similarity to a row
/// before. Relevance is the similarity if candidates were ordered by it, and otherwise the rank score, scaled
/// to between 0 and 1. A candidate without a vector is similar to no other. Rows beyond the pool follow in
/// their old order.
pub fn order(
    mut candidates: Vec<Candidate>,
    vectors: &HashMap<Uuid, Vec<f32>>,
    lambda: f64,
    top_k: usize,
    check: Check,
) -> Vec<Candidate> {
    let beyond = candidates.split_off(candidates.len().min(POOL));
    let relevance = relevance(&candidates);
    let directions: Vec<Vec<f32>> = candidates
        .iter()
        .map(|candidate| vectors.get(&candidate.chunk_id).map(|v| direction(v)).unwrap_or_default())
        .collect();
    // For each candidate the greatest similarity to a chosen row. None once it is chosen itself.
    let mut likeness: Vec<Option<f64>> = vec![Some(f64::NEG_INFINITY); candidates.len()];
    let mut order: Vec<(usize, f64)> = Vec::new();
    while order.len() < top_k.min(candidates.len()) {
        check();
        let value = |i: usize, like: f64| {
            let like = if order.is_empty() { 0.0 } else { like };
            lambda * relevance[i] - (1.0 - lambda) * like
        };
        let open = likeness.iter().enumerate().filter_map(|(i, like)| Some((i, value(i, (*like)?))));
        // The first of equal ones is chosen, so that answers are reproducible.
        let Some((best, score)) = open.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
            break;
        };
        order.push((best, score));
        likeness[best] = None;
        for (i, like) in likeness.iter_mut().enumerate() {
            if let Some(like) = like {
                *like = like.max(cosine(&directions[i], &directions[best]));
            }
        }
    }
    let last = order.last().map(|(_, score)| *score);
    let mut open: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    let mut ordered: Vec<Candidate> = Vec::with_capacity(top_k.min(open.len() + beyond.len()));
    for (i, score) in order {
        ordered.extend(open[i].take().map(|candidate| Candidate { rank_score: Some(score), ..candidate }));
    }
    let rest = beyond.into_iter().map(|candidate| Candidate { rank_score: last, ..candidate });
    ordered.extend(rest.take(top_k.saturating_sub(POOL)));
    ordered
}

fn relevance(candidates: &[Candidate]) -> Vec<f64> {
    // Candidates that a reranker has not read come after all that it has read.
    let least = candidates.iter().filter_map(|candidate| candidate.rank_score).fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { 0.0 };
    let scores: Vec<f64> = candidates.iter().map(|candidate| candidate.rank_score.unwrap_or(least)).collect();
    let is_similarity = |candidate: &Candidate| {
        candidate.score() == candidate.rank_score
            && candidate.score().is_some_and(|s| (0.0..=1.0).contains(&s))
    };
    if candidates.iter().all(is_similarity) {
        return scores;
    }
    let width = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    scores.iter().map(|score| if width > 0.0 { (score - least) / width } else { 1.0 }).collect()
}

/// The vector scaled to length 1, or an empty one where it has no direction.
pub(crate) fn direction(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    match length > 0.0 && length.is_finite() {
        true => vector.iter().map(|x| (f64::from(*x) / length) as f32).collect(),
        false => Vec::new(),
    }
}

/// The cosine similarity of two directions.
pub(crate) fn cosine(left: &[f32], right: &[f32]) -> f64 {
    // Separate sums, which the compiler computes in parallel.
    let mut sums = [0f32; 8];
    for (l, r) in left.chunks(8).zip(right.chunks(8)) {
        for (sum, (l, r)) in sums.iter_mut().zip(l.iter().zip(r)) {
            *sum += l * r;
        }
    }
    sums.iter().map(|sum| f64::from(*sum)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{fuse, test_candidate};
    use super::*;

    /// Candidates with vectors in the plane at these angles from the question, in degrees.
    fn fan(angles: &[f64]) -> (Vec<Candidate>, HashMap<Uuid, Vec<f32>>) {
        let mut vectors = HashMap::new();
        let candidate = |angle: &f64| {
            let candidate = test_candidate(&angle.to_string(), angle.to_radians().cos(), 1);
            let (sin, cos) = angle.to_radians().sin_cos();
            // The length of a vector does not count.
            vectors.insert(candidate.chunk_id, vec![3.0 * cos as f32, 3.0 * sin as f32]);
            candidate
        };
        (fuse::of_one(angles.iter().map(candidate).collect()), vectors)
    }

    fn ordered(angles: &[f64], lambda: f64, top_k: usize) -> Vec<String> {
        let (candidates, vectors) = fan(angles);
        let ordered = order(candidates, &vectors, lambda, top_k, &|| ());
        let scores: Vec<f64> = ordered.iter().filter_map(|candidate| candidate.rank_score).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        ordered.iter().filter_map(|candidate| Some(candidate.row.as_ref()?.content.clone())).collect()
    }

    #[test]
    fn rows_similar_to_earlier_ones_come_later() {
        let angles = [10.0, 11.0, 12.0, -40.0];
        assert_eq!(ordered(&angles, 1.0, 4), ["10", "11", "12", "-40"]);
        assert_eq!(ordered(&angles, 0.5, 2), ["10", "-40"]);
        // Only difference counts, so the next is the farthest from all before.
        assert_eq!(ordered(&angles, 0.0, 4), ["10", "-40", "12", "11"]);
    }

    #[test]
    fn relevance_is_the_rank_score_where_it_made_the_order() {
        let (mut candidates, vectors) = fan(&[10.0, 11.0, -40.0]);
        for (candidate, score) in candidates.iter_mut().zip([0.031, 0.030, 0.001]) {
            candidate.rank_score = Some(score);
        }
        assert_eq!(relevance(&candidates).first(), Some(&1.0));
        assert_eq!(relevance(&candidates).last(), Some(&0.0));
        let ordered = order(candidates, &vectors, 0.9, 3, &|| ());
        assert_eq!(ordered[1].row.as_ref().unwrap().content, "11");
    }

    #[test]
    fn a_row_without_a_vector_is_similar_to_none_and_none_is_no_error() {
        let (candidates, mut vectors) = fan(&[10.0, 11.0, 60.0]);
        vectors.remove(&candidates[1].chunk_id);
        let ordered = order(candidates, &vectors, 0.5, 3, &|| ());
        assert_eq!(ordered[1].row.as_ref().unwrap().content, "11");
        assert!(order(Vec::new(), &vectors, 0.5, 3, &|| ()).is_empty());
        let zeros = fan(&[1.0, 2.0]).0;
        let vectors = zeros.iter().map(|c| (c.chunk_id, vec![0.0, f32::NAN])).collect();
        assert_eq!(order(zeros, &vectors, 0.5, 3, &|| ()).len(), 2);
    }

    #[test]
    fn beyond_the_pool_rows_keep_their_order_and_none_is_missing() {
        let angles: Vec<f64> = (0..POOL + 50).map(|i| i as f64 / 100.0).collect();
        let got = ordered(&angles, 0.5, POOL + 20);
        assert_eq!(got.len(), POOL + 20);
        assert_eq!(got.last().unwrap(), &angles[POOL + 19].to_string());
    }
}
