//! The terms of one chunk, and their encoding.

use super::bytes::{Reader, put_number, put_term, read_term};
use super::corrupt::Corrupt;

/// The most bytes of a lexeme in PostgreSQL.
pub const MAX_TERM: usize = 2046;

const VERSION: u8 = 1;

/// The greatest length of terms that their key identifies. Most terms are no longer.
pub const SHORT: usize = 15;

/// The usual number of bytes of a word with the space after it.
const USUAL_WORD: usize = 6;

/// The most terms for which space is reserved before they are encoded.
const MOST_ROOM: usize = 4096;

/// A key that sorts like the term, but is the same for long terms with the same beginning. It has the first
/// bytes and then the length, or 16 for all terms longer than `SHORT`.
#[inline]
pub fn key(term: &[u8]) -> u128 {
    let begin = &term[..term.len().min(SHORT)];
    let unused = 8 * (SHORT + 1 - begin.len());
    // Copies two pieces that may overlap, which is faster than copying a variable number of bytes.
    let bytes = if let (Some(first), Some(last)) = (begin.first_chunk(), begin.last_chunk()) {
        u128::from(u64::from_be_bytes(*first)) << 64 | u128::from(u64::from_be_bytes(*last)) << unused
    } else if let (Some(first), Some(last)) = (begin.first_chunk(), begin.last_chunk()) {
        u128::from(u32::from_be_bytes(*first)) << 96 | u128::from(u32::from_be_bytes(*last)) << unused
    } else {
        begin.iter().rev().fold(0, |bytes, byte| bytes >> 8 | u128::from(*byte) << 120)
    };
    bytes | term.len().min(SHORT + 1) as u128
}

/// The term of a key, if the term is short.
pub fn term_of(key: &[u8; SHORT + 1]) -> &[u8] {
    &key[..usize::from(key[SHORT]).min(SHORT)]
}

/// Distinct terms, ascending bytewise, with their frequencies in the chunk. Tests compare with these.
#[cfg(test)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    terms: Vec<(Vec<u8>, u32)>,
}

#[cfg(test)]
impl Terms {
    /// Accepts terms in any order. Frequencies of equal terms are added. Empty terms and those with frequency
    /// 0 are dropped.
    pub fn new(terms: impl IntoIterator<Item = (Vec<u8>, u32)>) -> Self {
        let mut terms: Vec<_> = terms.into_iter().filter(|(term, f)| !term.is_empty() && *f > 0).collect();
        terms.sort_unstable();
        terms.dedup_by(|next, kept| {
            let equal = next.0 == kept.0;
            if equal {
                kept.1 = kept.1.saturating_add(next.1);
            }
            equal
        });
        Terms { terms }
    }

    /// The sum of the frequencies.
    pub fn length(&self) -> u32 {
        self.terms.iter().fold(0, |sum, (_, f)| sum.saturating_add(*f))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.terms.iter().map(|(term, f)| (term.as_slice(), *f))
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self.length(), self.iter())
    }

    pub fn decode(encoded: &[u8]) -> Result<Self, Corrupt> {
        let mut decoder = Decoder::new(encoded)?;
        let mut terms = Vec::new();
        while let Some((term, frequency)) = decoder.next_term()? {
            terms.push((term.to_vec(), frequency));
        }
        Ok(Terms { terms })
    }
}

/// Encodes the length of the chunk and terms that ascend bytewise.
fn encode<'a>(length: u32, terms: impl Iterator<Item = (&'a [u8], u32)>) -> Vec<u8> {
    // Most terms differ from the previous one in a few bytes.
    let mut out = Vec::with_capacity(8 + 6 * (length as usize).min(MOST_ROOM));
    out.push(VERSION);
    put_number(&mut out, length.into());
    let mut previous: &[u8] = &[];
    for (term, frequency) in terms {
        let repeated = frequency > 1;
        put_term(&mut out, repeated, previous, term);
        if repeated {
            put_number(&mut out, frequency.into());
        }
        previous = term;
    }
    out
}

/// How an occurrence of a term in a text counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A word of the text.
    Word,
    /// One of this many parts of a compound word, in addition to the word itself. They do not add to the
    /// length of the text.
    Part(usize),
    /// A sign in addition to the pairs of its run.
    Sign,
}

impl Share {
    /// The weight in a question. The parts of a compound word together weigh one, and signs weigh nothing
    /// because the pairs of their run represent them.
    pub fn weight(self) -> f64 {
        match self {
            Share::Word => 1.0,
            Share::Part(of) => 1.0 / of.max(1) as f64,
            Share::Sign => 0.0,
        }
    }
}

