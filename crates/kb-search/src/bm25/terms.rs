//! The terms of one chunk, and their bytes.

use super::bytes::{Reader, put_number, put_term, read_term};
use super::corrupt::Corrupt;

/// PostgreSQL's lexemes have at most so many bytes.
pub const MAX_TERM: usize = 2046;

const VERSION: u8 = 1;

/// The greatest length of terms that their key tells from all others. Most terms are no longer.
pub const SHORT: usize = 15;

/// Bytes of a word of a text, with the space behind it, where most are about so long.
const USUAL_WORD: usize = 6;

/// Terms at most for which there is room before they are encoded.
const MOST_ROOM: usize = 4096;

/// Sorts as terms do, but is the same for long terms with the same beginning: the first bytes, then the length, or 16
/// for all that are longer than `SHORT`.
#[inline]
pub fn key(term: &[u8]) -> u128 {
    let begin = &term[..term.len().min(SHORT)];
    let unused = 8 * (SHORT + 1 - begin.len());
    // Two pieces that may overlap: copying a few bytes, as many as they are, takes longer.
    let bytes = if let (Some(first), Some(last)) = (begin.first_chunk(), begin.last_chunk()) {
        u128::from(u64::from_be_bytes(*first)) << 64 | u128::from(u64::from_be_bytes(*last)) << unused
    } else if let (Some(first), Some(last)) = (begin.first_chunk(), begin.last_chunk()) {
        u128::from(u32::from_be_bytes(*first)) << 96 | u128::from(u32::from_be_bytes(*last)) << unused
    } else {
        begin.iter().rev().fold(0, |bytes, byte| bytes >> 8 | u128::from(*byte) << 120)
    };
    bytes | term.len().min(SHORT + 1) as u128
}

/// The term whose key this is, where that is short.
pub fn term_of(key: &[u8; SHORT + 1]) -> &[u8] {
    &key[..usize::from(key[SHORT]).min(SHORT)]
}

/// Distinct terms, ascending bytewise, each with how often the chunk has it: what the tests compare with.
#[cfg(test)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    terms: Vec<(Vec<u8>, u32)>,
}

#[cfg(test)]
impl Terms {
    /// Takes terms in any order. Equal terms are added up; empty ones and those with frequency 0 are left out.
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

/// Terms that ascend bytewise, and how long the chunk is.
fn encode<'a>(length: u32, terms: impl Iterator<Item = (&'a [u8], u32)>) -> Vec<u8> {
    // Most differ from the one before in a few bytes.
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

/// How a term that is found in a text counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As a word of the text.
    Word,
    /// As one of so many parts of a joined word, beside the word: they make a text no longer.
    Part(usize),
    /// As a sign beside the pairs of its run.
    Sign,
}

impl Share {
    /// How much it weighs in a question: the parts of a joined word together no more than one. A run's pairs say what
    /// its signs say.
    pub fn weight(self) -> f64 {
        match self {
            Share::Word => 1.0,
            Share::Part(of) => 1.0 / of.max(1) as f64,
            Share::Sign => 0.0,
        }
    }
}

/// The terms of a chunk as they come, each as often as the chunk has it.
#[derive(Debug, Clone, Default)]
pub struct Occurrences {
    /// The keys of short terms.
    short: Vec<u128>,
    long: Vec<Vec<u8>>,
    /// How many of them stand beside words.
    beside: usize,
}

impl Occurrences {
    /// Of a text of so many bytes: room for what it usually has.
    pub fn of_text(size: usize) -> Self {
        Occurrences { short: Vec::with_capacity(size / USUAL_WORD + 1), ..Occurrences::default() }
    }

    /// Empty ones are left out.
    pub fn add(&mut self, term: &[u8], share: Share) {
        match term.len() {
            0 => return,
            1..=SHORT => self.short.push(key(term)),
            _ => self.long.push(term.to_vec()),
        }
        self.beside += usize::from(share != Share::Word);
    }

    /// Adds a short term, by its key.
    pub fn add_key(&mut self, key: u128, share: Share) {
        self.short.push(key);
        self.beside += usize::from(share != Share::Word);
    }

    /// As kb.chunks.terms has them.
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
        // No frequency is above the length, as the bounds of scores have it.
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

/// Reads encoded terms one after the other, into one buffer.
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

    /// The chunk's length: the sum of the frequencies but for what stands beside words.
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

/// The chunk's length, and for each of `terms` (ascending bytewise, distinct) its frequency: 0 where the chunk lacks it.
/// Reads no further than it must.
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
    fn terms_as_they_come_are_encoded_as_those_that_are_counted() {
        let long = ["a long term of one beginning, z", "a long term of one beginning, y"];
        let all = ["b", long[0], "abc", "", "a", "b", long[1], "ab", "b", "abc", "z", long[0]];
        let mut occurrences = Occurrences::default();
        all.iter().for_each(|term| occurrences.add(term.as_bytes(), Share::Word));
        let counted: Vec<(&str, u32)> = all.iter().map(|term| (*term, 1)).collect();
        assert_eq!(occurrences.encode(), terms(&counted).encode());
        assert_eq!(Occurrences::default().encode(), Terms::default().encode());
    }

    #[test]
    fn what_stands_beside_words_makes_a_chunk_no_longer() {
        let mut occurrences = Occurrences::default();
        occurrences.add(b"tcp/ip", Share::Word);
        for part in [b"tcp".as_slice(), b"ip", b"ip"] {
            occurrences.add(part, Share::Part(3));
        }
        let found = frequencies(&occurrences.encode(), &[b"ip", b"tcp", b"tcp/ip"]).unwrap();
        // As long as its most frequent term is frequent.
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
    fn frequencies_are_those_of_the_terms_asked_for() {
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
