//! Posting lists: bit-packed blocks of 128 postings, with headers by which a search skips them, and the
//! remaining postings as single numbers.
//!
//! A part of a list that has whole blocks starts with a lower bound of its chunk numbers. A block has its
//! last chunk minus the lower bound, the widths of chunks and lengths in bits, the least frequency, the
//! greatest minus the least frequency, and the least length. Then follow the packed chunks (each minus the
//! previous chunk minus 1), frequencies and lengths (each minus the least). The postings after the last whole
//! block have three numbers each, or two where the frequency is 1.

use super::bytes::{Reader, put_number};
use super::corrupt::Corrupt;
use bitpacking::{BitPacker, BitPacker4x};

pub const BLOCK: usize = BitPacker4x::BLOCK_LEN;

/// The sum of a block of deltas of this width fits into 32 bits.
const NARROW: u8 = 24;

/// A chunk that contains the term, with the frequency of the term and the length of the chunk. Every posting
/// stores the length, so that a search reads nothing else. Chunk numbers are less than u32::MAX, and
/// frequency and length are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    pub chunk: u32,
    pub frequency: u32,
    pub length: u32,
}

/// The postings of a term in one page.
#[derive(Debug, Clone, Copy)]
pub struct ListPart<'a> {
    pub count: u32,
    pub bytes: &'a [u8],
}

/// Up to one block of postings, in columns.
#[derive(Clone)]
pub struct Columns {
    pub chunks: [u32; BLOCK],
    pub frequencies: [u32; BLOCK],
    pub lengths: [u32; BLOCK],
    pub count: usize,
}

impl Default for Columns {
    fn default() -> Self {
        Columns { chunks: [0; BLOCK], frequencies: [0; BLOCK], lengths: [0; BLOCK], count: 0 }
    }
}

impl Columns {
    /// There must be room for another posting.
    pub fn push(&mut self, posting: Posting) {
        self.chunks[self.count] = posting.chunk;
        self.frequencies[self.count] = posting.frequency;
        self.lengths[self.count] = posting.length;
        self.count += 1;
    }

    pub fn get(&self, at: usize) -> Posting {
        Posting { chunk: self.chunks[at], frequency: self.frequencies[at], length: self.lengths[at] }
    }

    /// Writes a whole block. No chunk may be below `lowest`.
    pub fn put_block(&self, out: &mut Vec<u8>, lowest: u32) {
        let packer = BitPacker4x::new();
        let last = self.chunks[BLOCK - 1];
        let before = lowest.checked_sub(1);
        let (least_frequency, frequencies, frequency_bits) = take_minimum(packer, &self.frequencies);
        let (least_length, lengths, length_bits) = take_minimum(packer, &self.lengths);
        let chunk_bits = packer.num_bits_strictly_sorted(before, &self.chunks);
        let spread = frequencies.iter().fold(0, |most, f| *f.max(&most));
        put_number(out, (last - lowest).into());
        out.extend_from_slice(&[chunk_bits, length_bits]);
        put_number(out, least_frequency.into());
        put_number(out, spread.into());
        put_number(out, least_length.into());
        let start = out.len();
        out.resize(
            start + packed_size(chunk_bits) + packed_size(frequency_bits) + packed_size(length_bits),
            0,
        );
        let packed = &mut out[start..];
        let (chunks, packed) = packed.split_at_mut(packed_size(chunk_bits));
        packer.compress_strictly_sorted(before, &self.chunks, chunks, chunk_bits);
        let (first, second) = packed.split_at_mut(packed_size(frequency_bits));
        packer.compress(&frequencies, first, frequency_bits);
        packer.compress(&lengths, second, length_bits);
    }

    /// Writes the postings as single numbers. No chunk may be below `lowest`.
    pub fn put_short(&self, out: &mut Vec<u8>, mut lowest: u32) {
        for posting in (0..self.count).map(|at| self.get(at)) {
            let repeated = posting.frequency > 1;
            put_number(out, u64::from(posting.chunk - lowest) << 1 | u64::from(repeated));
            if repeated {
                put_number(out, posting.frequency.into());
            }
            put_number(out, posting.length.into());
            lowest = posting.chunk + 1;
        }
    }
}