/// The occurrences of terms in a chunk, in any order.
#[derive(Debug, Clone, Default)]
pub struct Occurrences {
    /// The keys of short terms.
    short: Vec<u128>,
    long: Vec<Vec<u8>>,
    /// How many of them are in addition to words.
    beside: usize,
}

impl Occurrences {
    /// Reserves space for the usual number of terms in a text of `size` bytes.
    pub fn of_text(size: usize) -> Self {
        Occurrences { short: Vec::with_capacity(size / USUAL_WORD + 1), ..Occurrences::default() }
    }

    /// Adds a term. Empty terms are dropped.
    pub fn add(&mut self, term: &[u8], share: Share) {
        match term.len() {
            0 => return,
            1..=SHORT => self.short.push(key(term)),
            _ => self.long.push(term.to_vec()),
        }
        self.beside += usize::from(share != Share::Word);
    }

    /// Adds a short term by its key.
    pub fn add_key(&mut self, key: u128, share: Share) {
        self.short.push(key);
        self.beside += usize::from(share != Share::Word);
    }

    /// The encoding that kb.chunks.terms has.
    pub fn encode(&self) -> Vec<u8> {
        let mut short = self.short.clone();
        short.sort_unstable();
        let keys: Vec<[u8; SHORT + 1]> = short.into_iter().map(u128::to_be_bytes).collect();
        let mut by_term: Vec<&[u8]> = self.long.iter().map(Vec::as_slice).collect();
        by_term.sort_unstable();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut long = by_term.chunk_by(|a, b| a == b).map(|equal| (equal[0], count(equal.len()))).peekable();
        let mut short =
            keys.chunk_by(|a, b| a == b).map(|equal| (term_of(&equal[0]), count(equal.len()))).peekable();
        let ascending = std::iter::from_fn(|| match (short.peek(), long.peek()) {
            (Some((term, _)), Some((other, _))) if other < term => long.next(),
            (Some(_), _) => short.next(),
            (None, _) => long.next(),
        });
        let all = keys.len() + self.long.len();
        // No frequency exceeds the length, because the bounds of scores assume that.
        let most = match self.beside {
            0 => 0,
            _ => {
                let short = keys.chunk_by(|a, b| a == b).map(<[_]>::len).max();
                short.max(by_term.chunk_by(|a, b| a == b).map(<[_]>::len).max()).unwrap_or_default()
            }
        };
        encode(count((all - self.beside).max(most)), ascending)
    }
}

/// Reads encoded terms one after the other into one buffer.
pub struct Decoder<'a> {
    reader: Reader<'a>,
    term: Vec<u8>,
    length: u32,
    sum: u32,
}

impl<'a> Decoder<'a> {
    pub fn new(encoded: &'a [u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(encoded);
        if reader.byte()? != VERSION {
            return Err(Corrupt("a chunk's terms have an unknown version"));
        }
        let length = reader.small()?;
        Ok(Decoder { reader, term: Vec::new(), length, sum: 0 })
    }

    /// The length of the chunk: the sum of the frequencies, without those in addition to words.
    pub fn length(&self) -> u32 {
        self.length
    }

    pub fn next_term(&mut self) -> Result<Option<(&[u8], u32)>, Corrupt> {
        if self.reader.is_empty() {
            let complete = self.sum >= self.length;
            return if complete {
                Ok(None)
            } else {
                Err(Corrupt("a chunk's terms are not as many as its length"))
            };
        }
        let repeated = read_term(&mut self.reader, &mut self.term)?;
        let frequency = if repeated { self.reader.small()? } else { 1 };
        if frequency == 0 {
            return Err(Corrupt("a frequency is 0"));
        }
        self.sum = self.sum.saturating_add(frequency);
        Ok(Some((&self.term, frequency)))
    }
}

