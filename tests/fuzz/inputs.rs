//! Inputs near the seeds of a target: a seed with some edits, so that proptest can drop edits from an input
//! that fails.

use crate::targets::Target;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The most bytes of an input.
const LONGEST: usize = 16 * 1024;

const NUMBERS: &str =
    "0 -1 1 255 2147483648 4294967296 9223372036854775807 18446744073709551616 1e400 -0.0 1e-400 0.1";

/// Each edit replaces a part of the input, mostly a short one, by a piece, mostly once: a word, a number, a
/// part of a seed, bytes, or nothing.
pub fn near(seeds: Vec<Vec<u8>>, target: &Target) -> impl Strategy<Value = Vec<u8>> {
    let words = target.words.split_ascii_whitespace().map(word).collect::<Vec<_>>();
    let numbers: Vec<Vec<u8>> = NUMBERS.split(' ').map(Vec::from).collect();
    let part = (select(seeds.clone()), any::<[Index; 2]>()).prop_map(|(seed, ends)| {
        let [from, to] = ends.map(|end| end.index(seed.len() + 1));
        seed[from.min(to)..from.max(to)].to_vec()
    });
    let piece = prop_oneof![
        5 => select(words),
        1 => select(numbers),
        2 => part,
        2 => vec(any::<u8>(), 1..3),
        2 => Just(Vec::new()),
    ];
    let edit = (any::<Index>(), mostly_few(9), piece, mostly_few(7));
    (select(seeds), vec(edit, 1..16)).prop_map(|(mut input, edits)| {
        for (at, length, piece, times) in edits {
            let from = at.index(input.len() + 1);
            let to = (from + length).min(input.len());
            input.splice(from..to, piece.repeat(times + 1));
            input.truncate(LONGEST);
        }
        input
    })
}

/// A number below 2^bits, of which 0 is the likeliest.
fn mostly_few(bits: u32) -> impl Strategy<Value = usize> {
    prop_oneof![Just(0).boxed(), (0..bits).prop_flat_map(|bits| 0..1usize << bits).boxed()]
}

/// The word for which this stands in `Target::words`.
fn word(text: &str) -> Vec<u8> {
    let mut word = text.replace('␣', " ").replace('⏎', "\n");
    while let Some((before, rest)) = word.split_once('‹') {
        let (number, after) = rest.split_once('›').unwrap();
        let character = char::from_u32(u32::from_str_radix(number, 16).unwrap()).unwrap();
        word = format!("{before}{character}{after}");
    }
    word.into_bytes()
}