fn packed_size(bits: u8) -> usize {
    BitPacker4x::compressed_block_size(bits)
}

/// The least value, the values minus the least, and their width in bits.
fn take_minimum(packer: BitPacker4x, values: &[u32; BLOCK]) -> (u32, [u32; BLOCK], u8) {
    let least = values.iter().fold(u32::MAX, |least, v| *v.min(&least));
    let rest = values.map(|v| v - least);
    (least, rest, packer.num_bits(&rest))
}

/// A block whose header has been read.
#[derive(Clone, Copy)]
pub struct PostingBlock<'a> {
    /// A lower bound of the chunks.
    pub lowest: u32,
    /// The last chunk.
    pub last: u32,
    pub max_frequency: u32,
    pub min_length: u32,
    count: u8,
    shape: Shape,
    bytes: &'a [u8],
}

#[derive(Clone, Copy)]
enum Shape {
    Packed {
        chunk_bits: u8,
        frequency_bits: u8,
        length_bits: u8,
        min_frequency: u32,
    },
    /// Chunks count from `base`.
    Singles {
        base: u32,
    },
}

/// The blocks of a part.
pub struct PostingBlocks<'a> {
    reader: Reader<'a>,
    remaining: u32,
    lowest: u32,
}

impl<'a> PostingBlocks<'a> {
    pub fn new(part: ListPart<'a>) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(part.bytes);
        let lowest = if part.count as usize >= BLOCK { reader.small()? } else { 0 };
        Ok(PostingBlocks { reader, remaining: part.count, lowest })
    }

    pub fn next_block(&mut self) -> Result<Option<PostingBlock<'a>>, Corrupt> {
        if self.remaining == 0 {
            let complete = self.reader.is_empty();
            return if complete {
                Ok(None)
            } else {
                Err(Corrupt("a posting list has more bytes than postings"))
            };
        }
        let block = if self.remaining as usize >= BLOCK { self.whole_block()? } else { self.short_block()? };
        self.remaining -= u32::from(block.count);
        // No chunk has the greatest number, so this cannot overflow.
        self.lowest = block.last.checked_add(1).ok_or(TOO_LARGE)?;
        Ok(Some(block))
    }

    fn whole_block(&mut self) -> Result<PostingBlock<'a>, Corrupt> {
        let reader = &mut self.reader;
        let last = self.lowest.checked_add(reader.small()?).ok_or(TOO_LARGE)?;
        let (chunk_bits, length_bits) = (reader.byte()?, reader.byte()?);
        let min_frequency = reader.small()?;
        let spread = reader.small()?;
        let max_frequency = min_frequency.checked_add(spread).ok_or(TOO_LARGE)?;
        let min_length = reader.small()?;
        if chunk_bits > 32 || length_bits > 32 || min_frequency == 0 || min_length == 0 {
            return Err(Corrupt("a block has an invalid header"));
        }
        let frequency_bits = (u32::BITS - spread.leading_zeros()) as u8;
        let size = packed_size(chunk_bits) + packed_size(frequency_bits) + packed_size(length_bits);
        let bytes = reader.take(size)?;
        Ok(PostingBlock {
            lowest: self.lowest,
            last,
            max_frequency,
            min_length,
            count: BLOCK as u8,
            shape: Shape::Packed { chunk_bits, frequency_bits, length_bits, min_frequency },
            bytes,
        })
    }

    /// Reads the few remaining postings to find what a header would say.
    fn short_block(&mut self) -> Result<PostingBlock<'a>, Corrupt> {
        let bytes = self.reader.take(self.reader.remaining())?;
        let mut reader = Reader::new(bytes);
        let (mut max_frequency, mut min_length) = (0, u32::MAX);
        let (mut first, mut lowest) = (None, self.lowest);
        for _ in 0..self.remaining {
            let posting = read_single(&mut reader, lowest)?;
            first = first.or(Some(posting.chunk));
            max_frequency = posting.frequency.max(max_frequency);
            min_length = posting.length.min(min_length);
            lowest = posting.chunk + 1;
        }
        if !reader.is_empty() {
            return Err(Corrupt("a posting list has more bytes than postings"));
        }
        Ok(PostingBlock {
            lowest: first.unwrap_or(self.lowest),
            last: lowest.saturating_sub(1),
            max_frequency,
            min_length,
            count: self.remaining as u8,
            shape: Shape::Singles { base: self.lowest },
            bytes,
        })
    }
}

