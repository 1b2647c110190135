//! Encodes numbers with variable length, and terms by their difference from the previous term.

use super::corrupt::Corrupt;

const TRUNCATED: Corrupt = Corrupt("a value is cut off");

/// Writes LEB128: seven bits per byte, the lowest first.
pub fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a signed number. Numbers close to 0 take few bytes.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reads from the front of a slice.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        let (&first, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn number(&mut self) -> Result<u64, Corrupt> {
        let first = self.byte()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_number(first) }
    }

    fn long_number(&mut self, first: u8) -> Result<u64, Corrupt> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Corrupt("a number is too large"))
    }

    #[inline]
    pub fn small(&mut self) -> Result<u32, Corrupt> {
        u32::try_from(self.number()?).map_err(|_| Corrupt("a number is too large"))
    }

    pub fn signed(&mut self) -> Result<i64, Corrupt> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

const PREFIX: u8 = 7;
const SUFFIX: u8 = 15;

/// Writes one byte with `flag`, the length of the prefix that `term` shares with `previous`, and the length
/// of the rest. A length that does not fit continues in a number after it. The rest follows.
pub fn put_term(out: &mut Vec<u8>, flag: bool, previous: &[u8], term: &[u8]) {
    let prefix = previous.iter().zip(term).take_while(|(a, b)| a == b).count();
    let suffix = term.len() - prefix;
    out.push(u8::from(flag) << 7 | (prefix.min(PREFIX.into()) as u8) << 4 | suffix.min(SUFFIX.into()) as u8);
    if prefix >= PREFIX.into() {
        put_number(out, (prefix - usize::from(PREFIX)) as u64);
    }
    if suffix >= SUFFIX.into() {
        put_number(out, (suffix - usize::from(SUFFIX)) as u64);
    }
    out.extend_from_slice(&term[prefix..]);
}

/// Changes `term` from the previous term to the next one and returns the flag. Terms ascend strictly.
pub fn read_term(reader: &mut Reader, term: &mut Vec<u8>) -> Result<bool, Corrupt> {
    let first = reader.byte()?;
    let mut prefix = usize::from(first >> 4 & PREFIX);
    let mut suffix = usize::from(first & SUFFIX);
    if prefix == usize::from(PREFIX) {
        prefix += reader.small()? as usize;
    }
    if suffix == usize::from(SUFFIX) {
        suffix += reader.small()? as usize;
    }
    let rest = reader.take(suffix)?;
    // The shared prefix is always as long as possible, so the first different byte tells the order of the
    // terms.
    let ascends = match (rest.first(), term.get(prefix)) {
        (Some(new), Some(old)) => new > old,
        (new, _) => prefix == term.len() && new.is_some(),
    };
    if !ascends {
        return Err(Corrupt("terms are out of order"));
    }
    term.truncate(prefix);
    term.extend_from_slice(rest);
    Ok(first & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_come_back() {
        let mut out = Vec::new();
        let numbers: Vec<u64> = (0..64).flat_map(|n| [(1 << n) - 1, 1 << n]).chain([u64::MAX]).collect();
        for &n in &numbers {
            put_number(&mut out, n);
            put_signed(&mut out, n as i64);
        }
        let mut reader = Reader::new(&out);
        for &n in &numbers {
            assert_eq!((reader.number().unwrap(), reader.signed().unwrap()), (n, n as i64));
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn a_number_that_does_not_end_is_corrupt() {
        for bytes in [vec![0x80; 9], vec![0x80; 30], vec![0xff; 10], vec![]] {
            assert!(Reader::new(&bytes).number().is_err(), "{bytes:?}");
        }
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).small().is_err());
    }

    #[test]
    fn terms_come_back_and_must_ascend() {
        let terms: Vec<Vec<u8>> = vec![
            b"a".to_vec(),
            vec![b'a'; 7],
            vec![b'a'; 23],
            vec![b'a'; 2046],
            b"b".to_vec(),
            vec![0xff; 2046],
        ];
        let (mut out, mut previous) = (Vec::new(), Vec::new());
        for (i, term) in terms.iter().enumerate() {
            put_term(&mut out, i % 2 == 0, &previous, term);
            previous.clone_from(term);
        }
        let (mut reader, mut read) = (Reader::new(&out), Vec::new());
        for (i, term) in terms.iter().enumerate() {
            assert_eq!(read_term(&mut reader, &mut read).unwrap(), i % 2 == 0);
            assert_eq!(&read, term);
        }
        for (previous, term) in [("b", "a"), ("a", "a"), ("ab", "a"), ("", "")] {
            out.clear();
            put_term(&mut out, false, previous.as_bytes(), term.as_bytes());
            assert!(read_term(&mut Reader::new(&out), &mut previous.as_bytes().to_vec()).is_err());
        }
    }
}