/// The length of the chunk, and the frequency of each of `terms` (distinct, ascending bytewise), which is 0
/// where the chunk does not contain the term. Reads no further than necessary.
pub fn frequencies(encoded: &[u8], terms: &[&[u8]]) -> Result<(u32, Vec<u32>), Corrupt> {
    debug_assert!(terms.is_sorted_by(|a, b| a < b));
    let mut decoder = Decoder::new(encoded)?;
    let mut found = vec![0; terms.len()];
    let mut wanted = terms.iter().zip(&mut found).peekable();
    'terms: while wanted.peek().is_some() {
        let Some((term, frequency)) = decoder.next_term()? else { break };
        while let Some((want, slot)) = wanted.next_if(|(want, _)| **want <= term) {
            if *want == term {
                *slot = frequency;
                continue 'terms;
            }
        }
    }
    Ok((decoder.length(), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(list: &[(&str, u32)]) -> Terms {
        Terms::new(list.iter().map(|(term, f)| (term.as_bytes().to_vec(), *f)))
    }

    #[test]
    fn terms_are_sorted_distinct_and_come_back() {
        let terms = terms(&[("b", 2), ("a", 1), ("", 9), ("b", 3), ("c", 0), ("abc", 70_000)]);
        let list: Vec<_> = terms.iter().collect();
        assert_eq!(list, [(b"a".as_slice(), 1), (b"abc", 70_000), (b"b", 5)]);
        assert_eq!(terms.length(), 70_006);
        assert_eq!(Terms::decode(&terms.encode()).unwrap(), terms);
        assert_eq!(Terms::decode(&Terms::default().encode()).unwrap(), Terms::default());
    }

    #[test]
    fn occurrences_are_encoded_like_counted_terms() {
        let long = ["a long term of one beginning, z", "a long term of one beginning, y"];
        let all = ["b", long[0], "abc", "", "a", "b", long[1], "ab", "b", "abc", "z", long[0]];
        let mut occurrences = Occurrences::default();
        all.iter().for_each(|term| occurrences.add(term.as_bytes(), Share::Word));
        let counted: Vec<(&str, u32)> = all.iter().map(|term| (*term, 1)).collect();
        assert_eq!(occurrences.encode(), terms(&counted).encode());
        assert_eq!(Occurrences::default().encode(), Terms::default().encode());
    }

    #[test]
    fn terms_in_addition_to_words_do_not_make_a_chunk_longer() {
        let mut occurrences = Occurrences::default();
        occurrences.add(b"tcp/ip", Share::Word);
        for part in [b"tcp".as_slice(), b"ip", b"ip"] {
            occurrences.add(part, Share::Part(3));
        }
        let found = frequencies(&occurrences.encode(), &[b"ip", b"tcp", b"tcp/ip"]).unwrap();
        // The length equals the frequency of the most frequent term.
        assert_eq!(found, (2, vec![2, 1, 1]));
        (0..5).for_each(|_| occurrences.add(b"word", Share::Word));
        assert_eq!(frequencies(&occurrences.encode(), &[b"word"]).unwrap(), (6, vec![5]));
        assert_eq!([Share::Word, Share::Part(1), Share::Part(8)].map(Share::weight), [1.0, 1.0, 0.125]);
    }

    #[test]
    fn a_length_over_the_limit_saturates() {
        let terms = terms(&[("a", u32::MAX), ("b", 5), ("c", u32::MAX)]);
        assert_eq!(terms.length(), u32::MAX);
        assert_eq!(Terms::decode(&terms.encode()).unwrap(), terms);
    }

    #[test]
    fn frequencies_are_returned_for_the_requested_terms() {
        let encoded = terms(&[("b", 2), ("bb", 1), ("d", 7)]).encode();
        let ask = |list: &[&str]| {
            frequencies(&encoded, &list.iter().map(|t| t.as_bytes()).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(ask(&["a", "b", "ba", "bb", "c", "d", "e"]), (10, vec![0, 2, 0, 1, 0, 7, 0]));
        assert_eq!(ask(&["d"]), (10, vec![7]));
        assert_eq!(ask(&["x", "y"]), (10, vec![0, 0]));
        assert_eq!(ask(&[]), (10, vec![]));
    }

    #[test]
    fn keys_sort_as_terms_do() {
        let mut terms: Vec<Vec<u8>> = Vec::new();
        for length in [1, 2, 14, 15, 16, 17, 40] {
            for (fill, last) in [(b'a', b'a'), (b'a', 0), (b'a', 0xff), (0, 0), (0xff, 0xff), (0xff, 0)] {
                terms.push([vec![fill; length - 1], vec![last]].concat());
            }
        }
        for (a, b) in terms.iter().flat_map(|a| terms.iter().map(move |b| (a, b))) {
            let both_long = a.len() > SHORT && b.len() > SHORT;
            let order = key(a).cmp(&key(b));
            assert!(order == a.cmp(b) || (order.is_eq() && both_long), "{a:?} {b:?}");
        }
    }
}
