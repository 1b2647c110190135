//! The best chunks found so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredChunk {
    pub score: f64,
    pub segment: u32,
    pub chunk: u32,
}

/// Keeps the best `k` hits, ordered by score, then by segment, then by chunk.
pub struct Top {
    k: usize,
    /// A heap with the worst hit on top.
    heap: BinaryHeap<Worst>,
}

struct Worst(ScoredChunk);

impl Ord for Worst {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        b.score.total_cmp(&a.score).then((a.segment, a.chunk).cmp(&(b.segment, b.chunk)))
    }
}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Worst {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Worst {}

impl Top {
    pub fn new(k: usize) -> Self {
        Top { k, heap: BinaryHeap::new() }
    }

    /// Adds a hit if it is among the best. Hits without a positive score are dropped.
    pub fn offer(&mut self, hit: ScoredChunk) {
        if hit.score.is_nan() || hit.score <= 0.0 {
            return;
        }
        if self.heap.len() < self.k {
            self.heap.push(Worst(hit));
        } else if let Some(mut worst) = self.heap.peek_mut()
            && Worst(hit) < *worst
        {
            *worst = Worst(hit);
        }
    }

    /// The least score at which this chunk, or a later one of the segment, would be kept.
    pub fn least(&self, segment: u32, chunk: u32) -> f64 {
        match self.heap.peek() {
            _ if self.k == 0 => f64::INFINITY,
            Some(Worst(worst)) if self.heap.len() == self.k => {
                let first = (segment, chunk) < (worst.segment, worst.chunk);
                if first { worst.score } else { worst.score.next_up() }
            }
            _ => f64::MIN_POSITIVE,
        }
    }

    /// Best first.
    pub fn into_hits(self) -> Vec<ScoredChunk> {
        let mut hits = self.heap.into_vec();
        hits.sort_unstable();
        hits.into_iter().map(|worst| worst.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept_in_order_whatever_order_they_come_in() {
        let mut hits: Vec<ScoredChunk> =
            (0..60u32).map(|i| ScoredChunk { score: f64::from(i % 5), segment: i % 3, chunk: i }).collect();
        let sorted = {
            let mut hits: Vec<ScoredChunk> = hits.iter().filter(|h| h.score > 0.0).copied().collect();
            hits.sort_by_key(|h| (-(h.score as i64), h.segment, h.chunk));
            hits
        };
        for k in [0, 1, 7, 48, 60, 1_000_000] {
            for _ in 0..60 {
                hits.rotate_left(7);
                let mut top = Top::new(k);
                for &hit in &hits {
                    let needed = top.least(hit.segment, hit.chunk);
                    let before = top.heap.iter().map(|w| w.0).collect::<Vec<_>>();
                    top.offer(hit);
                    let kept =
                        before.len() < top.heap.len() || top.heap.iter().any(|w| !before.contains(&w.0));
                    assert_eq!(kept, hit.score >= needed, "{hit:?} {needed}");
                }
                assert_eq!(top.into_hits(), sorted[..k.min(sorted.len())]);
            }
        }
    }
}
