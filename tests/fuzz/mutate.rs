//! New inputs from old ones.

use crate::random::Random;

/// Bytes of an input at most.
pub const LONGEST: usize = 16 * 1024;

/// A few changes to one of the inputs: bytes and parts changed, put in, left out, repeated; `words` put in;
/// parts of another input.
pub fn mutate(random: &mut Random, inputs: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = random.pick(inputs).clone();
    for _ in 0..1 + random.below(8) {
        let at = random.below(input.len() + 1);
        let end = (at + random.mostly_few(10)).min(input.len());
        let part = input[at..end].to_vec();
        let put = |input: &mut Vec<u8>, bytes: &[u8]| drop(input.splice(at..at, bytes.iter().copied()));
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256) as u8,
            2 => drop(input.drain(at..end)),
            3 => put(&mut input, &part.repeat(random.mostly_few(8))),
            4 => {
                let to = random.below(input.len() + 1);
                drop(input.splice(to..to, part));
            }
            5 => {
                let other = random.pick(inputs);
                let from = random.below(other.len() + 1);
                let to = from + random.below(other.len() - from + 1);
                put(&mut input, &other[from..to]);
            }
            6 => put(&mut input, random.pick(&NUMBERS).as_bytes()),
            7 => {
                let word = random.pick(words).repeat(random.mostly_few(6));
                put(&mut input, word.as_bytes());
            }
            _ if !words.is_empty() => put(&mut input, random.pick(words).as_bytes()),
            _ => {}
        }
        input.truncate(LONGEST);
    }
    input
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "-0.0",
    "1e-400",
    "0.1",
];
