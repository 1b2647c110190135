//! Estimates the resemblance of two texts, which is the share of their shingles (runs of characters) that
//! both contain (Broder 1997, "On the resemblance and containment of documents"), from a sketch of each. It
//! compares texts instead of vectors, so that it means the same under every embedder, in keyword search, and
//! for chunks without a vector.

use std::collections::BinaryHeap;
use std::collections::HashSet;

/// The number of characters of a shingle. It has characters instead of words, because some scripts have no
/// spaces.
const RUN: usize = 8;

/// The number of shingles in a sketch: those with the least hashes. A text with no more distinct shingles is
/// compared exactly.
const SIZE: usize = 256;

/// The least hashes of the shingles of a text, ascending. Case and the amount of white space are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch(Vec<u64>);

impl Sketch {
    pub fn of(text: &str) -> Sketch {
        let words = text.split_whitespace();
        let characters = words.flat_map(|word| word.chars().flat_map(char::to_lowercase).chain([' ']));
        let (mut greatest_first, mut kept) = (BinaryHeap::new(), HashSet::new());
        let mut keep = |hash: u64| {
            let is_less =
                greatest_first.len() < SIZE || greatest_first.peek().is_some_and(|most| hash < *most);
            if is_less && kept.insert(hash) {
                greatest_first.push(hash);
                if greatest_first.len() > SIZE
                    && let Some(most) = greatest_first.pop()
                {
                    kept.remove(&most);
                }
            }
        };
        // Eight characters of 21 bits fit into 168 bits: the shingle itself, shifted by each character.
        let (mut high, mut low, mut count) = (0u64, 0u128, 0usize);
        for character in characters {
            high = ((high << 21) | (low >> 107) as u64) & ((1 << 40) - 1);
            low = (low << 21) | u128::from(u32::from(character));
            count += 1;
            if count >= RUN {
                keep(hash(high, low));
            }
        }
        // A text that is shorter than a shingle counts as one.
        if count < RUN {
            keep(hash(high, low));
        }
        Sketch(greatest_first.into_sorted_vec())
    }

    /// From 0 (nothing in common) to 1 (everything): of the least hashes of both texts together, the share
    /// that both contain.
    pub fn resemblance(&self, other: &Sketch) -> f64 {
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        let (mut seen, mut common) = (0usize, 0usize);
        while seen < SIZE {
            let ordering = match (left.first(), right.first()) {
                (Some(l), Some(r)) => l.cmp(r),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            left = &left[usize::from(ordering.is_le())..];
            right = &right[usize::from(ordering.is_ge())..];
            common += usize::from(ordering.is_eq());
            seen += 1;
        }
        if seen == 0 { 1.0 } else { common as f64 / seen as f64 }
    }
}

/// A hash that is the same on every machine and in every version, so that answers do not depend on where they
/// are computed.
fn hash(high: u64, low: u128) -> u64 {
    let mut state = 0u64;
    for part in [high, (low >> 64) as u64, low as u64] {
        // splitmix64 (Steele, Lea, Flood 2014).
        state = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resemblance(a: &str, b: &str) -> f64 {
        Sketch::of(a).resemblance(&Sketch::of(b))
    }

    /// The exact share, by direct comparison.
    fn exact(a: &str, b: &str) -> f64 {
        let runs = |text: &str| {
            let text: String =
                text.split_whitespace().map(|word| format!("{} ", word.to_lowercase())).collect();
            let all: Vec<char> = text.chars().collect();
            all.windows(RUN).map(|run| run.iter().collect::<String>()).collect::<HashSet<_>>()
        };
        let (a, b) = (runs(a), runs(b));
        a.intersection(&b).count() as f64 / a.union(&b).count() as f64
    }

    #[test]
    fn case_and_white_space_are_ignored() {
        assert_eq!(resemblance("The  harbor\n opens AT six.", "the harbor opens at six."), 1.0);
        assert_eq!(resemblance("", " \n"), 1.0);
        assert_eq!(resemblance("ab", "cd"), 0.0);
        assert_eq!(
            resemblance("港は六時に開きます。市場は七時に開きます。", "山は高い。空は青い。鳥が飛ぶ。"),
            0.0
        );
    }

    #[test]
    fn short_texts_are_compared_exactly_and_long_ones_nearly() {
        let short = (
            "Ships leave the harbor at six in the morning.",
            "Ships leave the harbor at seven in the morning.",
        );
        assert_eq!(resemblance(short.0, short.1), exact(short.0, short.1));
        let words: Vec<String> =
            (0..3000u32).map(|i| format!("w{}", i.wrapping_mul(2654435761) >> 7)).collect();
        let long = words.join(" ");
        for changed in [10, 100, 700] {
            let other: Vec<String> = words
                .iter()
                .enumerate()
                .map(|(i, w)| if i % (3000 / changed) == 0 { "x".into() } else { w.clone() })
                .collect();
            let other = other.join(" ");
            let (estimate, exact) = (resemblance(&long, &other), exact(&long, &other));
            assert!((estimate - exact).abs() < 0.1, "{changed}: {estimate}, {exact}");
        }
    }

    #[test]
    fn a_repeated_character_is_one_run() {
        assert_eq!(Sketch::of(&"a".repeat(1_000_000)).0.len(), 1 + 1);
        assert_eq!(Sketch::of(&"long text of many words that repeats itself. ".repeat(10_000)).0.len(), 45);
    }
}