const TOO_LARGE: Corrupt = Corrupt("a number in a posting list is too large");

fn read_single(reader: &mut Reader, lowest: u32) -> Result<Posting, Corrupt> {
    let number = reader.number()?;
    let gap = u32::try_from(number >> 1).map_err(|_| TOO_LARGE)?;
    let chunk = lowest.checked_add(gap).filter(|chunk| *chunk < u32::MAX).ok_or(TOO_LARGE)?;
    let frequency = if number & 1 == 1 { reader.small()? } else { 1 };
    let length = reader.small()?;
    if frequency == 0 || length == 0 {
        return Err(Corrupt("a posting has frequency or length 0"));
    }
    Ok(Posting { chunk, frequency, length })
}

impl PostingBlock<'_> {
    pub fn count(&self) -> usize {
        self.count.into()
    }

    /// Sets the count and the chunks of `columns`.
    pub fn unpack_chunks(&self, columns: &mut Columns) -> Result<(), Corrupt> {
        let chunk_bits = match self.shape {
            Shape::Packed { chunk_bits, .. } => chunk_bits,
            Shape::Singles { base } => return self.read_singles(base, columns),
        };
        columns.count = BLOCK;
        let chunks = &mut columns.chunks;
        let packed = &self.bytes[..packed_size(chunk_bits)];
        BitPacker4x::new().decompress_strictly_sorted(self.lowest.checked_sub(1), packed, chunks, chunk_bits);
        // Sums wrap around at 32 bits. Sums of narrow deltas cannot if the last chunk is right.
        let ascends = chunk_bits <= NARROW || (chunks[0] >= self.lowest && chunks.is_sorted_by(|a, b| a < b));
        if chunks[BLOCK - 1] == self.last && ascends {
            Ok(())
        } else {
            Err(Corrupt("chunks are out of order"))
        }
    }

    /// After `unpack_chunks`: sets the frequencies and the lengths.
    pub fn unpack_weights(&self, columns: &mut Columns) -> Result<(), Corrupt> {
        match self.shape {
            Shape::Packed { chunk_bits, frequency_bits, length_bits, min_frequency } => {
                let packed = &self.bytes[packed_size(chunk_bits)..];
                let (frequencies, lengths) = packed.split_at(packed_size(frequency_bits));
                unpack(frequencies, frequency_bits, min_frequency, &mut columns.frequencies)?;
                unpack(lengths, length_bits, self.min_length, &mut columns.lengths)
            }
            // They were read together with the chunks.
            Shape::Singles { .. } => Ok(()),
        }
    }

    fn read_singles(&self, mut lowest: u32, columns: &mut Columns) -> Result<(), Corrupt> {
        let mut reader = Reader::new(self.bytes);
        columns.count = 0;
        for _ in 0..self.count {
            let posting = read_single(&mut reader, lowest)?;
            columns.push(posting);
            lowest = posting.chunk + 1;
        }
        Ok(())
    }
}

fn unpack(packed: &[u8], bits: u8, least: u32, out: &mut [u32; BLOCK]) -> Result<(), Corrupt> {
    BitPacker4x::new().decompress(packed, out, bits);
    let greatest = u32::MAX.checked_shr(32 - u32::from(bits)).unwrap_or(0);
    if least.checked_add(greatest).is_none() && out.iter().any(|v| v.checked_add(least).is_none()) {
        return Err(TOO_LARGE);
    }
    out.iter_mut().for_each(|v| *v = v.wrapping_add(least));
    Ok(())
}

#[cfg(test)]
#[path = "postings_tests.rs"]
mod tests;
